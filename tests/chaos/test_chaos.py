"""A short chaos run: nothing acknowledged is lost, nothing is there twice; and with acks=1 records are lost."""

from __future__ import annotations

import pytest

from tests.chaos.run import run


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_cluster_keeps_its_promises_under_faults() -> None:
    result = run(seed=18, seconds=75.0, fault_seconds=3.0)
    assert not result.violations, result.report()
    assert not result.failures, result.report()
    assert result.acknowledged > 1000, result.report()
