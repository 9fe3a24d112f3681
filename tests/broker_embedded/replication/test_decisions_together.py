"""The decisions about leaders and followers, with nothing that does I/O: three nodes and the controller.

`HostedPartitions`, `FetcherState` and `DelayedProduce` of each node, and the controller's pure parts, get their events
in any order; messages and metadata are late or lost, and brokers are killed or fenced. Whatever happens, each
acknowledged record is in the log of every in-sync replica.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from types import SimpleNamespace
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyclient import errors
from pyclient.broker_embedded.replication import delayed_produce, fetcher_state, hosted_partitions
from pyclient.broker_embedded.replication.delayed_produce import (
    Answer,
    AwaitCommit,
    Changed,
    DelayedProduce,
    Refuse,
    Signal,
)
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
from tests.broker_embedded.controller.cluster_model import TOPIC, ClusterModel, Options
from tests.broker_embedded.replication.stories import StoryLog

NODES: Final = (1, 2, 3)
MIN_ISR: Final = 2
TOPIC_PARTITION: Final = TopicPartition("t", 0)
KEY: Final = (TOPIC, 0)


class Node:
    """One node: carries out the effects on a log in memory, and keeps what it sends for the test to deliver."""

    def __init__(self, node_id: int, cluster: Cluster) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.log: Any = StoryLog()
        self.log.config = SimpleNamespace(min_insync_replicas=MIN_ISR)
        self.is_up = True
        self.start()

    def start(self) -> None:
        """Start with what the log has, and nothing else."""
        self.known: Any = None
        """The state of the partition in the node's metadata."""
        self.hosted = HostedPartitions(self)
        self.fetcher: FetcherState | None = None
        self.leader = -1
        self.patience: int | None = None
        """The fetch that is given up soon."""
        self.due: float | None = None
        self.proposals: list[tuple[HostedPartition, IsrChange]] = []
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.give(hosted_partitions.Started())

    # What the decisions read

    @property
    def broker_epoch(self) -> int:
        return self.cluster.model.image.brokers[self.node_id].epoch

    most_lag = 30.0
    is_leader_known = True
    longest_backoff = 1.0
    partition_max_bytes = 1 << 20

    def broker(self, node_id: int) -> Any:
        return self.cluster.model.image.brokers.get(node_id)

    def is_throttled(self, key: object) -> bool:
        return False

    # Replicas

    def give(self, event: hosted_partitions.Event) -> None:
        for effect in self.hosted.receive(event, self.cluster.now):
            self.carry_out(effect)

    def carry_out(self, effect: hosted_partitions.Effect) -> None:
        match effect:
            case hosted_partitions.OpenLog(hosted, state):
                self.give(hosted_partitions.LogOpened(hosted, self.log, state))
            case hosted_partitions.BeginEpoch(_hosted, epoch):
                self.log.epochs.assign(epoch, self.log.end_offset)
            case hosted_partitions.AdvanceHighWatermark(_hosted, offset):
                self.log.advance(offset)
                self.run_waiting(lambda last_offset: last_offset < self.log.high_watermark)
            case hosted_partitions.GiveUpCommits():
                self.run_waiting(lambda _last_offset: True)
            case hosted_partitions.Propose(hosted, change):
                self.proposals.append((hosted, change))
            case hosted_partitions.FetchFrom(hosted, leader, epoch):
                self.follow(hosted, leader, epoch)
            case hosted_partitions.StopFetching() if self.fetcher is not None:
                self.give_fetcher(fetcher_state.Forgotten(KEY))

    def run_waiting(self, is_due: Callable[[int], bool]) -> None:
        waiting, self.waiting = self.waiting, []
        for last_offset, callback in waiting:
            if is_due(last_offset):
                callback()
            else:
                self.waiting.append((last_offset, callback))

    # Fetches

    def follow(self, hosted: HostedPartition, leader: int, epoch: int) -> None:
        if self.fetcher is None or leader != self.leader:
            self.fetcher = FetcherState(self, ReplicationQuota(lambda: 1 << 40, windows=11, seconds=1.0))
            self.leader, self.patience = leader, None
        self.give_fetcher(fetcher_state.Followed(Following(hosted.topic_partition, hosted.topic_id, epoch), self.log))

    def give_fetcher(self, event: fetcher_state.Event) -> None:
        assert self.fetcher is not None
        for effect in self.fetcher.receive(event, self.cluster.now):
            match effect:
                case fetcher_state.Send(number, content):
                    asked = content.partitions[KEY]
                    self.cluster.requests.append(Request(self, self.fetcher, self.leader, number, asked))
                case fetcher_state.WakeAt(due):
                    self.due = due
                case fetcher_state.StartAbandonTimer(number, _seconds):
                    self.patience = number
                case fetcher_state.TakeAnswers(response):
                    for answer in response.responses[0].partitions:
                        self.give_fetcher(fetcher_state.PartitionAnswered(KEY, answer))
                    self.give_fetcher(fetcher_state.Signal.ANSWERS_TAKEN)
                case fetcher_state.Take(_key, step):
                    self.take(step)

    def take(self, step: object) -> None:
        match step:
            case Append(answer):
                self.log.append(answer.records)
                self.log.advance(answer.high_watermark)
                self.give_fetcher(fetcher_state.Appended(KEY, answer.high_watermark))
            case Truncate(offset):
                self.log.truncate_to(offset)
                self.give_fetcher(fetcher_state.Signal.TRUNCATED)
            case FindOffsets():
                raise AssertionError("no log begins after 0")

    def wake(self) -> None:
        """Let the time of the next fetch come."""
        if self.due is not None and self.fetcher is not None:
            self.cluster.now, self.due = max(self.cluster.now, self.due), None
            self.give_fetcher(fetcher_state.Signal.DUE)

    def give_up_waiting(self) -> None:
        """Let the patience with the fetch in flight be over."""
        number, self.patience = self.patience, None
        if number is not None and self.fetcher is not None:
            self.give_fetcher(fetcher_state.AbandonDue(number))

    def serve(self, request: Request) -> PartitionData:
        """Answer a fetch as the Fetch handler does."""
        answer = PartitionData(partition_index=0, error_code=0, high_watermark=-1, records=b"")
        hosted, asked = self.hosted.get(TOPIC_PARTITION), request.asked
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

    # Produce

    def produce(self, value: str) -> None:
        """Append a record with acks=all if this node leads."""
        hosted = self.hosted.get(TOPIC_PARTITION)
        if hosted is None or not hosted.partition.leads or hosted.partition.is_under_min_isr:
            return
        record = hosted.partition.leader_epoch, value
        offset = self.log.end_offset
        self.log.append([record])
        self.give(hosted_partitions.Grown(hosted))
        answer = PartitionProduceResponse(index=0, error_code=0, base_offset=offset)
        produce = DelayedProduce([AppendedBatch(answer, hosted, offset, record[0])], 30.0)
        is_refused = False

        def give(event: delayed_produce.Event) -> None:
            nonlocal is_refused
            for effect in produce.receive(event, self.cluster.now):
                match effect:
                    case Refuse():
                        is_refused = True
                    case AwaitCommit():
                        self.waiting.append((offset, lambda: give(Changed(0))))
                    case Answer() if not is_refused:
                        self.cluster.acknowledged[offset] = record

        give(Signal.BEGAN)


