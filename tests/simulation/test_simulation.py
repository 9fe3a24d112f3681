"""Seeded simulations of a whole cluster with its clients, and what makes a failing one repeatable."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import outcomes, parse
from tests.simulation.simulation import simulate

SEEDS = 50
GROUPS = 10
FAULTS = 3
"""Short runs: more seeds find more than longer ones. `make simulate` has longer ones."""

_ROOT = Path(__file__).parents[2]
_DIGEST = "from tests.simulation.simulation import simulate; print(simulate(7, faults=3).digest)"


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_seed_violates_anything(group: int) -> None:
    acknowledged = 0
    for seed in range(group, SEEDS, GROUPS):
        outcome = simulate(seed, faults=FAULTS)
        assert not outcome.violations, outcome.report()
        acknowledged += outcome.acknowledged
    assert acknowledged > 100


def test_isolated_and_stalled_nodes_are_noted_for_the_checkers() -> None:
    """Acknowledgements of isolated or stalled leaders are wrong, even if nothing of them is lost later."""
    isolated, stalled = simulate(2, faults=FAULTS), simulate(8, faults=FAULTS)
    for outcome in (isolated, stalled):
        assert not outcome.violations, outcome.report()
    [isolation], [freeze] = isolated.history.isolations, stalled.history.freezes
    for event, outcome in ((isolation, isolated), (freeze, stalled)):
        assert event.node in (1, 2, 3)
        assert 0 < event.began < event.ended <= outcome.seconds


def test_copier_that_is_killed_in_every_rebalance_copies_exactly_once() -> None:
    killed = 0
    for seed in range(2):
        outcome = simulate(seed, faults=FAULTS, kill_in_rebalances=True)
        assert not outcome.violations, outcome.report()
        killed += outcome.killed_in_rebalances
    assert killed >= 2


@pytest.mark.parametrize("kill_in_rebalances", [False, True])
def test_printed_command_repeats_the_run(kill_in_rebalances: bool) -> None:
    outcome = simulate(7, faults=1, kill_in_rebalances=kill_in_rebalances)
    [line] = [line for line in outcome.report().splitlines() if line.startswith("replay: ")]
    command = shlex.split(line.removeprefix("replay: "))
    assert command[:3] == ["python", "-m", "tests.simulation"]
    [again] = outcomes(parse(command[3:]))
    assert (again.digest, again.steps, again.trace) == (outcome.digest, outcome.steps, outcome.trace)


def test_same_seed_gives_the_same_events_in_any_process() -> None:
    first, second = simulate(7, faults=FAULTS), simulate(7, faults=FAULTS)
    assert (first.digest, first.steps, first.trace) == (second.digest, second.steps, second.trace)
    environment = os.environ | {"PYTHONHASHSEED": "1234", "PYTHONPATH": str(_ROOT)}
    other = subprocess.run(
        [sys.executable, "-c", _DIGEST], cwd=_ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert int(other.stdout) == first.digest


def test_other_seed_gives_other_events() -> None:
    assert simulate(7, faults=1).digest != simulate(8, faults=1).digest
