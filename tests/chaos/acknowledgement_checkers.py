"""The invariants of acknowledgements with acks=all: which leaders may give one, and with how many replicas in sync."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby

from tests.chaos.history import SAFE, History, Isolation, Place, ReplicaState, Send
from tests.chaos.logs import Logs


def unsafe_acknowledgements(history: History, min_isr: int) -> Iterator[str]:
    """Find records that a leader acknowledged while it was cut off from all other nodes, or had too few replicas in
    sync, or after it was frozen and had a successor.

    The log says in which leader epoch the record was written. A send that began after the cut and was acknowledged
    before its end needed a replica that could not be reached. One that began while its leader was frozen, or later,
    needed the successor if that already led when the leader went on.
    """
    logs = Logs(history)
    leaders = {(each.place, each.leader_epoch): each.leader for each in history.states}
    successors = _successors(history.states)
    too_few = _times_with_too_few(history.states, min_isr)
    for send in history.sends:
        if send.kind not in SAFE or send.known_offset is None:
            continue
        batch = logs.batch_at(send.place, send.known_offset)
        if batch is None:
            continue
        leader = leaders.get((send.place, batch.leader_epoch))
        if any(_within(send, each) and each.node == leader for each in history.isolations):
            yield f"{send.place}@{send.offset}: node {leader} acknowledged {send.value} while it was isolated"
        for freeze in history.freezes:
            if freeze.node == leader and freeze.began <= send.began and freeze.ended < send.ended:
                for epoch, since in successors[send.place].items():
                    if epoch > batch.leader_epoch and since <= freeze.ended:
                        yield (
                            f"{send.place}@{send.offset}: node {leader} acknowledged {send.value} in epoch "
                            f"{batch.leader_epoch} after it was frozen, and epoch {epoch} had begun meanwhile"
                        )
                        break
        for began, ended in too_few.get((send.place, batch.leader_epoch), ()):
            if began <= send.began and send.ended <= ended:
                yield f"{send.place}@{send.offset}: {send.value} was acknowledged with fewer than {min_isr} in sync"


def _successors(states: Sequence[ReplicaState]) -> dict[Place, dict[int, float]]:
    """Return the times at which leaders first said that they lead, by place and leader epoch."""
    found: dict[Place, dict[int, float]] = defaultdict(dict)
    for state in states:
        if state.node == state.leader:
            epochs = found[state.place]
            epochs[state.leader_epoch] = min(state.at, epochs.get(state.leader_epoch, state.at))
    return found


def _within(send: Send, isolation: Isolation) -> bool:
    return isolation.began <= send.began and send.ended <= isolation.ended


def _times_with_too_few(
    states: Sequence[ReplicaState], min_isr: int
) -> dict[tuple[Place, int], list[tuple[float, float]]]:
    """Return when a leader had fewer than `min_isr` replicas in sync all the time, by place and leader epoch.

    It had so between two looks that show the same partition epoch, which each change of them raises. A state is
    from before the time `at` that was noted with it, and from after that of the look before.
    """
    of_leaders: dict[tuple[Place, int, int], list[ReplicaState]] = defaultdict(list)
    for state in states:
        if state.node == state.leader and state.partition_epoch >= 0:
            of_leaders[state.place, state.node, state.life].append(state)
    found: dict[tuple[Place, int], list[tuple[float, float]]] = defaultdict(list)
    for (place, _node, _life), seen in of_leaders.items():
        seen.sort(key=lambda each: each.at)
        for (_epoch, leader_epoch), same in groupby(seen, lambda each: (each.partition_epoch, each.leader_epoch)):
            looks = list(same)
            if len(looks) > 2 and len(looks[0].isr) < min_isr:
                found[place, leader_epoch].append((looks[0].at, looks[-2].at))
    return found
