"""Replicas with damaged segments: they leave the ISR, are truncated before the damage, and fetched again.

Kafka has no such repair. Everything goes by its requests, so that any controller and any other replicas take part:
AssignReplicasToDirs with the id of a lost directory takes a replica out of the ISR and its leadership away, as if its
disk had failed (KIP-858); with the id of its real directory it may lead again. Our controllers begin a new leader epoch
when a directory is lost, so that no fetch from before the truncation counts; with Kafka's one may bring the replica
into the ISR, where it cannot lead until it has everything again.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.controller.replication_control import LOST
from pyclient.broker_embedded.log.damage import first_damage, save_copy
from pyclient.broker_embedded.replication.directory_assignment import assign_directory

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from uuid import UUID

    from pyclient.broker_embedded.controller.image import PartitionImage
    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel
    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")

_AGAIN: Final = 0.1
"""Seconds after which a step that failed is tried again."""


class Step(Enum):
    """The steps of the repair of a damaged replica."""

    WAIT = "no other replica has the records: nothing can be done until the metadata change"
    LEAVE = "ask the controller to take it out of the in-sync replicas, and leadership away"
    TRUNCATE = "remove everything from the damage on, then fetch it from the leader"
    CATCH_UP = "it is in the in-sync replicas without all records: check again in a moment"
    RETURN = "it has all records again: report to the controller that it may lead"
    END = "it is repaired"


def next_step(node_id: int, state: PartitionImage, *, is_truncated: bool, has_all: bool) -> Step:
    """Return the next step of the repair of a node's replica; `has_all` is True if it has all committed records.

    A replica is truncated only when it cannot be elected and no committed record counts on it: it is out of the ISR,
    and the lost directory keeps it from the eligible leader replicas. The last one in sync that was not truncated
    since the node started has all records, damaged or not: it leads.
    """
    is_lost, is_member = state.directory_of(node_id) == LOST, node_id in state.isr
    has_others = bool(set(state.isr) - {node_id})
    if is_truncated and (not is_lost or not is_member):
        return Step.WAIT if is_lost else Step.END
    if is_truncated and has_all:
        return Step.RETURN
    if is_truncated:  # a fetch from before the truncation came late, to a leader that has no new epoch since then
        return Step.CATCH_UP if state.leader >= 0 else Step.LEAVE
    if is_lost and is_member and not has_others:
        return Step.RETURN
    if not is_lost or is_member:
        return Step.LEAVE if has_others else Step.WAIT
    return Step.TRUNCATE if state.leader not in (-1, node_id) else Step.WAIT


class _Repair:
    """The repair of one replica.

    `is_busy`: a step has begun and is not over. `end` is the log's end before the truncation.
    """

    __slots__ = ("end", "hosted", "is_busy", "is_truncated", "opened")

    def __init__(self, hosted: HostedPartition, opened: UnifiedLog) -> None:
        self.hosted = hosted
        self.opened = opened
        self.end = 0
        self.is_truncated = False
        self.is_busy = False


class DamagedReplicas:
    """The repairs on a node. While a replica is repaired, and until it is truncated, it fetches nothing.

    `refetch` is called with a replica that has been truncated. `is_in_sync` returns True for one that has fetched
    everything that is committed since then. `run_in_background` runs steps between requests, by a name.
    """

    def __init__(
        self,
        env: NodeEnvironment,
        logs: LogManager,
        to_controller: ControllerChannel,
        refetch: Callable[[HostedPartition], object],
        is_in_sync: Callable[[HostedPartition], bool],
        run_in_background: Callable[[str, IncrementalTask[object]], None],
    ) -> None:
        self._env = env
        self._logs = logs
        self._run_in_background = run_in_background
        self._to_controller = to_controller
        self._refetch = refetch
        self._is_in_sync = is_in_sync
        self._repairs: dict[TopicPartition, _Repair] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<DamagedReplicas {list(self._repairs)}>"

    def may_fetch(self, hosted: HostedPartition) -> bool:
        """Return False for a replica that is not truncated yet, also if its repair is to be resumed after a restart.

        By a fetch from its end it would join the in-sync replicas during the truncation.
        """
        repair, state = self._repairs.get(hosted.topic_partition), self._env.image.partition(*hosted.topic_partition)
        if repair is None:
            return state is None or state.directory_of(self._env.node_id) != LOST
        return repair.is_truncated

    def found(self, hosted: HostedPartition, error: Exception) -> bool:
        """Begin the repair of a replica. Return True if another one is in sync, so that it can be repaired."""
        opened, state = hosted.log, self._env.image.partition(*hosted.topic_partition)
        if opened is None or state is None or state.directory_of(self._env.node_id) is None:
            return False
        if hosted.topic_partition not in self._repairs:
            log.error("%s: this replica is damaged or cannot be used: %s", hosted.topic_partition, error)
            self._repairs[hosted.topic_partition] = _Repair(hosted, opened)
            self.check(hosted, state)
        return bool(set(state.isr) - {self._env.node_id})

    def check(self, hosted: HostedPartition, state: PartitionImage) -> None:
        """Take the next step, if the metadata of a partition call for one."""
        repair = self._repairs.get(hosted.topic_partition)
        if repair is None and hosted.log is not None and state.directory_of(self._env.node_id) == LOST:
            # the node was restarted meanwhile
            log.warning("%s: the repair of this replica is resumed", hosted.topic_partition)
            repair = self._repairs[hosted.topic_partition] = _Repair(hosted, hosted.log)
        if repair is not None and not repair.is_busy and not self._closed:
            self._take(repair, self._next(repair, state))

    def forget(self, hosted: HostedPartition) -> None:
        """End the repair: the replica is no longer on this node."""
        self._repairs.pop(hosted.topic_partition, None)

    def close(self) -> None:
        """Take no more steps."""
        self._closed = True
        self._repairs.clear()

    def _next(self, repair: _Repair, state: PartitionImage) -> Step:
        # Nothing beyond the former end was committed without fetches since the truncation. But that end may have been
        # in records which were never committed, and never come back: then the leader's answer shows that all is here.
        has_all = repair.opened.end_offset >= repair.end or self._is_in_sync(repair.hosted)
        return next_step(self._env.node_id, state, is_truncated=repair.is_truncated, has_all=has_all)

    def _take(self, repair: _Repair, step: Step) -> None:
        hosted = repair.hosted
        if step is Step.LEAVE:
            self._assign(repair, LOST)
        elif step is Step.TRUNCATE and repair.opened.failure is None:  # else the next start of the node goes on
            repair.is_busy = True
            self._run_in_background(f"repair of {hosted.topic_partition}", self._truncate(repair))
        elif step is Step.CATCH_UP:
            repair.is_busy = True
            self._check_later(repair)
        elif step is Step.RETURN:
            self._assign(repair, self._logs.directories.homes[hosted.topic_partition].directory_id)
        elif step is Step.END:
            text = "%s: this replica is repaired up to %d, and fetches on"
            log.info(text, hosted.topic_partition, repair.opened.end_offset)
            del self._repairs[hosted.topic_partition]

    def _assign(self, repair: _Repair, directory: UUID) -> None:
        repair.is_busy = True
        sent = assign_directory(self._env, self._to_controller, repair.hosted.topic_partition, directory)

        def answered(done: Future[None]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            if error is None:
                repair.is_busy = False  # `check` follows with the change of the metadata
            else:
                text = "%s: the controller did not take the state of this replica: %s"
                log.warning(text, repair.hosted.topic_partition, error)
            self._check_later(repair)

        sent.add_done_callback(answered)

    def _truncate(self, repair: _Repair) -> IncrementalTask[None]:
        hosted, opened, env = repair.hosted, repair.opened, self._env
        try:
            repair.end = max(repair.end, opened.end_offset)
            damage = yield from first_damage(opened)
            if damage is not None:
                kept = yield from save_copy(damage, env.fs)
                state = env.image.partition(*hosted.topic_partition)
                if opened.closed or state is None or self._next(repair, state) is not Step.TRUNCATE:
                    return
                log.error(
                    "%s: %s; it ends at %d now and is fetched again from broker %d; the damaged bytes are in %s",
                    hosted.topic_partition,
                    damage.error,
                    damage.offset,
                    state.leader,
                    kept,
                )
                opened.truncate_to(damage.offset)
                self._logs.flush_checkpoints()  # the recovery point may be beyond the new end
            repair.is_truncated = True
            if self._repairs.get(hosted.topic_partition) is repair:
                self._refetch(hosted)
        except (OSError, errors.KafkaError) as error:
            log.error(
                "%s: the damaged replica cannot be truncated, it is tried again: %s", hosted.topic_partition, error
            )
        finally:
            self._check_later(repair)

    def _check_later(self, repair: _Repair) -> None:
        """Check again in a moment, unless a change of the metadata causes a check before."""

        def again() -> None:
            repair.is_busy = False
            state = self._env.image.partition(*repair.hosted.topic_partition)
            if state is not None and self._repairs.get(repair.hosted.topic_partition) is repair:
                self.check(repair.hosted, state)

        if not self._closed:
            self._env.schedule(_AGAIN, again)
