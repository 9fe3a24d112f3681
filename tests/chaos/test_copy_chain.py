"""A short copy chain under faults, and that its checks find what they are for."""

from __future__ import annotations

import pytest

from tests.chaos.copy_chain import PARTITIONS, Seen, run, violations

MESSAGES = 40


def copies(numbers: dict[int, list[int]] | None = None) -> Seen:
    """Return a right copy, with other numbers in some partitions."""
    right = {partition: list(range(partition, MESSAGES, PARTITIONS)) for partition in range(PARTITIONS)}
    return {partition: dict(enumerate(kept)) for partition, kept in (right | (numbers or {})).items()}


def test_right_copy_has_no_violations() -> None:
    assert violations(MESSAGES, copies(), copies()) == []
    assert violations(MESSAGES, copies(), copies({1: []})) == []


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("lost", [0, 4, 8, 16, 20, 24, 28, 32, 36]),
        ("duplicated", [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 8]),
        ("order", [4, 0, 8, 12, 16, 20, 24, 28, 32, 36]),
    ],
)
def test_checker_finds_a_wrong_copy(kind: str, numbers: list[int]) -> None:
    assert [each.partition(":")[0] for each in violations(MESSAGES, copies({0: numbers}), copies({0: []}))] == [kind]


def test_checker_finds_a_record_that_only_a_reader_saw() -> None:
    seen = copies()
    seen[2][10] = 2
    assert [each.partition(":")[0] for each in violations(MESSAGES, copies(), seen)] == ["aborted"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_copy_chain_is_exact_under_faults() -> None:
    result = run(seed=19, messages=4_000, size=100, seconds=8.0, fault_seconds=1.5)
    assert not result.violations, result.report()
    assert not result.notes, result.report()
    assert result.faults, result.report()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_copy_is_exact_while_each_rebalance_ends_with_a_killed_copier() -> None:
    result = run(seed=6, messages=1_500, size=25, seconds=3.0, fault_seconds=1.0, names=["kill copier in a rebalance"])
    assert not result.violations, result.report()
    assert not result.notes, result.report()
    assert [name for name in result.faults if "missed" not in name], result.report()
