"""The control of the chaos runs: under the same faults a producer with acks=1 loses records, one with acks=all none."""

from __future__ import annotations

import pytest

from tests.chaos.run import ACKS_1, run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_leaders_that_are_killed_lose_records_with_one_acknowledgement() -> None:
    result = run(seed=1, seconds=30, control=ACKS_1)
    assert result.failures == []
    assert result.violations == {}, result.report()
    assert result.lost_by_one > 0
    assert result.acknowledged > 0
