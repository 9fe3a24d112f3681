"""Admin APIs, with checks beyond their responses."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controller.controller import Controller
from pyclient.broker_embedded.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from pyclient.broker_embedded.controller.partition_elections import Election
from pyclient.protocol.messages import describe_topic_partitions as pages
from pyclient.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pyclient.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pyclient.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pyclient.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pyclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest


def make_topic(client: Any, partitions: int = 1, **configs: str) -> str:
    name = f"t-{uuid.uuid4().hex}"
    options = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=options)
    assert client.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == 0
    return name


def delete_records(client: Any, topic: str, offset: int, version: int = 2) -> Any:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000)
    return client.call(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_deleted_records_are_not_readable(
    client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any, version: int
) -> None:
    for value in (b"a", b"b", b"c"):
        produce(client, topic, batch(value))
    answer = delete_records(client, topic, 2, version)
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    [partition] = client.call(fetch_request(topic, {0: 0}), 11).responses[0].partitions
    assert (partition.error_code, partition.records) == (errors.OffsetOutOfRange.code, b"")
    [partition] = client.call(fetch_request(topic, {0: 2}), 11).responses[0].partitions
    assert (partition.error_code, partition.log_start_offset) == (0, 2)
    assert delete_records(client, topic, 1).low_watermark == 2  # the start offset never moves back
    assert delete_records(client, topic, -1).low_watermark == 3


def test_delete_records_of_compacted_topic_is_refused(client: Any) -> None:
    topic = make_topic(client, cleanup_policy="compact")
    assert delete_records(client, topic, 0).error_code == errors.PolicyViolation.code


def test_delete_records_of_internal_topic_is_refused(client: Any) -> None:
    client.call(MetadataRequest(topics=None), 1)
    from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest

    assert client.call(FindCoordinatorRequest(key="g"), 1).error_code == 0
    assert delete_records(client, "__consumer_offsets", 0).error_code == errors.InvalidTopic.code


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs_has_written_size(
    client: Any, broker: Any, topic: str, produce: Any, batch: Any, version: int
) -> None:
    data = batch(bytes(1000))
    for _ in range(3):
        produce(client, topic, data)
    [directory] = client.call(DescribeLogDirsRequest(topics=None), version).results
    [found] = [each for each in directory.topics if each.name == topic]
    assert [(each.partition_index, each.partition_size) for each in found.partitions] == [
        (0, 3 * len(data)),
        (1, 0),
    ]
    assert directory.log_dir == broker.data_dir
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes


def test_describe_producers_has_last_sequence(client: Any, topic: str, produce: Any, batch: Any) -> None:
    produce(client, topic, batch(b"a", b"b", producer_id=7001, producer_epoch=3, base_sequence=0))
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 1])])
    first, second = client.call(request, 0).topics[0].partitions
    [producer] = first.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7001, 3, 1)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (1_700_000_000_000, -1)
    assert second.active_producers == []


def test_describe_quorum_has_this_node_as_voter(client: Any, broker: Any) -> None:
    wanted = DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
    )
    for version in range(3):
        response = client.call(DescribeQuorumRequest(topics=[wanted]), version)
        [partition] = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 1)
        [voter] = partition.current_voters
        assert voter.log_end_offset == partition.high_watermark > 0
    assert f"{response.nodes[0].listeners[0].host}:{response.nodes[0].listeners[0].port}" == broker.bootstrap_servers


ADD_VOTER: dict[str, Any] = {
    "cluster_id": None,
    "timeout_ms": 1000,
    "voter_id": 9,
    "voter_directory_id": uuid.UUID(int=1000),
    "listeners": [Listener(name="CONTROLLER", host="127.0.0.1", port=1)],
}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, errors.UnsupportedVersion),
        ({"cluster_id": "another"}, errors.InconsistentClusterId),
        ({"voter_id": -1}, errors.InvalidRequest),
        ({"voter_directory_id": uuid.UUID(int=0)}, errors.InvalidRequest),
        ({"listeners": []}, errors.InvalidRequest),
        ({"listeners": [Listener(name="OTHER", host="127.0.0.1", port=1)]}, errors.InvalidRequest),
    ],
    ids=["right", "cluster", "voter", "directory", "no listener", "other listener"],
)
def test_change_of_voters_is_checked_before_a_single_node_refuses_it(
    client: Any, changes: dict[str, Any], error: type[errors.BrokerError]
) -> None:
    assert client.call(AddRaftVoterRequest(**{**ADD_VOTER, **changes}), 1).error_code == error.code
    if "listeners" not in changes:
        wanted = {name: value for name, value in ADD_VOTER.items() if name not in ("listeners", "timeout_ms")}
        assert client.call(RemoveRaftVoterRequest(**{**wanted, **changes}), 0).error_code == error.code


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_pages_of_describe_topic_partitions_are_complete(connect: Any, limit: int) -> None:
    with EmbeddedCluster() as cluster:
        client = connect(cluster)
        for partitions in (3, 1, 5):
            make_topic(client, partitions)
        found, cursor = [], None
        while True:
            request = pages.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=limit, cursor=cursor)
            response = client.call(request, 0)
            page = [(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions]
            assert 0 < len(page) <= limit
            found += page
            if response.next_cursor is None:
                break
            cursor = pages.DescribeTopicPartitionsRequestCursor(
                topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
            )
        topics = client.call(MetadataRequest(topics=None), 12).topics
        assert found == sorted((topic.name, each.partition_index) for topic in topics for each in topic.partitions)


class InMemoryLog:
    """A metadata log that only applies records."""

    end_offset = 0

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    def append(self, records: list[Any]) -> None:
        for record in records:
            self.image.apply(record)


def controller_of(partition: PartitionImage) -> tuple[Controller, MetadataImage]:
    """Return a controller on broker 1 of a cluster whose brokers 2 and 3 do not exist, and its image with t-0."""
    from random import Random

    from pyclient.broker_embedded.config.broker_config import BrokerConfig

    image = MetadataImage()
    image.brokers = {1: BrokerImage(1, 1, [("PLAINTEXT", "h", 1)], None, fenced=False)}
    topic = TopicImage("t", uuid.uuid4(), {0: partition})
    image.topics["t"] = image.topics_by_id[topic.topic_id] = topic
    log: Any = InMemoryLog(image)
    return Controller(BrokerConfig.build(data_dir=""), image, log, Random(1)), image


def test_replica_on_missing_broker_can_be_removed() -> None:
    controller, image = controller_of(PartitionImage(0, [1, 2, 3], [1], 1, 5))
    with pytest.raises(errors.InvalidReplicationFactor):
        controller.reassign("t", 0, [1], may_resize=False)
    with pytest.raises(errors.InvalidReplicaAssignment):
        controller.reassign("t", 0, [1, 2], may_resize=True)
    controller.reassign("t", 0, [1], may_resize=True)
    partition = image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ([1], [1], 1, 6)
    assert not partition.reassigning


def test_reassignment_away_from_leader_waits_for_the_new_replica() -> None:
    controller, image = controller_of(PartitionImage(0, [2], [2], 2, 5))
    controller.reassign("t", 0, [1], may_resize=True)
    partition = image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.adding, partition.removing) == ([1, 2], [2], [1], [2])


def test_partition_without_available_replica_gets_no_leader() -> None:
    controller, _image = controller_of(PartitionImage(0, [2], [2], -1, 5))
    with pytest.raises(errors.PreferredLeaderNotAvailable):
        controller.elect_leader("t", 0, Election.PREFERRED)
    with pytest.raises(errors.EligibleLeadersNotAvailable):
        controller.elect_leader("t", 0, Election.UNCLEAN)


def test_eligible_leaders_are_forgotten_when_what_they_depend_on_changes() -> None:
    for change in ("topic", "cluster", "feature", "other"):
        controller, image = controller_of(PartitionImage(0, [1, 2], [1], 1, 5, elr=(2,)))
        image.features = {"eligible.leader.replicas.version": 1, "metadata.version": 30}
        if change == "topic":
            controller.alter_configs(2, "t", {"min.insync.replicas": "1"})
        elif change == "cluster":
            controller.alter_configs(4, "", {"min.insync.replicas": "1"})
        elif change == "feature":
            controller.update_features({"eligible.leader.replicas.version": (0, 2)}, validate_only=False)
        else:
            controller.alter_configs(2, "t", {"retention.ms": "1"})
        assert image.topics["t"].partitions[0].elr == ((2,) if change == "other" else ()), change
