"""Planted bugs that the simulation must find: they prove its faults and checkers."""

from __future__ import annotations

import pytest

from tests.simulation.plants import PLANTS, found

QUICK = (
    "ack-before-replication", "damage-is-left-as-it-is", "duplicates-are-appended", "high-watermark-at-log-end",
    "isolated-leader-commits-alone", "no-truncation",
)  # fmt: skip
"""Found within a few seeds; `python -m tests.simulation.plants` looks for all."""


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_planted_bug_is_found(name: str) -> None:
    assert found(PLANTS / f"{name}.patch", 0, 60) is not None