@dataclass
class Request:
    """A Fetch request on its way, with its answer once it was served."""

    node: Node
    fetcher: FetcherState
    leader: int
    number: int
    asked: Any
    answer: PartitionData | None = None


@dataclass
class Cluster:
    """The time, the controller, and the messages on their way, which the nodes share."""

    now: float = 0.0
    model: ClusterModel = field(default_factory=lambda: ClusterModel(options=Options(MIN_ISR)))
    requests: list[Request] = field(default_factory=list)
    acknowledged: dict[int, tuple[int, str]] = field(default_factory=dict)


class Replication(RuleBasedStateMachine):
    """Events in any order."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster()
        self.model = self.cluster.model
        self.model.start(*NODES)
        self.model.create(NODES)
        self.nodes = {node_id: Node(node_id, self.cluster) for node_id in NODES}
        self.incarnations = dict.fromkeys(NODES, 0)
        self.records = 0
        for node in self.nodes.values():
            self.read_metadata(node)

    def read_metadata(self, node: Node) -> None:
        before, node.known = node.known, self.model.partition
        if before != node.known:
            node.give(hosted_partitions.PartitionChanged(TOPIC_PARTITION, TOPIC, before, node.known))

    def up(self, data: st.DataObject) -> Node:
        return data.draw(st.sampled_from([node for node in self.nodes.values() if node.is_up]))

    def any_up(self) -> bool:
        return any(node.is_up for node in self.nodes.values())

    @precondition(any_up)
    @rule(data=st.data())
    def produce(self, data: st.DataObject) -> None:
        self.records += 1
        self.up(data).produce(f"r{self.records}")

    @precondition(any_up)
    @rule(data=st.data())
    def metadata(self, data: st.DataObject) -> None:
        self.read_metadata(self.up(data))

    @precondition(any_up)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        self.up(data).wake()

    @precondition(any_up)
    @rule(data=st.data())
    def give_up_waiting(self, data: st.DataObject) -> None:
        self.up(data).give_up_waiting()

    @precondition(lambda self: self.cluster.requests)
    @rule(data=st.data())
    def serve(self, data: st.DataObject) -> None:
        """Let a leader answer a fetch, perhaps of a follower that does not wait for the answer any more."""
        request = data.draw(st.sampled_from(self.cluster.requests))
        leader = self.nodes[request.leader]
        if request.answer is None and leader.is_up:
            request.answer = leader.serve(request)

    @precondition(lambda self: self.cluster.requests)
    @rule(data=st.data(), is_lost=st.booleans())
    def answer(self, data: st.DataObject, is_lost: bool) -> None:
        """Deliver an answer, or end the connection."""
        request = data.draw(st.sampled_from(self.cluster.requests))
        self.cluster.requests.remove(request)
        self.deliver(request, is_lost=is_lost)

    def deliver(self, request: Request, *, is_lost: bool) -> None:
        node = request.node
        if not node.is_up or node.fetcher is not request.fetcher:
            return None
        if is_lost or request.answer is None:
            return node.give_fetcher(fetcher_state.FetchFailed(request.number, errors.ConnectionFailed("closed")))
        topic = FetchableTopicResponse(topic_id=TOPIC, partitions=[request.answer])
        response = FetchResponse(error_code=0, session_id=0, responses=[topic])
        return node.give_fetcher(fetcher_state.Responded(request.number, response))

    @precondition(lambda self: any(node.proposals for node in self.nodes.values()))
    @rule(data=st.data(), is_lost=st.booleans())
    def alter_partition(self, data: st.DataObject, is_lost: bool) -> None:
        """Let the controller decide about in-sync replicas; its answer may be lost."""
        node = data.draw(st.sampled_from([each for each in self.nodes.values() if each.proposals]))
        self.propose(node, is_lost=is_lost)

    def propose(self, node: Node, *, is_lost: bool) -> None:
        hosted, change = node.proposals.pop(0)
        answer = self.model.alter(
            [number for number, _epoch in change.isr],
            sender=node.node_id,
            epochs=dict(change.isr),
            leader_epoch=change.leader_epoch,
            partition_epoch=change.partition_epoch,
        ).data
        if not node.is_up:
            return
        if answer.error_code or is_lost:
            code = errors.UnknownServerError.code if is_lost else answer.error_code
            event = hosted_partitions.IsrRefused(hosted, change, code)
            if node.hosted.receive(event, self.cluster.now):
                node.proposals.append((hosted, change))
        else:
            isr = frozenset(answer.isr)
            node.give(hosted_partitions.IsrAccepted(hosted, change, isr, answer.leader_epoch, answer.partition_epoch))

    @rule(seconds=st.sampled_from([0.5, 20.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.cluster.now += seconds
        for node in self.nodes.values():
            for hosted in node.hosted if node.is_up else ():
                node.give(hosted_partitions.LagCheckDue(hosted))

    @precondition(any_up)
    @rule(data=st.data())
    def fence(self, data: st.DataObject) -> None:
        """Let the session of a broker end that runs on: as a leader, it is a stale one until it reads the metadata."""
        self.model.fence(self.up(data).node_id)

    @precondition(any_up)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        node = self.up(data)
        self.read_metadata(node)
        self.model.beat(node.node_id)

    @precondition(any_up)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        node = self.up(data)
        node.is_up = False
        self.model.fence(node.node_id)

    @precondition(lambda self: not all(node.is_up for node in self.nodes.values()))
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from([node for node in self.nodes.values() if not node.is_up]))
        self.incarnations[node.node_id] += 1
        self.model.register(node.node_id, self.incarnations[node.node_id])
        self.model.beat(node.node_id)
        node.is_up = True
        node.start()
        self.read_metadata(node)

    @invariant()
    def acknowledged_records_are_on_every_in_sync_replica(self) -> None:
        for offset, record in self.cluster.acknowledged.items():
            for node_id in self.model.partition.isr:
                records = self.nodes[node_id].log.records
                assert records[offset : offset + 1] == [record], f"{record} at {offset} is not on {node_id}"

    @invariant()
    def committed_records_are_the_same_everywhere(self) -> None:
        for one, other in combinations((node.log for node in self.nodes.values()), 2):
            end = min(one.high_watermark, other.high_watermark)
            assert one.records[:end] == other.records[:end]

    def teardown(self) -> None:
        """Heal everything: then one leader commits, and all replicas are in sync and equal."""
        for node in self.nodes.values():
            if not node.is_up:
                self.incarnations[node.node_id] += 1
                self.model.register(node.node_id, self.incarnations[node.node_id])
                node.is_up = True
                node.start()
        for _ in range(40):
            self.go_on()
        leader = self.nodes[self.model.partition.leader]
        before = leader.log.end_offset
        leader.produce("last")
        for _ in range(10):
            self.go_on()
        assert set(self.model.partition.isr) == set(NODES)
        assert self.cluster.acknowledged[before][1] == "last"
        for node in self.nodes.values():
            assert node.log.records == leader.log.records
        self.acknowledged_records_are_on_every_in_sync_replica()

    @precondition(lambda self: all(node.is_up for node in self.nodes.values()))
    @rule()
    def go_on(self) -> None:
        """Deliver everything: without such steps, few of the others would find a cluster that replicates."""
        self.cluster.now += 0.5
        for node in self.nodes.values():
            self.read_metadata(node)
            self.model.beat(node.node_id)
            node.give_up_waiting()
            node.wake()
        requests, self.cluster.requests = self.cluster.requests, []
        for request in requests:
            request.answer = request.answer or self.nodes[request.leader].serve(request)
            self.deliver(request, is_lost=False)
        for node in self.nodes.values():
            while node.proposals:
                self.propose(node, is_lost=False)


TestReplication = Replication.TestCase
TestReplication.settings = settings(stateful_step_count=60, max_examples=150)
