"""The decisions about leaders and followers, with nothing that does I/O: three nodes and the controller.

`HostedPartitions`, `FetcherState` and `DelayedProduce` of each node, and the controller's pure parts, get their events
in any order; messages and metadata are late or lost, and brokers are killed or fenced. Whatever happens, each
acknowledged record is in the log of every in-sync replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyclient import errors
from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition, IsrAccepted, IsrRefused
from pyclient.broker_embedded.replication.partition import IsrChange
from tests.broker_embedded.controller.cluster_model import ClusterModel, Options
from tests.broker_embedded.replication.pure_nodes import PureNode, Record, Request, World

NODES: Final = (1, 2, 3)


class Replication(RuleBasedStateMachine):
    """Events in any order."""

    @initialize()
    def begin(self) -> None:
        self.model = ClusterModel(options=Options(min_isr=2))
        self.model.start(*NODES)
        self.model.create(NODES)
        self.world = World(self.model, propose=self.note_proposal)
        self.acknowledged: dict[int, Record] = {}
        self.proposals: list[tuple[PureNode, HostedPartition, IsrChange]] = []
        self.requests: list[Request] = []
        self.nodes = {node_id: PureNode(node_id, self.world) for node_id in NODES}
        self.down: set[int] = set()
        self.incarnations = dict.fromkeys(NODES, 0)
        self.values = 0
        for node in self.nodes.values():
            node.read_metadata()

    def note_proposal(self, node: PureNode, hosted: HostedPartition, change: IsrChange) -> None:
        self.proposals.append((node, hosted, change))

    def note_requests(self) -> None:
        """Note the requests that were sent. They stay, also when the follower does not wait for them any more."""
        for node in self.nodes.values():
            if node.request is not None and node.request not in self.requests:
                self.requests.append(node.request)

    def up(self, data: st.DataObject) -> PureNode:
        return data.draw(st.sampled_from([node for node in self.nodes.values() if node.node_id not in self.down]))

    def any_up(self) -> bool:
        return len(self.down) < len(NODES)

    def append(self, node: PureNode, value: str) -> None:
        def answered(offset: int, records: Sequence[Record], error: errors.BrokerError | None) -> None:
            if error is None:
                self.acknowledged[offset] = records[0]

        with suppress(errors.NotLeaderOrFollower, errors.NotEnoughReplicas):
            node.produce([value], answered)

    @precondition(any_up)
    @rule(data=st.data())
    def produce(self, data: st.DataObject) -> None:
        self.values += 1
        self.append(self.up(data), f"r{self.values}")

    @precondition(any_up)
    @rule(data=st.data())
    def metadata(self, data: st.DataObject) -> None:
        self.up(data).read_metadata()

    @precondition(any_up)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        self.up(data).wake()
        self.note_requests()

    @precondition(any_up)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        self.up(data).abandon()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def serve(self, data: st.DataObject) -> None:
        """Let a leader answer a fetch, perhaps of a follower that does not wait for the answer any more."""
        request = data.draw(st.sampled_from(self.requests))
        if request.answer is None and request.leader not in self.down:
            request.answer = self.nodes[request.leader].serve(request)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), is_lost=st.booleans())
    def answer(self, data: st.DataObject, is_lost: bool) -> None:
        """Deliver an answer, or end the connection."""
        request = data.draw(st.sampled_from(self.requests))
        self.requests.remove(request)
        if request.node.node_id not in self.down:
            request.node.answered(request, is_lost=is_lost)
            self.note_requests()

    @precondition(lambda self: self.proposals)
    @rule(data=st.data(), is_lost=st.booleans())
    def alter_partition(self, data: st.DataObject, is_lost: bool) -> None:
        """Let the controller decide about in-sync replicas; its answer may be lost."""
        number = data.draw(st.integers(0, len(self.proposals) - 1))
        self.decide(*self.proposals.pop(number), is_lost=is_lost)

    def decide(self, node: PureNode, hosted: HostedPartition, change: IsrChange, *, is_lost: bool) -> None:
        answer = self.model.alter(
            [number for number, _epoch in change.isr],
            sender=node.node_id,
            epochs=dict(change.isr),
            leader_epoch=change.leader_epoch,
            partition_epoch=change.partition_epoch,
        ).data
        if node.node_id in self.down or node.hosted.get(hosted.topic_partition) is not hosted:
            return
        if answer.error_code or is_lost:
            code = errors.UnknownServerError.code if is_lost else answer.error_code
            if node.hosted.receive(IsrRefused(hosted, change, code), self.world.now):
                self.proposals.append((node, hosted, change))
        else:
            isr = frozenset(answer.isr)
            node.give(IsrAccepted(hosted, change, isr, answer.leader_epoch, answer.partition_epoch))

    @rule(seconds=st.sampled_from([0.5, 20.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.now += seconds
        for node in self.nodes.values():
            if node.node_id not in self.down:
                node.check_lag()

    @precondition(any_up)
    @rule(data=st.data())
    def fence(self, data: st.DataObject) -> None:
        """Let the session of a broker end that runs on: as a leader, it is a stale one until it reads the metadata."""
        self.model.fence(self.up(data).node_id)

    @precondition(any_up)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        node = self.up(data)
        node.read_metadata()
        self.model.beat(node.node_id)

    @precondition(any_up)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        node = self.up(data)
        self.down.add(node.node_id)
        self.model.fence(node.node_id)

    @precondition(lambda self: self.down)
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        self.start(data.draw(st.sampled_from(sorted(self.down))))

    def start(self, node_id: int) -> None:
        self.incarnations[node_id] += 1
        self.model.register(node_id, self.incarnations[node_id])
        self.model.beat(node_id)
        self.down.remove(node_id)
        self.nodes[node_id].start()
        self.nodes[node_id].read_metadata()

    @precondition(lambda self: not self.down)
    @rule()
    def go_on(self) -> None:
        """Deliver everything: without such steps, few of the others would find a cluster that replicates."""
        self.world.now += 0.5
        for node in self.nodes.values():
            node.read_metadata()
            self.model.beat(node.node_id)
            node.abandon()
            node.wake()
        self.note_requests()
        requests, self.requests = self.requests, []
        for request in requests:
            request.answer = request.answer or self.nodes[request.leader].serve(request)
            request.node.answered(request)
        self.note_requests()
        proposals, self.proposals = self.proposals, []
        for proposal in proposals:
            self.decide(*proposal, is_lost=False)

    @invariant()
    def acknowledged_records_are_on_every_in_sync_replica(self) -> None:
        for offset, record in self.acknowledged.items():
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
        for node_id in sorted(self.down):
            self.start(node_id)
        for _ in range(40):
            self.go_on()
        leader: Any = self.nodes[self.model.partition.leader]
        before = leader.log.end_offset
        self.append(leader, "last")
        for _ in range(10):
            self.go_on()
        assert set(self.model.partition.isr) == set(NODES)
        assert self.acknowledged[before][1] == "last"
        for node in self.nodes.values():
            assert node.log.records == leader.log.records
        self.acknowledged_records_are_on_every_in_sync_replica()


TestReplication = Replication.TestCase
TestReplication.settings = settings(stateful_step_count=60, max_examples=150)
