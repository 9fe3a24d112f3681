"""One Fetch request: its partitions are read, again after appends, until there is enough data for a response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pyclient import errors
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.log.file_records import DamagedSegment
from pyclient.broker_embedded.replication.fetch_sessions import TOPIC_IDS_SINCE
from pyclient.broker_embedded.replication.partition import FollowerFetch
from pyclient.broker_embedded.replication.partitions import NO_EPOCH
from pyclient.broker_embedded.replication.replication_quota import is_listed
from pyclient.net.file_region import release_regions
from pyclient.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.log_reader import FetchDataInfo, FetchIsolation
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.replication.fetch_sessions import CachedPartition
    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse

READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (0, READ_COMMITTED)
_HAS_DIVERGING_EPOCH: Final = 12
"""The first version whose response can report where the logs diverge; a session may continue in an older one."""
_READS_FOLLOWERS: Final = 11
"""The first version in which a consumer may read from a follower (KIP-392)."""
_NAMES_LEADER: Final = 16  # from this version on, a response that is not the leader's names the leader (KIP-951)

Answers = list[tuple["CachedPartition", PartitionData]]
_A_STEP: Final = 16  # partitions
_MOST_COPIED: Final = 1 << 20
"""Bytes of one response that are read, instead of sent from their files, while responses hold too many files open."""


class LeaderLog(Protocol):
    """The leader's log, as a comparison with a client's needs it."""

    @property
    def topic(self) -> str:
        """The name of its topic."""

    @property
    def partition(self) -> int:
        """Its number in the topic."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        """Return (largest known epoch not above `epoch`, its end offset); (-1, -1) if unknown."""


class Reading:
    """A Fetch request that is answered with at most `most` bytes; `respond` makes the response from what was read.

    Partitions are read in the order of `wanted`, and the first one with data gives at least one batch whatever the
    limits are. Partitions that do not exist come last in the response. One whose log is not open yet is waited for like
    one without data; when the wait is over, the client gets a retriable error. A follower reads up to the end of the
    log, and its fetch offsets show how far it is.
    """

    def __init__(
        self,
        request: FetchRequest,
        wanted: Iterable[CachedPartition],
        services: BrokerServices,
        *,
        version: int,
        most: int,
        respond: Callable[[Answers], IncrementalTask[FetchResponse]],
        endpoints: Callable[[], Iterable[tuple[int, str, int, str | None]]] = lambda: (),
    ) -> None:
        self._wanted = wanted
        self._services = services
        self._logs = services.logs
        self._by_id = version >= TOPIC_IDS_SINCE
        self._checks_divergence = version >= _HAS_DIVERGING_EPOCH
        self._names_leader = version >= _NAMES_LEADER
        self._respond = respond
        self._endpoints = endpoints
        self._replica = max(request.replica_id, request.replica_state.replica_id)
        self._replica_epoch = request.replica_state.replica_epoch
        self._rack = request.rack_id
        self._any_replica = version >= _READS_FOLLOWERS and services.replicas is not None
        self._selects_replica = (
            self._any_replica and services.configs.current.text("replica.selector.class") is not None
        )
        self._isolation: Final[FetchIsolation] = (
            "log_end"
            if self._replica >= 0
            else "committed"
            if request.isolation_level == READ_COMMITTED
            else "uncommitted"
        )
        self._asked_bytes = request.max_bytes
        self._max_bytes = min(max(request.max_bytes, 0), most)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._size = 0
        self._copied = 0
        self._listed_size = 0
        """The bytes of partitions in their topic's `leader.replication.throttled.replicas`."""
        self._must_answer = False
        self.is_behind = False
        """True if there are a high watermark or a start of the log that the follower does not know yet."""
        self._found: dict[UnifiedLog, tuple[CachedPartition, int]] = {}
        self._unopened: set[TopicPartition] = set()
        self._leaders: set[int] = set()
        self._has_noted = False
        """True after the first attempt, which records a follower's fetch offsets."""

    @property
    def logs(self) -> Iterable[UnifiedLog]:
        """Return the logs whose growth may complete the fetch."""
        return self._found

    def when_opened(self, callback: Callable[[], object]) -> None:
        """Call `callback` for each log that the last attempt did not find open, when it is; then try again."""
        for partition in self._unopened:
            self._logs.recovery_queue.on_completion(partition, callback)

    def may_be_enough(self, grown: Collection[UnifiedLog]) -> bool:
        """Return True if an attempt may succeed. Reads the grown logs only: fetches of many partitions wake often."""
        sent = [log for log in grown if not self._is_throttled(log)]
        if grown and not sent:
            return False
        if self._replica >= 0 and not any(self._has_more(log) for log in sent):
            return False
        if self._min_bytes <= 1:
            return True
        for log in sent:
            known = self._found.get(log)
            if known is None:
                return True  # not found by the last attempt
            wanted, before = known
            request = wanted.request
            try:
                read = log.read(request.fetch_offset, request.partition_max_bytes, isolation=self._isolation)
            except errors.BrokerError:
                return True  # the attempt will report it to the client
            release_regions(read.parts)
            if read.more:
                return True
            self._found[log] = wanted, read.size
            self._size += read.size - before
        return self._size >= self._min_bytes

    def _has_more(self, log: UnifiedLog) -> bool:
        """Return False if a follower that waits for records would get none: only the offsets of the log have moved."""
        known = self._found.get(log)
        hosted = self._services.partitions.hosted(log.topic, log.partition)
        if known is None or hosted is None or hosted.log is not log or not hosted.partition.leads:
            return True
        request = known[0].request
        if log.end_offset != request.fetch_offset or hosted.partition.leader_epoch != request.current_leader_epoch:
            return True
        self._compare(request, log, self._is_throttled(log))
        return False

    def _compare(self, request: FetchPartition, log: UnifiedLog, is_throttled: bool) -> None:
        """Note whether there are offsets that the follower does not know: it learns of them soon (KIP-1166).

        A throttled follower lags anyway, and would get one empty answer after the other.
        """
        if request.high_watermark < log.high_watermark and not is_throttled:
            self.is_behind = True
        if 0 <= request.log_start_offset < log.start_offset:
            self.is_behind = True

    def attempt(self, last: bool) -> IncrementalTask[FetchResponse | None]:
        """Return the response; None if there is too little data and this is not the `last` attempt."""
        answers: Answers = []
        try:
            return (yield from self._attempt(last, answers))
        except BaseException:
            _release(answers)
            raise

    def _attempt(self, last: bool, answers: Answers) -> IncrementalTask[FetchResponse | None]:
        self._size, self._must_answer, self.is_behind = 0, False, False
        self._copied = self._listed_size = 0
        self._found.clear()
        self._unopened.clear()
        self._leaders.clear()
        missing: Answers = []
        for number, wanted in enumerate(self._wanted, 1):
            log = self._log_of(wanted, missing)
            if log is not None:
                answers.append((wanted, self._read(log, wanted)))
            if not number % _A_STEP:
                yield None
        self._has_noted = True
        nothing_to_wait_for = not self._found and not self._unopened
        if last or self._must_answer or nothing_to_wait_for or self._size >= self._min_bytes:
            response = yield from self._respond(answers + missing)
            if self._listed_size and self._services.replicas is not None:
                self._services.replicas.leader_quota.record(self._listed_size, self._services.clock.monotonic())
            if self._leaders:
                response.node_endpoints = [
                    NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                    for node_id, host, port, rack in self._endpoints()
                    if node_id in self._leaders
                ]
            return response
        _release(answers)
        return None

    def _log_of(self, wanted: CachedPartition, missing: Answers) -> UnifiedLog | None:
        topic = wanted.topic
        try:
            if self._by_id:
                known = self._services.image.topics_by_id.get(wanted.topic_id)
                if known is None:
                    raise errors.UnknownTopicId(f"there is no topic with id {wanted.topic_id}")
                topic = known.name
            if self._logs.unopened:
                self._open(TopicPartition(topic, wanted.partition))
            epoch = max(wanted.request.current_leader_epoch, NO_EPOCH)
            if self._replica >= 0:
                return self._for_follower(topic, wanted, epoch)
            if self._any_replica:
                return self._services.partitions.readable(topic, wanted.partition, epoch)
            return self._services.partitions.leader(topic, wanted.partition, epoch)[0]
        except Exception as error:  # every failure becomes the result of this partition
            answer = _failed(topic, wanted.partition, error)
            if isinstance(error, errors.UnknownTopicOrPartition | errors.UnknownTopicId):
                answer.aborted_transactions = []
            if isinstance(error, errors.NotLeaderOrFollower | errors.FencedLeaderEpoch):
                if self._names_leader:
                    answer.current_leader = self._leader_of(topic, wanted.partition)
                if (
                    self._services.replicas is not None
                    and TopicPartition(topic, wanted.partition) not in self._unopened
                ):
                    self._must_answer = True  # the client has to go to another node
            missing.append((wanted, answer))
            return None

    def _for_follower(self, topic: str, wanted: CachedPartition, epoch: int) -> UnifiedLog:
        """Return the log for a follower, whose fetch offset shows how far it is unless the logs diverge."""
        log = self._services.partitions.leader(topic, wanted.partition, epoch)[0]
        hosted = self._services.partitions.hosted(topic, wanted.partition)
        if hosted is None:
            raise errors.NotLeaderOrFollower(f"broker {self._replica} is not a replica of {topic}-{wanted.partition}")
        hosted.partition.check_follower(self._follower_fetch(wanted), epoch)
        return log

    def _follower_fetch(self, wanted: CachedPartition) -> FollowerFetch:
        request = wanted.request
        return FollowerFetch(self._replica, request.fetch_offset, request.log_start_offset, self._replica_epoch)

    def _leader_of(self, topic: str, index: int) -> LeaderIdAndEpoch:
        """Return the leader, for a client with a wrong node or the epoch of an earlier leader (KIP-951)."""
        partition = self._services.image.partition(topic, index)
        if partition is None:
            return LeaderIdAndEpoch()
        if self._services.replicas is not None:
            self._leaders.add(partition.leader)
        return LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)

    def _open(self, partition: TopicPartition) -> None:
        if partition in self._logs.unopened and not self._logs.recovery_queue.request(partition):
            self._unopened.add(partition)

    def _read(self, log: UnifiedLog, wanted: CachedPartition) -> PartitionData:
        request = wanted.request
        try:
            if min(self._asked_bytes, request.partition_max_bytes) < 0:
                raise errors.InvalidRequest("the partition_max_bytes of a Fetch request is negative")
            if self._checks_divergence and request.last_fetched_epoch >= 0:
                diverging = self._divergence(log, wanted)
                if diverging is not None:
                    self._must_answer = True
                    return _without_records(wanted.partition, log, diverging)
            hosted = self._services.partitions.hosted(log.topic, log.partition)
            if hosted is not None:
                preferred = self._note_replicated(hosted, log, wanted)
                if preferred is not None:
                    return preferred
            if self._is_throttled(log) and log.start_offset <= request.fetch_offset <= log.end_offset:
                self._found[log] = wanted, 0
                return _without_records(wanted.partition, log)
            read = self._read_log(log, request)
        except Exception as error:  # every failure becomes the result of this partition
            self._must_answer = True
            if isinstance(error, DamagedSegment) and self._is_repaired(log, error):
                return refused(wanted.partition, errors.KafkaStorageError.code)  # the client tries another replica
            return _failed(log.topic, wanted.partition, error)
        if read.more:  # a closed segment ends here: the data that the client waits for is in the next one
            self._must_answer = True
        self._found[log] = wanted, read.size
        self._size += read.size
        if self._replica >= 0 and self._is_listed(log):
            self._listed_size += read.size
        return _succeeded(wanted.partition, read, committed=self._isolation == "committed")

    def _read_log(self, log: UnifiedLog, request: FetchPartition) -> FetchDataInfo:
        """Read from a log: up to damage that cannot be repaired, which the fetch from there on reports."""
        most = min(self._max_bytes - self._size, request.partition_max_bytes)
        try:
            return self._read_up_to(max(0, most), log, request)
        except DamagedSegment as error:
            if not error.intact or self._is_repaired(log, error):
                raise
            return self._read_up_to(error.intact, log, request)

    def _read_up_to(self, most: int, log: UnifiedLog, request: FetchPartition) -> FetchDataInfo:
        copied = self._services.fs.few_descriptors_left
        read = log.read(
            request.fetch_offset,
            max(0, min(most, _MOST_COPIED - self._copied)) if copied else most,
            min_one_batch=self._size == 0,
            isolation=self._isolation,
            copied=copied,
        )
        self._copied += read.size if copied else 0
        return read

    def _is_repaired(self, log: UnifiedLog, error: DamagedSegment) -> bool:
        """Return True if the damaged replica is repaired from another one."""
        replicas = self._services.replicas
        return replicas is not None and replicas.report_damage(log.topic, log.partition, error)

    def _note_replicated(
        self, hosted: HostedPartition, log: UnifiedLog, wanted: CachedPartition
    ) -> PartitionData | None:
        """Note the fetch of a follower. Return the answer that sends a consumer to a replica in its rack, or None."""
        replicas, request = self._services.replicas, wanted.request
        assert replicas is not None, "there are replicated partitions"
        if self._replica >= 0:
            is_throttled = self._is_throttled(log)
            if not self._has_noted and log.start_offset <= request.fetch_offset <= log.end_offset:
                if not is_throttled and hosted.partition.needs_check(self._replica, request.fetch_offset):
                    log.read_bytes(request.fetch_offset, request.partition_max_bytes)
                replicas.follower_fetched(hosted, self._follower_fetch(wanted))
            self._compare(request, log, is_throttled)
            return None
        if not self._selects_replica or not hosted.partition.leads:
            return None
        preferred = replicas.preferred_replica(hosted, self._rack, request.fetch_offset)
        if preferred is None:
            return None
        self._must_answer = True
        answer = _without_records(wanted.partition, log)
        answer.preferred_read_replica = preferred
        return answer

    def _is_throttled(self, log: UnifiedLog) -> bool:
        """Return True if a follower has to wait for this partition: listed, out of sync, and the quota is used up.

        As in Kafka, a follower that is in sync is never slowed down, but what it reads counts.
        """
        if self._replica < 0 or not self._is_listed(log):
            return False
        hosted, replicas = self._services.partitions.hosted(log.topic, log.partition), self._services.replicas
        if hosted is None or replicas is None or self._replica in hosted.partition.isr:
            return False
        return replicas.leader_quota.is_exceeded(self._services.clock.monotonic())

    def _is_listed(self, log: UnifiedLog) -> bool:
        return is_listed(log.config.leader_replication_throttled_replicas, log.partition, self._services.node_id)

    def _divergence(self, log: UnifiedLog, wanted: CachedPartition) -> EpochEndOffset | None:
        partition = self._services.image.partition(log.topic, log.partition)
        return divergence(log, wanted.request, NO_EPOCH if partition is None else partition.leader_epoch)


