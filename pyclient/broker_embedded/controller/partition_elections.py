"""Leader elections, and the record of a partition's change: clean, unclean, preferred, eligible replicas (KIP-966).

Pure. A change states what the caller wants (another ISR, other replicas, a kind of election); `PartitionChange.record`
completes a reassignment whose replicas are in sync, elects a leader if the present one is not valid any more, and
returns the record with the fields that differ.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.broker_embedded.controller import reassignment
from pyclient.broker_embedded.controller.image import NO_LEADER, NO_LEADER_CHANGE, RECOVERING
from pyclient.protocol.messages.metadata_log import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from uuid import UUID

    from pyclient.broker_embedded.controller.image import PartitionImage

DIRECTORIES_SINCE: Final = 17
"""The metadata.version (3.7-IV2) from which partitions name log directories."""

_NO_EPOCH_ON_SHRINK_SINCE: Final = 12
"""The metadata.version (3.6-IV0) from which a smaller ISR needs no new leader epoch."""

_NO_CHANGE: Final = -1


class Election(Enum):
    """The kind of an election."""

    PREFERRED = "the first replica if it is in sync, else as `ONLINE`"
    ONLINE = "the present leader if it is valid, else the first replica that is in sync"
    UNCLEAN = "as `ONLINE`, else any live replica: records may be lost"


class Elected(NamedTuple):
    """The outcome of an election; -1 if no replica can lead. `unclean` if committed records may be lost."""

    leader: int
    unclean: bool


class ElectionRules(NamedTuple):
    """The rules of an election that do not depend on the partition.

    `acceptable` returns True for a broker that is alive and may lead. With `elr` the replicas that leave an ISR below
    `min_isr` stay eligible as leaders. `level` is the metadata.version. `directory` returns the log directory of a new
    replica on a broker.
    """

    acceptable: Callable[[int], bool]
    min_isr: int
    elr: bool
    level: int
    directory: Callable[[int], UUID]


class PartitionChange:
    """A wanted change of a partition: its fields start as they are now, and the caller sets those to change."""

    def __init__(self, topic_id: UUID, partition: PartitionImage, rules: ElectionRules) -> None:
        self._topic_id = topic_id
        self._before = partition
        self._rules = rules
        self.election = Election.ONLINE
        self.isr: Sequence[int] = partition.isr
        self.replicas: Sequence[int] = partition.replicas
        self.adding: Sequence[int] = partition.adding
        self.removing: Sequence[int] = partition.removing
        self.leader_recovery_state = partition.leader_recovery_state
        self.unclean_shutdown: Collection[int] = ()
        """Replicas that may have lost records: they cannot be eligible leaders."""
        self.needs_new_epoch = False
        """The leader gets a new epoch also if it stays, so that it refuses fetches which are on their way."""
        known = len(partition.directories) == len(partition.replicas)
        self.directories: dict[int, UUID] = (
            dict(zip(partition.replicas, partition.directories, strict=True)) if known else {}
        )

    def record(self) -> PartitionChangeRecord | None:
        """Return the record of the change, None if it changes nothing."""
        before, rules = self._before, self._rules
        done = reassignment.completed(self.replicas, self.adding, self.removing, self.isr)
        replicas, isr = (self.replicas, self.isr) if done is None else done
        adding, removing = (self.adding, self.removing) if done is None else ([], [])
        elr = self._eligible(replicas, isr)
        elected = self._elect(replicas, isr, elr)
        leader, recovery = NO_LEADER_CHANGE, _NO_CHANGE
        if elected.leader != before.leader:
            leader = elected.leader
            if elected.unclean or leader in elr:
                isr = [leader]
                ended = elected.unclean or len(isr) >= rules.min_isr
                elr = [] if ended else [replica for replica in elr if replica != leader]
            if elected.unclean and before.leader_recovery_state != RECOVERING:
                recovery = RECOVERING
        if leader == NO_LEADER_CHANGE and self.needs_new_epoch and before.leader != NO_LEADER:
            leader = before.leader
        if leader == NO_LEADER_CHANGE and not set(before.replicas) <= set(replicas):
            leader = before.leader  # brokers that lost their replica are distinguished by the leader epoch
        new_isr = self._new_isr(isr)
        if (
            leader == NO_LEADER_CHANGE
            and new_isr is not None
            and rules.level < _NO_EPOCH_ON_SHRINK_SINCE
            and not set(before.isr) <= set(new_isr)
        ):
            leader = before.leader
        if self.leader_recovery_state != before.leader_recovery_state:
            recovery = self.leader_recovery_state
        record = PartitionChangeRecord(
            partition_id=before.partition,
            topic_id=self._topic_id,
            isr=new_isr,
            leader=leader,
            replicas=_changed(replicas, before.replicas),
            removing_replicas=_changed(removing, before.removing),
            adding_replicas=_changed(adding, before.adding),
            leader_recovery_state=recovery,
            directories=self._new_directories(replicas),
            eligible_leader_replicas=_changed(elr, before.elr),
            last_known_elr=self._new_last_known(leader),
        )
        unchanged = PartitionChangeRecord(partition_id=before.partition, topic_id=self._topic_id)
        return None if record == unchanged else record

    # ---- elections

    def _elect(self, replicas: Sequence[int], isr: Sequence[int], elr: Sequence[int]) -> Elected:
        """Return the leader. The present one stays as long as it is valid."""
        candidates = [self._before.leader, *replicas]
        if self.election is Election.PREFERRED:
            candidates = [*replicas[:1], *candidates]
        acceptable = self._rules.acceptable
        for candidate in candidates:
            in_sync = candidate in isr or (not isr and candidate in elr)
            if in_sync and acceptable(candidate):
                return Elected(candidate, False)
        if self._rules.elr and not isr and not elr and len(self._before.last_known_elr) == 1:
            last_known = self._before.last_known_elr[0]
            if last_known in replicas and acceptable(last_known):
                return Elected(last_known, True)
        if self.election is Election.UNCLEAN:
            for candidate in replicas:
                if acceptable(candidate):
                    return Elected(candidate, True)
        return Elected(NO_LEADER, False)

    def _eligible(self, replicas: Sequence[int], isr: Sequence[int]) -> list[int]:
        """Return the eligible leader replicas: those that left the ISR since it is below min.insync.replicas.

        A broker that is no longer a replica, as after a cancelled reassignment, is not eligible.
        """
        if not self._rules.elr or len(isr) >= self._rules.min_isr:
            return []
        left = dict.fromkeys((*self._before.elr, *self._before.isr))
        out = {*isr, *self.unclean_shutdown}
        return [replica for replica in left if replica in replicas and replica not in out]

    # ---- fields of the record

    def _new_isr(self, isr: Sequence[int]) -> list[int] | None:
        """Return the ISR if it changes. Without eligible leader replicas the last member always stays in it."""
        return _changed(isr, self._before.isr) if isr or self._rules.elr else None

    def _new_directories(self, replicas: Sequence[int]) -> list[UUID] | None:
        if not replicas or self._rules.level < DIRECTORIES_SINCE:
            return None
        known, default = self.directories, self._rules.directory
        directories = [known[replica] if replica in known else default(replica) for replica in replicas]
        return None if directories == self._before.directories else directories

    def _new_last_known(self, leader: int) -> list[int] | None:
        """Return the last known leader when the partition loses its leader, and none when it has one.

        Kafka's controller does so when the ISR becomes empty. That may be later: the last one in sync may not lead
        while its directory is lost, and the leader before it would be forgotten.
        """
        before = self._before
        after = before.leader if leader == NO_LEADER_CHANGE else leader
        if self._rules.elr and after == NO_LEADER != before.leader:
            return _changed([before.leader], before.last_known_elr)
        cleared = after != NO_LEADER or not self._rules.elr
        return [] if cleared and before.last_known_elr else None


def _changed(after: Sequence[int], before: Sequence[int]) -> list[int] | None:
    return None if list(after) == list(before) else list(after)
