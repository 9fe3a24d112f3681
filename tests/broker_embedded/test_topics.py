"""CreateTopics, CreatePartitions and DeleteTopics over the wire: results and refused requests."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pyclient.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_embedded.nodes import node_of


def new_topic(name: str, partitions: int = 1, factor: int = 1, **options: Any) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in options.get("assignments", [])
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in options.get("configs", [])],
    )


def create(client: Any, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> list[Any]:
    response = client.call(CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version)
    return list(response.topics)


def describe(client: Any, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return client.call(request, 12).topics[0]


def delete(client: Any, *names: str, version: int = 5) -> list[Any]:
    return list(client.call(DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000), version).responses)


@pytest.mark.parametrize("version", range(2, 8))
def test_topic_is_created_in_every_version(client: Any, version: int) -> None:
    [created] = create(client, new_topic(f"made-{version}", 3), version=version)
    assert created.error_code == 0, created
    found = describe(client, f"made-{version}")
    assert [partition.partition_index for partition in found.partitions] == [0, 1, 2]
    assert all(partition.leader_id == 1 and partition.isr_nodes == [1] for partition in found.partitions)
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (3, 1)
    if version >= 7:
        assert created.topic_id == found.topic_id != ZERO_UUID


def test_minus_1_is_broker_default(connect: Any) -> None:
    with EmbeddedCluster(config={"num.partitions": 4}) as cluster:
        client = connect(cluster)
        [created] = create(client, new_topic("default", -1, -1))
        assert (created.num_partitions, created.replication_factor) == (4, 1)


def test_create_topics_stores_and_returns_options(client: Any) -> None:
    [created] = create(client, new_topic("options", configs=[("retention.ms", "1000"), ("cleanup.policy", "compact")]))
    configs = {config.name: (config.value, config.config_source) for config in created.configs}
    assert configs["retention.ms"] == ("1000", 1)
    assert configs["cleanup.policy"] == ("compact", 1)
    assert configs["file.delete.delay.ms"] == ("1000", 4)  # set by the test profile
    assert configs["max.message.bytes"] == ("1048588", 5)


def test_last_of_duplicate_options_counts(client: Any) -> None:
    [created] = create(client, new_topic("option-twice", configs=[("retention.ms", "1"), ("retention.ms", "2")]))
    assert [config.value for config in created.configs if config.name == "retention.ms"] == ["2"]


def test_assignment_sets_replicas(client: Any) -> None:
    [created] = create(client, new_topic("assigned", -1, -1, assignments=[(1, [1]), (0, [1])]))
    assert created.error_code == 0
    assert created.num_partitions == 2


def test_validate_only_creates_no_topic(client: Any) -> None:
    [checked] = create(client, new_topic("only-checked", 2), validate_only=True)
    assert (checked.error_code, checked.num_partitions) == (0, 2)
    assert describe(client, "only-checked").error_code == errors.UnknownTopicOrPartition.code


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (new_topic(""), errors.InvalidTopic),
        (new_topic("."), errors.InvalidTopic),
        (new_topic(".."), errors.InvalidTopic),
        (new_topic("../x"), errors.InvalidTopic),
        (new_topic("a b"), errors.InvalidTopic),
        (new_topic("ä"), errors.InvalidTopic),
        (new_topic("x\n"), errors.InvalidTopic),
        (new_topic("x" * 250), errors.InvalidTopic),
        (new_topic("__cluster_metadata"), errors.InvalidRequest),
        (new_topic("none", 0), errors.InvalidPartitions),
        (new_topic("negative", -2), errors.InvalidPartitions),
        (new_topic("huge", 1_000_000_000), errors.PolicyViolation),
        (new_topic("no-replica", 1, 0), errors.InvalidReplicationFactor),
        (new_topic("two-replicas", 1, 2), errors.InvalidReplicationFactor),
        (new_topic("hundred", 1, 100), errors.InvalidReplicationFactor),
        (new_topic("gap", -1, -1, assignments=[(0, [1]), (2, [1])]), errors.InvalidReplicaAssignment),
        (new_topic("stranger", -1, -1, assignments=[(0, [9])]), errors.InvalidReplicaAssignment),
        (new_topic("twice", -1, -1, assignments=[(0, [1, 1])]), errors.InvalidReplicaAssignment),
        (new_topic("repeated", -1, -1, assignments=[(0, [1]), (0, [1])]), errors.InvalidReplicaAssignment),
        (new_topic("nobody", -1, -1, assignments=[(0, [])]), errors.InvalidReplicaAssignment),
        (new_topic("both", 1, -1, assignments=[(0, [1])]), errors.InvalidRequest),
        (new_topic("unknown-option", configs=[("retention", "1")]), errors.InvalidConfig),
        (new_topic("bad-value", configs=[("retention.ms", "soon")]), errors.InvalidConfig),
        (new_topic("no-value", configs=[("retention.ms", None)]), errors.InvalidConfig),
    ],
    ids=lambda value: value.name[:20] if isinstance(value, CreatableTopic) else value.__name__,
)
def test_invalid_topic_is_refused_with_reason(client: Any, topic: CreatableTopic, error: Any) -> None:
    [checked] = create(client, topic, validate_only=True)
    assert checked.error_code == error.code, checked
    [refused] = create(client, topic)
    assert refused.error_code == error.code
    assert refused.error_message
    assert refused.configs == []


def test_longest_topic_name_is_accepted(client: Any) -> None:
    [created] = create(client, new_topic("x" * 249))
    assert created.error_code == 0


def test_unknown_option_error_has_nearest_name(client: Any) -> None:
    [refused] = create(client, new_topic("typo", configs=[("retention.msec", "1")]))
    assert "did you mean retention.ms?" in refused.error_message


def test_existing_topic_is_refused(client: Any) -> None:
    create(client, new_topic("once"))
    [again] = create(client, new_topic("once"))
    assert again.error_code == errors.TopicAlreadyExists.code


def test_topic_names_with_dot_and_underscore_collide(client: Any) -> None:
    create(client, new_topic("some.name_x"))
    [clash] = create(client, new_topic("some_name.x"))
    assert clash.error_code == errors.InvalidTopic.code
    assert "some.name_x" in clash.error_message


def test_request_for_too_many_partitions_is_refused(client: Any) -> None:
    answers = create(client, *(new_topic(f"many-{index}", 4_000) for index in range(4)), validate_only=True)
    assert [answer.error_code for answer in answers] == [errors.PolicyViolation.code] * 4  # as a whole, as in Kafka


def test_duplicate_topic_is_answered_with_one_error(client: Any) -> None:
    answers = create(client, new_topic("double"), new_topic("double"), new_topic("single"))
    assert [(answer.name, answer.error_code) for answer in answers] == [
        ("double", errors.InvalidRequest.code),
        ("single", 0),
    ]
    assert describe(client, "double").error_code == errors.UnknownTopicOrPartition.code


def add(client: Any, name: str, count: int, assignments: list[list[int]] | None = None, **options: Any) -> Any:
    replicas = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=replicas)
    validate_only = options.get("validate_only", False)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
    [result] = client.call(request, options.get("version", 3)).results
    return result


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_adds_partitions(client: Any, topic: str, version: int) -> None:
    assert add(client, topic, 5, version=version).error_code == 0
    assert len(describe(client, topic).partitions) == 5


def test_added_partition_accepts_records_immediately(client: Any, topic: str, produce: Any, batch: Any) -> None:
    add(client, topic, 3, [[1]])
    assert produce(client, topic, batch(b"value"), partition=2).base_offset == 0


def test_create_partitions_with_validate_only_changes_nothing(client: Any, topic: str) -> None:
    assert add(client, topic, 5, validate_only=True).error_code == 0
    assert len(describe(client, topic).partitions) == 2


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (2, None, errors.InvalidPartitions),
        (1, None, errors.InvalidPartitions),
        (-1, None, errors.InvalidPartitions),
        (1_000_000_000, None, errors.PolicyViolation),
        (4, [[1]], errors.InvalidReplicaAssignment),
        (3, [[9]], errors.InvalidReplicaAssignment),
        (3, [[]], errors.InvalidReplicaAssignment),
        (3, [[1, 1]], errors.InvalidReplicaAssignment),
    ],
)
def test_invalid_create_partitions_is_refused(
    client: Any, topic: str, count: int, assignments: Any, error: Any
) -> None:
    result = add(client, topic, count, assignments)
    assert result.error_code == error.code
    assert result.error_message


def test_create_partitions_of_unknown_topic_is_refused(client: Any) -> None:
    assert add(client, "nowhere", 5).error_code == errors.UnknownTopicOrPartition.code


def test_topic_is_deleted_by_name(client: Any, topic: str, produce: Any, batch: Any) -> None:
    produce(client, topic, batch(b"value"))
    [result] = delete(client, topic)
    assert (result.error_code, result.name) == (0, topic)
    assert describe(client, topic).error_code == errors.UnknownTopicOrPartition.code
    assert produce(client, topic, batch(b"value")).error_code == errors.UnknownTopicOrPartition.code


def test_topic_is_deleted_by_id(client: Any, topic: str) -> None:
    topic_id = describe(client, topic).topic_id
    state = DeleteTopicState(name=None, topic_id=topic_id)
    [result] = client.call(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6).responses
    assert (result.error_code, result.name, result.topic_id) == (0, topic, topic_id)
    assert describe(client, topic).error_code == errors.UnknownTopicOrPartition.code


def test_recreated_topic_is_empty_and_has_new_id(client: Any, topic: str, produce: Any, batch: Any) -> None:
    produce(client, topic, batch(b"one", b"two"))
    before = describe(client, topic).topic_id
    delete(client, topic)
    create(client, new_topic(topic))
    assert describe(client, topic).topic_id != before
    assert produce(client, topic, batch(b"three")).base_offset == 0


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_of_unknown_topic_is_refused(client: Any, version: int) -> None:
    [result] = delete(client, "nowhere", version=version)
    assert result.error_code == errors.UnknownTopicOrPartition.code


def test_delete_of_unknown_topic_id_is_refused(client: Any) -> None:
    state = DeleteTopicState(name=None, topic_id=uuid.UUID(int=5))
    [result] = client.call(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6).responses
    assert (result.error_code, result.name) == (errors.UnknownTopicId.code, None)


def test_duplicate_topic_is_not_deleted(client: Any, topic: str) -> None:
    topic_id = describe(client, topic).topic_id
    states = [DeleteTopicState(name=topic, topic_id=ZERO_UUID), DeleteTopicState(name=None, topic_id=topic_id)]
    [result] = client.call(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6).responses
    assert (result.name, result.error_code) == (topic, errors.InvalidRequest.code)
    both = DeleteTopicState(name=topic, topic_id=topic_id)
    [result] = client.call(DeleteTopicsRequest(topics=[both], timeout_ms=1000), 6).responses
    assert result.error_code == errors.InvalidRequest.code
    assert describe(client, topic).error_code == 0


@pytest.mark.parametrize(("version", "error"), [(2, errors.InvalidRequest), (3, errors.TopicDeletionDisabled)])
def test_topic_deletion_can_be_disabled(connect: Any, version: int, error: Any) -> None:
    with EmbeddedCluster(config={"delete.topic.enable": False}) as cluster:
        client = connect(cluster)
        create(client, new_topic("kept"))
        [result] = delete(client, "kept", version=version)
        assert result.error_code == error.code
        assert describe(client, "kept").error_code == 0


def test_parked_fetch_fails_when_topic_is_deleted(
    client: Any, connect: Any, broker: Any, topic: str, fetch_request: Any
) -> None:
    waiting = connect(broker)
    waiting.call(fetch_request(topic, {0: 0}), 11)
    waiting.send(fetch_request(topic, {0: 0}, max_wait_ms=30_000), 11)
    while not len(node_of(broker).purgatory):
        describe(client, topic)
    delete(client, topic)
    response, _ = waiting.receive(type(fetch_request(topic, {})), 11)
    assert response.responses[0].partitions[0].error_code == errors.UnknownTopicOrPartition.code