def divergence(log: LeaderLog, request: FetchPartition, leader_epoch: int) -> EpochEndOffset | None:
    """Return where the client's log diverges from the leader's before its fetch offset, or None (KIP-595).

    Raise `OffsetOutOfRange` if the leader does not know the epoch of the client's last record, or has deleted what
    follows it.
    """
    epoch, end_offset = log.end_offset_for_epoch(request.last_fetched_epoch, leader_epoch)
    if end_offset < 0 or request.fetch_offset < log.start_offset:
        raise errors.OffsetOutOfRange(f"{log.topic}-{log.partition}: epoch {request.last_fetched_epoch} is not known")
    if epoch < request.last_fetched_epoch or end_offset < request.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _release(answers: Answers) -> None:
    """Release the file regions of answers that are not sent."""
    release_regions([answer.records or b"" for _wanted, answer in answers])


def _without_records(partition: int, log: UnifiedLog, diverging: EpochEndOffset | None = None) -> PartitionData:
    """Return an answer without records: the logs diverge, or the client shall read elsewhere or later."""
    return PartitionData(
        partition_index=partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        diverging_epoch=EpochEndOffset() if diverging is None else diverging,
        aborted_transactions=None,
        records=b"",
    )


def _succeeded(partition: int, read: FetchDataInfo, *, committed: bool) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=0,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=(
            [AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in read.aborted or ()]
            if committed
            else None
        ),
        records=read.parts[0] if read.parts else b"",
    )


def _failed(topic: str, partition: int, error: Exception) -> PartitionData:
    answer = refused(partition, code_of(error, f"Fetch of {topic}-{partition}"))
    answer.aborted_transactions = None
    return answer


def refused(partition: int, code: int) -> PartitionData:
    """Return the answer for a partition that was not read."""
    return PartitionData(
        partition_index=partition, error_code=code, high_watermark=-1, aborted_transactions=[], records=b""
    )
