"""Reconcile one member with its target assignment: first revoke partitions, then assign the free ones.

| state                 | the member                                 | next                         |
|-----------------------|--------------------------------------------|------------------------------|
| STABLE                | has an older epoch than the target         | revoke, or assign free ones  |
| UNREVOKED_PARTITIONS  | still owns revoked partitions              | unchanged                    |
| UNREVOKED_PARTITIONS  | has revoked all of them                    | epoch + 1, then as above     |
| UNRELEASED_PARTITIONS | waits for other members                    | assign what has become free  |
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

EMPTY: Final[Mapping[int, int]] = MappingProxyType({})


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
    """Return the member's assignment after this heartbeat; the same object if nothing changes.

    `owned` are the partitions that the member reports (None: not reported), `subscribed` the topics it subscribes to,
    and `is_free` returns True for a partition that no member owns.
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
            if step.still_owns(current.revoking):
                return step.drop_unsubscribed() if subscription_changed else current
            return step.towards_target(min(current.epoch + 1, target_epoch))
        case MemberState.UNRELEASED_PARTITIONS:
            return step.towards_target(current.epoch)
        case _:  # a state written by a later release: the member has to start with no partitions
            if owned is None or owned:
                raise FencedMemberEpoch("unknown member state: the member has to abandon all partitions and rejoin")
            return step.towards_target(target_epoch)


class _Step:
    """The inputs of one reconciliation."""

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

    def still_owns(self, revoking: Assigned) -> bool:
        """Return True if the member may still own one of these partitions, as long as it does not report otherwise."""
        if self._owned is None:
            return True
        return any(not partitions.isdisjoint(revoking.get(topic, EMPTY)) for topic, partitions in self._owned.items())

    def towards_target(self, epoch: int) -> CurrentAssignment:
        """Keep the partitions of the target and revoke the others; if none is to be revoked, assign the free ones."""
        kept, revoking = self._split()
        if revoking and self.still_owns(revoking):
            return self._assignment(epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
        assignable, has_unreleased = self._assignable(kept)
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return self._assignment(self._target_epoch, state, _merged(kept, assignable), {})

    def _split(self) -> tuple[dict[UUID, dict[int, int]], dict[UUID, dict[int, int]]]:
        kept: dict[UUID, dict[int, int]] = {}
        revoking: dict[UUID, dict[int, int]] = {}
        for topic_id, partitions in self._current.assigned.items():
            target = self._target.get(topic_id, frozenset())
            for partition, epoch in partitions.items():
                destination = kept if partition in target else revoking
                destination.setdefault(topic_id, {})[partition] = epoch
        return kept, revoking

    def _assignable(self, kept: Assigned) -> tuple[dict[UUID, dict[int, int]], bool]:
        """Return the target's partitions that are free, and True if others are not released yet."""
        assignable: dict[UUID, dict[int, int]] = {}
        has_unreleased = False
        for topic_id, partitions in self._target.items():
            own = self._current.revoking.get(topic_id, EMPTY)
            for partition in partitions - set(kept.get(topic_id, ())):
                if partition in own or self._is_free(topic_id, partition):
                    assignable.setdefault(topic_id, {})[partition] = self._target_epoch
                else:
                    has_unreleased = True
        return assignable, has_unreleased

    def _assignment(self, epoch: int, state: MemberState, assigned: Assigned, revoking: Assigned) -> CurrentAssignment:
        return CurrentAssignment(
            epoch=epoch, previous_epoch=self._current.epoch, state=state, assigned=assigned, revoking=revoking
        )

    def drop_unsubscribed(self) -> CurrentAssignment:
        """Revoke partitions of unsubscribed topics in the current epoch, before there is a new target."""
        current = self._current
        revoked = {topic: partitions for topic, partitions in current.assigned.items() if topic not in self._subscribed}
        if not revoked:
            return current
        kept = {topic: partitions for topic, partitions in current.assigned.items() if topic not in revoked}
        revoking = _merged(current.revoking, revoked)
        if not self.still_owns(revoking):
            return replace(current, assigned=kept)
        return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)


def _merged(one: Assigned, other: Assigned) -> Assigned:
    return {topic: {**one.get(topic, EMPTY), **other.get(topic, EMPTY)} for topic in {**one, **other}}
