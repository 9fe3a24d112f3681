"""A leader that is cut off for 20 s acknowledges nothing, and the others go on: both checkers of that have a case."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from tests.chaos.checkers import check
from tests.chaos.logs import Logs
from tests.simulation.simulation import LIMITS, simulate

if TYPE_CHECKING:
    from tests.chaos.history import History, Isolation, Send

pytestmark = pytest.mark.slow
SEEDS: Final = 6
GROUPS: Final = 3


def long_isolation(history: History) -> Isolation:
    """Return the isolation of the run's end, all the time of which is the fault with its name."""
    [fault] = [each for each in history.faults if each.majority]
    assert fault.name == "long isolation"
    isolation = history.isolations[-1]
    assert isolation.ended == fault.ended
    assert isolation.ended - isolation.began >= LIMITS.progress_seconds
    return isolation


def sent_to(history: History, node: int) -> Send:
    """Return an acknowledged send whose record a node wrote as the leader."""
    led = {(each.place, each.leader_epoch) for each in history.states if each.leader == node}
    logs = Logs(history)
    for send in history.sends:
        batch = None if send.known_offset is None else logs.batch_at(send.place, send.known_offset)
        if batch is not None and (send.place, batch.leader_epoch) in led:
            return send
    raise AssertionError(f"node {node} acknowledged nothing")


@pytest.mark.parametrize("group", range(GROUPS))
def test_isolated_leader_acknowledges_nothing_and_the_others_go_on(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        outcome = simulate(seed, faults=1, long_isolation=True)
        assert not outcome.violations, outcome.report()
        cut = long_isolation(outcome.history)
        assert any(each.node == each.leader == cut.node and each.at < cut.began for each in outcome.history.states)


@pytest.fixture(scope="module")
def history() -> History:
    """Return the history of a run without violations."""
    return simulate(0, faults=1, long_isolation=True).history


def test_acknowledgement_of_an_isolated_leader_is_a_violation(history: History) -> None:
    cut = long_isolation(history)
    alone = sent_to(history, cut.node)
    sends = [replace(each, began=cut.began, ended=cut.ended) if each is alone else each for each in history.sends]
    [text] = check(replace(history, sends=sends), LIMITS)["unsafe acknowledgements"]
    assert text.endswith(f"node {cut.node} acknowledged {alone.value} while it was isolated")


def test_majority_that_stops_while_a_node_is_isolated_is_a_violation(history: History) -> None:
    cut = long_isolation(history)
    meanwhile = [each for each in history.sends if cut.began < each.ended <= cut.ended]
    late = {each.value for each in meanwhile[LIMITS.progress - 1 :]}
    sends = [each for each in history.sends if each.value not in late]
    [text] = check(replace(history, sends=sends), LIMITS)["idle faults"]
    assert text.startswith(f"long isolation: {LIMITS.progress - 1} sends succeeded in its 20.0 s")
