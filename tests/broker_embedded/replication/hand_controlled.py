"""Nodes that replicate over real sockets, on one event loop, whose metadata a test sets by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.controller.delta import MetadataDelta
from pyclient.broker_embedded.network.node_channels import NodeChannels
from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
from pyclient.errors import InvalidUpdateVersion
from pyclient.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from pyclient.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pyclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from pyclient.protocol.messages.metadata_log import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from pyclient.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from pyclient.records import build_batch
from pyclient.types import TopicPartition

TOPIC: Final = "orders"
TOPIC_ID: Final = UUID(int=7)


_metadata_log: Final[Callable[[BrokerNode], Any]] = attrgetter("services.metadata")
"""The metadata log of a node: only a direct append can write the records that a test chooses."""


@dataclass
class Nodes:
    """Three nodes, and the controller's part: the history of records, and answers to AlterPartition."""

    directory: Path
    settings: dict[str, str]
    nodes: dict[int, BrokerNode] = field(default_factory=dict)
    history: list[Any] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)
    """The number of records of the history that each node has."""

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.clients = NodeChannels(self.loop, "test")
        # all nodes share this loop with the test: on a busy machine it is blocked for more than the 2 s of a node
        self.clients.config = replace(self.clients.config, socket_connection_setup_timeout_ms=30_000)

    async def start(self, node_id: int, *, starts_replicas: bool = True) -> BrokerNode:
        """Start a node with the metadata that its log has.

        With `starts_replicas` it leads and follows partitions at once, otherwise from `start_replicas` on.
        """
        settings = {
            "node.id": str(node_id),
            "broker.rack": f"rack-{node_id}",
            "replica.lag.time.max.ms": "60000",
            **self.settings,
        }
        config = BrokerConfig.build(settings, data_dir=str(self.directory / str(node_id)))
        node = BrokerNode(config, loop=self.loop)
        await node.start()
        self.nodes[node_id] = node
        self.append(
            RegisterBrokerRecord(
                broker_id=node_id,
                incarnation_id=UUID(int=node_id),
                broker_epoch=1000 + len(self.history),
                end_points=[BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=node.port, security_protocol=0)],
                features=[],
                rack=f"rack-{node_id}",
                fenced=False,
                log_dirs=[],
            )
        )
        node.start_replication(partial(NodeChannels, self.loop, f"node-{node_id}"), self)
        if starts_replicas:
            self.start_replicas(node_id)
        return node

    def start_replicas(self, node_id: int) -> None:
        """Let a node lead and follow partitions: the metadata have its registration."""
        replicas = self.nodes[node_id].replicas
        assert replicas is not None
        replicas.start()

    async def stop(self, node_id: int) -> None:
        """Stop a node cleanly; it misses the records from now on."""
        await self.nodes.pop(node_id).stop()

    async def close(self) -> None:
        """Stop all nodes."""
        self.clients.close()
        for node_id in list(self.nodes):
            await self.stop(node_id)

    def append(self, *records: Any, to: set[int] | None = None) -> None:
        """Commit records, and bring them to the running nodes (of `to`)."""
        self.history += records
        for node_id in self.nodes if to is None else to:
            self.catch_up(node_id)

    def catch_up(self, node_id: int) -> None:
        """Bring the committed records to a node."""
        node = self.nodes[node_id]
        missing = self.history[self.known.get(node_id, 0) :]
        self.known[node_id] = len(self.history)
        image = node.image
        before = {
            TopicPartition(topic.name, index): partition
            for topic in image.topics.values()
            for index, partition in topic.partitions.items()
        }
        _metadata_log(node).append(missing)
        delta = MetadataDelta(image)
        after = {
            TopicPartition(topic.name, index): partition
            for topic in image.topics.values()
            for index, partition in topic.partitions.items()
        }
        for topic_partition in before | after:
            if before.get(topic_partition) is not after.get(topic_partition):
                delta.partitions[topic_partition] = before.get(topic_partition), after.get(topic_partition)
        delta.brokers = set(image.brokers)
        delta.configs = set(image.configs)
        for kind, name in delta.configs:
            node.configs_changed(kind, name)
        if node.replicas is not None:
            node.replicas.apply(delta)

    def create(self, replicas: list[int], *, min_isr: int = 1, name: str = TOPIC, partitions: int = 1) -> None:
        """Create the topic; the first replica leads."""
        topic_id = TOPIC_ID if name == TOPIC else UUID(int=hash(name) % 2**64)
        self.append(
            TopicRecord(name=name, topic_id=topic_id),
            ConfigRecord(resource_type=2, resource_name=name, name="min.insync.replicas", value=str(min_isr)),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[UUID(int=0)] * len(replicas),
                )
                for index in range(partitions)
            ),
        )

    def change(self, topic_id: UUID = TOPIC_ID, index: int = 0, **fields: Any) -> None:
        """Commit a change of a partition: `leader`, `isr`, `replicas`."""
        self.append(PartitionChangeRecord(partition_id=index, topic_id=topic_id, **fields))

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic."""
        node = next(iter(self.nodes.values()))
        return node.image.topics[name].topic_id

    def hosted(self, node_id: int) -> HostedPartition:
        """Return the partition on a node."""
        replicas = self.nodes[node_id].replicas
        assert replicas is not None
        found = replicas.find(TOPIC, 0)
        assert found is not None
        return found

    def isr(self, node_id: int = 1) -> list[int]:
        """Return the in-sync replicas as a node's metadata have them."""
        partition = self.nodes[node_id].image.partition(TOPIC, 0)
        assert partition is not None
        return sorted(partition.isr)

    def end(self, node_id: int) -> int:
        """Return the end of a node's log."""
        opened = self.hosted(node_id).log
        return -1 if opened is None else opened.end_offset

    def high_watermark(self, node_id: int) -> int:
        """Return the high watermark of a node's log."""
        opened = self.hosted(node_id).log
        return -1 if opened is None else opened.high_watermark

    def bytes_of(self, node_id: int) -> bytes:
        """Return all batches of a node's log."""
        opened = self.hosted(node_id).log
        assert opened is not None
        opened.flush()
        folder = Path(opened.directory)
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))

    def freeze(self, *node_ids: int) -> None:
        """Let nodes fetch nothing from leaders; a fetch on its way still counts."""
        for node_id in node_ids:
            replicas = self.nodes[node_id].replicas
            assert replicas is not None
            replicas.fetchers.freeze()

    def thaw(self, *node_ids: int) -> None:
        """Let nodes fetch again."""
        for node_id in node_ids:
            replicas = self.nodes[node_id].replicas
            assert replicas is not None
            replicas.fetchers.thaw()

    def advance(self, node_id: int, seconds: float) -> None:
        """Advance a node's time: its timers that are due by that are run."""
        node = self.nodes[node_id]
        node.clock.advance(seconds)
        node.timers.advance(seconds)

    # The controller

    def send(self, request: Any, _timeout: float) -> asyncio.Future[Any]:
        """Answer AlterPartition and CreateTopics, and commit what is accepted."""
        done: asyncio.Future[Any] = self.loop.create_future()
        if isinstance(request, CreateTopicsRequest):
            [topic] = request.topics
            replicas = sorted(self.nodes)[: topic.replication_factor if topic.replication_factor > 0 else 3]
            self.create(replicas, name=topic.name, partitions=max(topic.num_partitions, 1))
            done.set_result(CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name, error_code=0)]))
        else:
            self.loop.call_soon(self._decide, request, done)
        return done

    def _decide(self, request: AlterPartitionRequest, done: asyncio.Future[AlterPartitionResponse]) -> None:
        if request.broker_id not in self.nodes:
            return
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                current = self._current(topic.topic_id, wanted.partition_index, request.broker_id)
                code = 0 if wanted.partition_epoch == current.partition_epoch else InvalidUpdateVersion.code
                isr = [member.broker_id for member in wanted.new_isr_with_epochs]
                answers.append(
                    AlterPartitionResponsePartitionData(
                        partition_index=wanted.partition_index,
                        error_code=code,
                        leader_id=current.leader,
                        leader_epoch=current.leader_epoch,
                        isr=isr,
                        partition_epoch=current.partition_epoch + 1,
                    )
                )
                if not code:
                    record = PartitionChangeRecord(
                        partition_id=wanted.partition_index, topic_id=topic.topic_id, isr=isr
                    )
                    self.loop.call_soon(self.append, record)
            topics.append(AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=answers))
        done.set_result(AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics))

    def _current(self, topic_id: UUID, index: int, node_id: int) -> Any:
        return self.nodes[node_id].image.topics_by_id[topic_id].partitions[index]

    # Clients

    async def produce(
        self, node_id: int, value: bytes, *, name: str = TOPIC, acks: int = -1, timeout_ms: int = 30_000
    ) -> PartitionProduceResponse:
        """Send one record to a node."""
        [answer] = await self.produce_to(node_id, value, name, acks=acks, timeout_ms=timeout_ms)
        return answer

    async def produce_to(
        self, node_id: int, value: bytes, *names: str, acks: int = -1, timeout_ms: int = 30_000
    ) -> list[PartitionProduceResponse]:
        """Send one record to each topic in one request to a node."""
        batch = build_batch([(None, value)], timestamp_ms=1)
        partitions = [PartitionProduceData(index=0, records=batch)]
        topics = [
            TopicProduceData(name=name, topic_id=self.topic_id(name), partition_data=partitions) for name in names
        ]
        request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=topics)
        response = await self.client(node_id).send(request, 60.0)
        return [topic.partition_responses[0] for topic in response.responses]

    async def delete_records(
        self, node_id: int, offset: int, *, timeout_ms: int = 30_000
    ) -> DeleteRecordsPartitionResult:
        """Delete the records before an offset."""
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name=TOPIC, partitions=[partition])
        response = await self.client(node_id).send(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), 60.0)
        result: DeleteRecordsPartitionResult = response.topics[0].partitions[0]
        return result

    async def fetch(
        self,
        node_id: int,
        offset: int,
        *,
        wait_ms: int = 0,
        rack: str = "",
        epoch: int = -1,
        replica: ReplicaState | None = None,
    ) -> PartitionData:
        """Fetch as a consumer from a node, or as a replica."""
        partition = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
            rack_id=rack,
            replica_state=replica or ReplicaState(),
        )
        response = await self.client(node_id).send(request, 60.0)
        return response.responses[0].partitions[0]

    def client(self, node_id: int) -> Any:
        """Return a channel of a client to a node."""
        return self.clients.to(node_id, "127.0.0.1", self.nodes[node_id].port)


def run(directory: Path, scenario: Callable[[Nodes], Coroutine[Any, Any, None]], **settings: str) -> None:
    """Run a scenario with three nodes. A `_` in the name of a setting means a dot."""

    async def main() -> None:
        nodes = Nodes(directory, {name.replace("_", "."): value for name, value in settings.items()})
        try:
            for node_id in (1, 2, 3):
                await nodes.start(node_id)
            await scenario(nodes)
        finally:
            await nodes.close()

    asyncio.run(main())
