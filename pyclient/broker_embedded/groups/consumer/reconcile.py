"""The next step of one member towards its target assignment: give partitions up first, take free ones, wait for others.

| state                 | the member                                 | next                         |
|-----------------------|--------------------------------------------|------------------------------|
| STABLE                | is behind the target's epoch               | revoke, or take what is free |
| UNREVOKED_PARTITIONS  | still says that it has what it should give | the same                     |
| UNREVOKED_PARTITIONS  | has given it up                            | one epoch on, then as above  |
| UNRELEASED_PARTITIONS | waits for other members                    | take what has become free    |
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.groups.consumer.model import CurrentAssignment, MemberState
from pyclient.errors import FencedMemberEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set
    from uuid import UUID

    from pyclient.broker_embedded.groups.consumer.model import Assigned, Target

    IsFree = Callable[[UUID, int], bool]

NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


def reconcile(
    current: CurrentAssignment,
    *,
    target: Target,
    target_epoch: int,
    owned: Target | None,
    subscribed: Set[UUID],
    subscription_changed: bool,
    is_free: IsFree,
) -> CurrentAssignment:
    """Where the member stands after this heartbeat; the same value if nothing changes.

    `owned` is what the member says it has (None: it did not say), `subscribed` the topics it reads now, and `is_free`
    tells whether nobody else has a partition.
    """
    step = _Step(current, target, target_epoch, owned, subscribed, is_free)
    if current.is_reconciled_to(target_epoch) and not subscription_changed:
        return current
    match current.state:
        case MemberState.STABLE:
            if current.epoch != target_epoch:
                return step.towards_target(current.epoch)
            return step.drop_unsubscribed()
        case MemberState.UNREVOKED_PARTITIONS:
            if step.still_has(current.revoking):
                return step.drop_unsubscribed() if subscription_changed else current
            return step.towards_target(min(current.epoch + 1, target_epoch))
        case MemberState.UNRELEASED_PARTITIONS:
            return step.towards_target(current.epoch)
        case _:  # a later release wrote a state that is not known here: the member starts again with nothing
            if owned is None or owned:
                raise FencedMemberEpoch("the member's state is not known here: it has to give up all and join again")
            return step.towards_target(target_epoch)


class _Step:
    """One computation; nothing of it stays."""

    def __init__(
        self,
        current: CurrentAssignment,
        target: Target,
        target_epoch: int,
        owned: Target | None,
        subscribed: Set[UUID],
        is_free: IsFree,
    ) -> None:
        self._current = current
        self._target = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
        self._target_epoch = target_epoch
        self._owned = owned
        self._subscribed = subscribed
        self._is_free = is_free

    def still_has(self, revoking: Assigned) -> bool:
        """Whether the member may still have one of these; it has until it says what it has, without them."""
        if self._owned is None:
            return True
        return any(not partitions.isdisjoint(revoking.get(topic, NOTHING)) for topic, partitions in self._owned.items())

    def towards_target(self, epoch: int) -> CurrentAssignment:
        """Keep what current and target share; revoke the rest, or if there is nothing to revoke take what is free."""
        kept, revoking = self._split()
        if revoking and self.still_has(revoking):
            return self._at(epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
        wanted, held_back = self._wanted(kept)
        state = MemberState.UNRELEASED_PARTITIONS if held_back else MemberState.STABLE
        return self._at(self._target_epoch, state, _merged(kept, wanted), {})

    def _split(self) -> tuple[dict[UUID, dict[int, int]], dict[UUID, dict[int, int]]]:
        kept: dict[UUID, dict[int, int]] = {}
        revoking: dict[UUID, dict[int, int]] = {}
        for topic_id, partitions in self._current.assigned.items():
            target = self._target.get(topic_id, frozenset())
            for partition, epoch in partitions.items():
                side = kept if partition in target else revoking
                side.setdefault(topic_id, {})[partition] = epoch
        return kept, revoking

    def _wanted(self, kept: Assigned) -> tuple[dict[UUID, dict[int, int]], bool]:
        """The partitions of the target that can be taken now, and whether there are others."""
        wanted: dict[UUID, dict[int, int]] = {}
        held_back = False
        for topic_id, partitions in self._target.items():
            own = self._current.revoking.get(topic_id, NOTHING)
            for partition in partitions - set(kept.get(topic_id, ())):
                if partition in own or self._is_free(topic_id, partition):
                    wanted.setdefault(topic_id, {})[partition] = self._target_epoch
                else:
                    held_back = True
        return wanted, held_back

    def _at(self, epoch: int, state: MemberState, assigned: Assigned, revoking: Assigned) -> CurrentAssignment:
        return CurrentAssignment(
            epoch=epoch, previous_epoch=self._current.epoch, state=state, assigned=assigned, revoking=revoking
        )

    def drop_unsubscribed(self) -> CurrentAssignment:
        """The member has stopped reading topics before there is a new target: it gives those up in its epoch."""
        current = self._current
        gone = {topic: partitions for topic, partitions in current.assigned.items() if topic not in self._subscribed}
        if not gone:
            return current
        kept = {topic: partitions for topic, partitions in current.assigned.items() if topic not in gone}
        revoking = _merged(current.revoking, gone)
        if not self.still_has(revoking):
            return replace(current, assigned=kept)
        return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)


def _merged(one: Assigned, other: Assigned) -> Assigned:
    return {topic: {**one.get(topic, NOTHING), **other.get(topic, NOTHING)} for topic in {**one, **other}}
