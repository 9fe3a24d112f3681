"""Changes of metadata and of groups on a slow disk: answered when they are on it, and no other request waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker_embedded.log.slow_disks import SECONDS, HeldFileSystem, NodeOnDisk
from tests.readable import is_readable

TOPIC_CONFIG, STORAGE_ERROR = 2, errors.KafkaStorageError.code
ASK = MetadataRequest(topics=[], allow_auto_topic_creation=False)


class Broker(NodeOnDisk[HeldFileSystem]):
    """A node on a disk that is quick until `hold` is called."""

    def __init__(self, data_dir: str, held: str) -> None:
        fs = HeldFileSystem(held)
        fs.gate.set()
        super().__init__(data_dir, fs)

    def hold(self) -> None:
        """Make syncs wait from now on; `reached` is called for each."""
        while self.fs.reached.acquire(blocking=False):
            pass
        self.fs.gate.clear()

    def wait_for_sync(self) -> None:
        """Block until a sync waits."""
        assert self.fs.reached.acquire(timeout=SECONDS)

    def fail(self) -> None:
        """Let the syncs end with an error."""
        self.fs.fails = True
        self.fs.gate.set()

    def close(self) -> None:
        self.fs.gate.set()
        self.stop()


def made(data_dir: str, held: str) -> Iterator[Broker]:
    broker = Broker(data_dir, held)
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def controller(data_dir: str) -> Iterator[Broker]:
    """Yield a node whose metadata log is slow."""
    yield from made(data_dir, "/__cluster_metadata-0/")


@pytest.fixture
def coordinator(data_dir: str, connect: Any) -> Iterator[Broker]:
    """Yield a node whose `__consumer_offsets` is slow, with `flush.messages` 1, and a topic `t`."""
    for broker in made(data_dir, "/__consumer_offsets-"):
        client = connect(broker)
        assert client.call(FindCoordinatorRequest(key="group"), 2).error_code == 0
        assert client.call(creation("t"), 7).topics[0].error_code == 0
        every = AlterableConfig(name="flush.messages", config_operation=0, value="1")
        resource = AlterConfigsResource(resource_type=TOPIC_CONFIG, resource_name="__consumer_offsets", configs=[every])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert client.call(request, 1).responses[0].error_code == 0
        yield broker


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic])


def created(client: Any) -> int:
    return int(client.receive(CreateTopicsRequest, 7)[0].topics[0].error_code)


def commit(offset: int, group: str = "group") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])


def committed(client: Any) -> int:
    return int(client.receive(OffsetCommitRequest, 7)[0].topics[0].partitions[0].error_code)


def has_answer(client: Any) -> bool:
    return is_readable(client.socket)


def test_topic_is_created_when_durable_and_others_do_not_wait(
    controller: Broker, connect: Any, produce: Any, batch: Any
) -> None:
    client, again, ids, other = (connect(controller) for _ in range(4))
    assert client.call(creation("t"), 7).topics[0].error_code == 0
    assert other.call(FindCoordinatorRequest(key="group"), 2).error_code == 0
    controller.hold()
    client.send(creation("slow"), 7)
    controller.wait_for_sync()
    again.send(creation("slow"), 7)
    ids.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    assert produce(other, "t", batch(b"a")).error_code == 0
    other.send(commit(1), 7)
    assert committed(other) == 0
    assert other.call(ASK, 9).brokers
    controller.until(lambda: len(controller.node.connections) == 4 and "slow" in controller.node.image.topics)
    assert not any(has_answer(each) for each in (client, again, ids))
    controller.fs.gate.set()
    assert created(client) == 0
    assert created(again) == errors.TopicAlreadyExists.code
    assert ids.receive(InitProducerIdRequest, 4)[0].error_code == 0


def test_topic_created_by_metadata_is_durable_first_others_are_answered(controller: Broker, connect: Any) -> None:
    client, other = connect(controller), connect(controller)
    controller.hold()
    client.send(MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True), 9)
    controller.wait_for_sync()
    assert other.call(ASK, 9).brokers
    assert not has_answer(client)
    controller.fs.gate.set()
    assert client.receive(MetadataRequest, 9)[0].topics[0].name == "new"


def test_change_that_fails_on_the_disk_and_all_later_ones_are_errors(
    controller: Broker, connect: Any, produce: Any, batch: Any
) -> None:
    client, other = connect(controller), connect(controller)
    assert client.call(creation("t"), 7).topics[0].error_code == 0
    controller.hold()
    client.send(creation("slow"), 7)
    controller.wait_for_sync()
    controller.fail()
    assert created(client) == STORAGE_ERROR
    client.send(creation("later"), 7)
    assert created(client) == STORAGE_ERROR
    assert produce(other, "t", batch(b"a")).error_code == 0
    assert "later" not in controller.node.image.topics


def test_changes_that_come_during_a_sync_share_the_next_one(controller: Broker, connect: Any) -> None:
    clients = [connect(controller) for _ in range(5)]
    controller.hold()
    syncs = controller.fs.syncs
    for number, client in enumerate(clients):
        client.send(creation(f"t{number}"), 7)
        controller.until(lambda number=number: f"t{number}" in controller.node.image.topics)  # type: ignore[misc]
    assert not any(has_answer(client) for client in clients)
    controller.fs.gate.set()
    assert [created(client) for client in clients] == [0] * 5
    assert controller.fs.syncs == syncs + 2


def test_answered_changes_survive_a_kill(data_dir: str, connect: Any) -> None:
    broker = Broker(data_dir, "/__cluster_metadata-0/")
    client = connect(broker)
    assert client.call(creation("kept"), 7).topics[0].error_code == 0
    first = client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4).producer_id
    broker.stop(clean=False)
    for again in made(data_dir, "/__cluster_metadata-0/"):
        assert "kept" in again.node.image.topics
        other = connect(again)
        ids = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        assert other.call(ids, 4).producer_id > first


def test_commit_is_answered_when_durable_and_others_do_not_wait(
    coordinator: Broker, connect: Any, produce: Any, batch: Any
) -> None:
    client, other = connect(coordinator), connect(coordinator)
    coordinator.hold()
    client.send(commit(5), 7)
    coordinator.wait_for_sync()
    assert produce(other, "t", batch(b"a")).error_code == 0
    assert other.call(ASK, 9).brokers
    assert not has_answer(client)
    coordinator.fs.gate.set()
    assert committed(client) == 0


def test_commit_that_fails_on_the_disk_moves_client_to_other_coordinator(coordinator: Broker, connect: Any) -> None:
    client = connect(coordinator)
    coordinator.hold()
    client.send(commit(5), 7)
    coordinator.wait_for_sync()
    coordinator.fail()
    assert committed(client) == errors.NotCoordinator.code
    client.send(commit(6), 7)
    assert committed(client) == errors.NotCoordinator.code


def test_member_gets_its_partitions_when_the_group_is_on_the_disk(coordinator: Broker, connect: Any) -> None:
    client, other = connect(coordinator), connect(coordinator)
    join = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = client.call(join, 3)
    assert joined.error_code == 0
    coordinator.hold()
    assigned = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    member = {"group_id": "group", "generation_id": joined.generation_id, "member_id": joined.member_id}
    client.send(SyncGroupRequest(assignments=[assigned], **member), 2)
    coordinator.wait_for_sync()
    assert other.call(ASK, 9).brokers
    assert not has_answer(client)
    coordinator.fs.gate.set()
    answer = client.receive(SyncGroupRequest, 2)[0]
    assert (answer.error_code, bytes(answer.assignment)) == (0, b"all")
