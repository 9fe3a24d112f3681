"""A short run of what `make torture` does for long."""

from __future__ import annotations

import os

import pytest

from tests.torture.torture import WAYS, torture

SEED = 16
SECONDS = float(os.environ.get("PYCLIENT_TORTURE_SECONDS", "20"))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.parametrize("way", sorted(WAYS))
def test_storage_keeps_its_promises(way: str) -> None:
    cases, broken = torture(way, SEED, SECONDS)
    assert not broken, f"make torture TORTURE_ARGS='--seed {SEED} --only {way}'\n" + "\n".join(broken)
    assert cases > 1
