"""Nodes that decide about one replicated partition, with nothing that does I/O: logs in memory, messages as objects.

`HostedPartitions`, `FetcherState` and `DelayedProduce` decide; the test delivers what they send, or does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from pyclient import errors
from pyclient.broker_embedded.log.leader_epoch_cache import UNDEFINED, LeaderEpochFileCache
from pyclient.broker_embedded.replication import delayed_produce, fetcher_state, hosted_partitions
from pyclient.broker_embedded.replication.delayed_produce import Answer, AwaitCommit, Changed, DelayedProduce, Refuse
from pyclient.broker_embedded.replication.fetch_reading import divergence
from pyclient.broker_embedded.replication.fetcher_state import FetcherState
from pyclient.broker_embedded.replication.following import Append, FindOffsets, Following, Truncate
from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition, HostedPartitions
from pyclient.broker_embedded.replication.partition import FollowerFetch, IsrChange
from pyclient.broker_embedded.replication.produce_purgatory import AppendedBatch
from pyclient.broker_embedded.replication.replication_quota import ReplicationQuota
from pyclient.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from pyclient.protocol.messages.produce import PartitionProduceResponse
from pyclient.types import TopicPartition
from tests.broker_embedded.controller.cluster_model import TOPIC, ClusterModel

PARTITION: Final = TopicPartition("t", 0)
KEY: Final = (TOPIC, 0)

Record = tuple[int, str]
"""A leader epoch and a value."""


class MemoryLog:
    """A log in memory: records with their epochs, and the table of epochs that a log on a disk has."""

    topic, partition = PARTITION
    start_offset = 0
    failure: str | None = None
    closed = False

    def __init__(self, min_isr: int) -> None:
        self.records: list[Record] = []
        self.epochs = LeaderEpochFileCache()
        self.high_watermark = 0
        self.config = SimpleNamespace(min_insync_replicas=min_isr)

    @property
    def end_offset(self) -> int:
        return len(self.records)

    @property
    def leader_epoch(self) -> int:
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int = UNDEFINED) -> tuple[int, int]:
        return self.epochs.end_offset(epoch, self.end_offset, leader_epoch)

    def append(self, records: Iterable[Record]) -> None:
        for epoch, value in records:
            self.epochs.assign(epoch, self.end_offset)
            self.records.append((epoch, value))

    def truncate_to(self, offset: int) -> list[Record]:
        """Remove the records from `offset` on, and return them."""
        removed = self.records[offset:]
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)
        self.high_watermark = min(self.high_watermark, offset)
        return removed

    def advance(self, high_watermark: int) -> list[Record]:
        """Commit what comes before an offset, and return what was not committed yet."""
        before = self.high_watermark
        self.high_watermark = max(before, min(high_watermark, self.end_offset))
        return self.records[before : self.high_watermark]


@dataclass(eq=False)
class Request:
    """A Fetch request on its way, with its answer once it was served."""

    node: PureNode
    fetcher: FetcherState
    leader: int
    number: int
    asked: Any
    answer: PartitionData | None = None


@dataclass
class World:
    """The time and the controller that nodes share, and what they do with proposals and the lines that they print."""

    model: ClusterModel
    now: float = 0.0
    propose: Callable[[PureNode, HostedPartition, IsrChange], object] = lambda _node, _hosted, _change: None
    say: Callable[[str], object] = lambda _line: None


class PureNode:
    """One node: carries out effects on a log in memory. Its fetch in flight is `request`, for the test to deliver."""

    most_lag = 30.0
    is_leader_known = True
    longest_backoff = 1.0
    partition_max_bytes = 1 << 20

    def __init__(self, node_id: int, world: World) -> None:
        self.node_id = node_id
        self.world = world
        self.log: Any = MemoryLog(world.model.options.min_isr)
        self.start()

    def start(self) -> None:
        """Start with what the log has, and nothing else."""
        self.known: Any = None
        """The state of the partition in the node's metadata."""
        self.hosted = HostedPartitions(self)
        self.fetcher: FetcherState | None = None
        self.leader = -1
        self.request: Request | None = None
        self.due: float | None = None
        self.abandoned: int | None = None
        """The fetch that is given up soon."""
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.give(hosted_partitions.Started())

    def __repr__(self) -> str:
        return f"<PureNode {self.node_id} {self.hosted.get(PARTITION)!r}>"

    # What the decisions read

    @property
    def broker_epoch(self) -> int:
        return self.world.model.image.brokers[self.node_id].epoch

    def broker(self, node_id: int) -> Any:
        return self.world.model.image.brokers.get(node_id)

    def is_throttled(self, key: object) -> bool:
        return False

    # Replicas

    @property
    def leads(self) -> bool:
        """Return True if the node is the leader, by what it knows."""
        hosted = self.hosted.get(PARTITION)
        return hosted is not None and hosted.partition.leads

    def read_metadata(self) -> None:
        """Apply the newest metadata."""
        before, self.known = self.known, self.world.model.partition
        if before != self.known:
            self.give(hosted_partitions.PartitionChanged(PARTITION, TOPIC, before, self.known))

    def check_lag(self) -> None:
        """Look for followers that lag too long."""
        for hosted in self.hosted:
            self.give(hosted_partitions.LagCheckDue(hosted))

    def give(self, event: hosted_partitions.Event) -> None:
        for effect in self.hosted.receive(event, self.world.now):
            self.carry_out(effect)

    def carry_out(self, effect: hosted_partitions.Effect) -> None:
        match effect:
            case hosted_partitions.OpenLog(hosted, state):
                self.give(hosted_partitions.LogOpened(hosted, self.log, state))
            case hosted_partitions.BeginEpoch(_hosted, epoch):
                self.log.epochs.assign(epoch, self.log.end_offset)
                self.world.say(f"{self.node_id} leads epoch {epoch} from offset {self.log.end_offset}")
            case hosted_partitions.AdvanceHighWatermark(_hosted, offset):
                committed = self.log.advance(offset)
                self.world.say(f"{self.node_id} commits {texts(committed)}: high watermark {self.log.high_watermark}")
                self._run_waiting(lambda last_offset: last_offset < self.log.high_watermark)
            case hosted_partitions.GiveUpCommits() | hosted_partitions.Release():
                self._run_waiting(lambda _last_offset: True)
            case hosted_partitions.Propose(hosted, change):
                self.world.propose(self, hosted, change)
            case hosted_partitions.FetchFrom(hosted, leader, epoch):
                self._follow(hosted, leader, epoch)
            case hosted_partitions.StopFetching() if self.fetcher is not None:
                self._give_fetcher(fetcher_state.Forgotten(KEY))
            case hosted_partitions.DeleteLog():
                self.world.say(f"{self.node_id} deletes its replica")

    def _run_waiting(self, is_due: Callable[[int], bool]) -> None:
        waiting, self.waiting = self.waiting, []
        for last_offset, callback in waiting:
            if is_due(last_offset):
                callback()
            else:
                self.waiting.append((last_offset, callback))

    # Produce

    def produce(self, values: Sequence[str], on_answer: Callable[[int, Sequence[Record], Any], object]) -> None:
        """Append records with acks=all. `on_answer` takes their offset, the records, and the error or None.

        Raise `NotEnoughReplicas`, or `NotLeaderOrFollower`.
        """
        hosted = self.hosted.get(PARTITION)
        if hosted is None or not hosted.partition.leads:
            raise errors.NotLeaderOrFollower(f"broker {self.node_id} is not the leader")
        hosted.partition.check_min_isr()
        epoch, offset = hosted.partition.leader_epoch, self.log.end_offset
        records = [(epoch, value) for value in values]
        self.log.append(records)
        self.world.say(f"{self.node_id} appends {texts(records)} at {offset} in epoch {epoch}")
        self.give(hosted_partitions.Grown(hosted))
        last_offset = self.log.end_offset - 1
        answer = PartitionProduceResponse(index=0, error_code=0, base_offset=offset)
        produce = DelayedProduce([AppendedBatch(answer, hosted, last_offset, epoch)], 30.0)
        refusal: errors.BrokerError | None = None

        def give(event: delayed_produce.Event) -> None:
            nonlocal refusal
            for effect in produce.receive(event, self.world.now):
                match effect:
                    case Refuse(_number, error):
                        refusal = error
                    case AwaitCommit():
                        self.waiting.append((last_offset, lambda: give(Changed(0))))
                    case Answer():
                        on_answer(offset, records, refusal)

        give(delayed_produce.Signal.BEGAN)

    # Fetches

    def _follow(self, hosted: HostedPartition, leader: int, epoch: int) -> None:
        if self.fetcher is None or leader != self.leader:
            self.fetcher = FetcherState(self, ReplicationQuota(lambda: 1 << 40, windows=11, seconds=1.0))
            self.leader, self.abandoned, self.request = leader, None, None
        self._give_fetcher(fetcher_state.Followed(Following(hosted.topic_partition, hosted.topic_id, epoch), self.log))

    def _give_fetcher(self, event: fetcher_state.Event) -> None:
        assert self.fetcher is not None
        for effect in self.fetcher.receive(event, self.world.now):
            match effect:
                case fetcher_state.Send(number, content):
                    self.request = Request(self, self.fetcher, self.leader, number, content.partitions[KEY])
                case fetcher_state.WakeAt(due):
                    self.due = due
                case fetcher_state.StartAbandonTimer(number, _seconds):
                    self.abandoned = number
                case fetcher_state.Act.RECONNECT:
                    self.request = None
                case fetcher_state.TakeAnswers(response):
                    for answer in response.responses[0].partitions:
                        self._give_fetcher(fetcher_state.PartitionAnswered(KEY, answer))
                    self._give_fetcher(fetcher_state.Signal.ANSWERS_TAKEN)
                case fetcher_state.Take(_key, step):
                    self._take(step)

    def _take(self, step: object) -> None:
        match step:
            case Append(answer):
                self.log.append(answer.records)
                self.log.advance(answer.high_watermark)
                if answer.records:
                    self.world.say(f"{self.node_id} fetches {texts(answer.records)}")
                self._give_fetcher(fetcher_state.Appended(KEY, answer.high_watermark))
            case Truncate(offset):
                lost = self.log.truncate_to(offset)
                to = f"truncates to {offset}: {texts(lost)} is gone"
                self.world.say(f"{self.node_id} diverges from {self.leader} and {to}")
                self._give_fetcher(fetcher_state.Signal.TRUNCATED)
            case FindOffsets():
                raise AssertionError("no log begins after 0")

    def wake(self) -> None:
        """Let the time of the next fetch come."""
        if self.due is not None and self.fetcher is not None:
            self.world.now, self.due = max(self.world.now, self.due), None
            self._give_fetcher(fetcher_state.Signal.DUE)

    def abandon(self) -> None:
        """Let the time be over after which a new partition does not wait for the fetch in flight."""
        number, self.abandoned = self.abandoned, None
        if number is not None and self.fetcher is not None:
            self._give_fetcher(fetcher_state.AbandonDue(number))

    def answered(self, request: Request, *, is_lost: bool = False) -> None:
        """Take the answer to a fetch, or the end of its connection."""
        if self.fetcher is not request.fetcher:
            return
        if self.request is request:
            self.request = None
        if is_lost or request.answer is None:
            self._give_fetcher(fetcher_state.FetchFailed(request.number, errors.ConnectionFailed("closed")))
        else:
            topic = FetchableTopicResponse(topic_id=TOPIC, partitions=[request.answer])
            response = FetchResponse(error_code=0, session_id=0, responses=[topic])
            self._give_fetcher(fetcher_state.Responded(request.number, response))

    def serve(self, request: Request) -> PartitionData:
        """Answer a fetch as the Fetch handler does."""
        answer = PartitionData(partition_index=0, error_code=0, high_watermark=-1, records=b"")
        hosted, asked = self.hosted.get(PARTITION), request.asked
        try:
            if hosted is None or hosted.log is None or not hosted.partition.leads:
                raise errors.NotLeaderOrFollower
            if asked.current_leader_epoch != hosted.partition.leader_epoch:
                is_old = asked.current_leader_epoch < hosted.partition.leader_epoch
                raise errors.FencedLeaderEpoch if is_old else errors.UnknownLeaderEpoch
            fetch = FollowerFetch(request.node.node_id, asked.fetch_offset, 0, request.node.broker_epoch)
            hosted.partition.check_follower(fetch, asked.current_leader_epoch)
            diverging = None
            if asked.last_fetched_epoch >= 0:
                diverging = divergence(self.log, asked, hosted.partition.leader_epoch)
            if diverging is not None:
                answer.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
                return answer
            if not 0 <= asked.fetch_offset <= self.log.end_offset:
                raise errors.OffsetOutOfRange
        except errors.BrokerError as error:
            answer.error_code = error.code
            return answer
        self.give(hosted_partitions.FollowerFetched(hosted, fetch))
        answer.high_watermark = self.log.high_watermark
        answer.records = tuple(self.log.records[asked.fetch_offset :])  # type: ignore[assignment]
        return answer


def texts(records: Iterable[Record]) -> str:
    """Return the values of records."""
    return " ".join(value for _epoch, value in records)
