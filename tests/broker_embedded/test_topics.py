"""CreateTopics, CreatePartitions and DeleteTopics over the wire: what is made, what is refused and why."""

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


def wanted(name: str, partitions: int = 1, factor: int = 1, **options: Any) -> CreatableTopic:
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
def test_a_topic_is_made_in_every_version(client: Any, version: int) -> None:
    [made] = create(client, wanted(f"made-{version}", 3), version=version)
    assert made.error_code == 0, made
    found = describe(client, f"made-{version}")
    assert [partition.partition_index for partition in found.partitions] == [0, 1, 2]
    assert all(partition.leader_id == 1 and partition.isr_nodes == [1] for partition in found.partitions)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
    if version >= 7:
        assert made.topic_id == found.topic_id != ZERO_UUID


def test_minus_1_is_the_broker_s_default(connect: Any) -> None:
    with EmbeddedCluster(config={"num.partitions": 4}) as cluster:
        client = connect(cluster)
        [made] = create(client, wanted("default", -1, -1))
        assert (made.num_partitions, made.replication_factor) == (4, 1)


def test_options_are_kept_and_told(client: Any) -> None:
    [made] = create(client, wanted("options", configs=[("retention.ms", "1000"), ("cleanup.policy", "compact")]))
    told = {config.name: (config.value, config.config_source) for config in made.configs}
    assert told["retention.ms"] == ("1000", 1)
    assert told["cleanup.policy"] == ("compact", 1)
    assert told["file.delete.delay.ms"] == ("1000", 4)  # set by the test profile
    assert told["max.message.bytes"] == ("1048588", 5)


def test_of_an_option_given_twice_the_last_counts(client: Any) -> None:
    [made] = create(client, wanted("option-twice", configs=[("retention.ms", "1"), ("retention.ms", "2")]))
    assert [config.value for config in made.configs if config.name == "retention.ms"] == ["2"]


def test_an_assignment_names_the_replicas(client: Any) -> None:
    [made] = create(client, wanted("assigned", -1, -1, assignments=[(1, [1]), (0, [1])]))
    assert made.error_code == 0
    assert made.num_partitions == 2


def test_validate_only_makes_nothing(client: Any) -> None:
    [checked] = create(client, wanted("only-checked", 2), validate_only=True)
    assert (checked.error_code, checked.num_partitions) == (0, 2)
    assert describe(client, "only-checked").error_code == errors.UnknownTopicOrPartition.code


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (wanted(""), errors.InvalidTopic),
        (wanted("."), errors.InvalidTopic),
        (wanted(".."), errors.InvalidTopic),
        (wanted("../x"), errors.InvalidTopic),
        (wanted("a b"), errors.InvalidTopic),
        (wanted("ä"), errors.InvalidTopic),
        (wanted("x\n"), errors.InvalidTopic),
        (wanted("x" * 250), errors.InvalidTopic),
        (wanted("__cluster_metadata"), errors.InvalidRequest),
        (wanted("none", 0), errors.InvalidPartitions),
        (wanted("negative", -2), errors.InvalidPartitions),
        (wanted("huge", 1_000_000_000), errors.PolicyViolation),
        (wanted("no-replica", 1, 0), errors.InvalidReplicationFactor),
        (wanted("two-replicas", 1, 2), errors.InvalidReplicationFactor),
        (wanted("hundred", 1, 100), errors.InvalidReplicationFactor),
        (wanted("gap", -1, -1, assignments=[(0, [1]), (2, [1])]), errors.InvalidReplicaAssignment),
        (wanted("stranger", -1, -1, assignments=[(0, [9])]), errors.InvalidReplicaAssignment),
        (wanted("twice", -1, -1, assignments=[(0, [1, 1])]), errors.InvalidReplicaAssignment),
        (wanted("repeated", -1, -1, assignments=[(0, [1]), (0, [1])]), errors.InvalidReplicaAssignment),
        (wanted("nobody", -1, -1, assignments=[(0, [])]), errors.InvalidReplicaAssignment),
        (wanted("both", 1, -1, assignments=[(0, [1])]), errors.InvalidRequest),
        (wanted("unknown-option", configs=[("retention", "1")]), errors.InvalidConfig),
        (wanted("bad-value", configs=[("retention.ms", "soon")]), errors.InvalidConfig),
        (wanted("no-value", configs=[("retention.ms", None)]), errors.InvalidConfig),
    ],
    ids=lambda value: value.name[:20] if isinstance(value, CreatableTopic) else value.__name__,
)
def test_an_impossible_topic_is_refused_with_a_reason(client: Any, topic: CreatableTopic, error: Any) -> None:
    [checked] = create(client, topic, validate_only=True)
    assert checked.error_code == error.code, checked
    [refused] = create(client, topic)
    assert refused.error_code == error.code
    assert refused.error_message
    assert refused.configs == []


def test_the_longest_name_is_allowed(client: Any) -> None:
    [made] = create(client, wanted("x" * 249))
    assert made.error_code == 0


def test_an_unknown_option_is_answered_with_the_nearest_name(client: Any) -> None:
    [refused] = create(client, wanted("typo", configs=[("retention.msec", "1")]))
    assert "did you mean retention.ms?" in refused.error_message


def test_a_topic_exists_once(client: Any) -> None:
    create(client, wanted("once"))
    [again] = create(client, wanted("once"))
    assert again.error_code == errors.TopicAlreadyExists.code


def test_a_dot_and_an_underscore_collide(client: Any) -> None:
    create(client, wanted("some.name_x"))
    [clash] = create(client, wanted("some_name.x"))
    assert clash.error_code == errors.InvalidTopic.code
    assert "some.name_x" in clash.error_message


def test_a_request_may_not_ask_for_too_many_partitions_together(client: Any) -> None:
    answers = create(client, *(wanted(f"many-{index}", 4_000) for index in range(4)), validate_only=True)
    assert [answer.error_code for answer in answers] == [errors.PolicyViolation.code] * 4  # as a whole, as in Kafka


def test_a_name_twice_in_a_request_is_one_error(client: Any) -> None:
    answers = create(client, wanted("double"), wanted("double"), wanted("single"))
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
def test_partitions_are_added(client: Any, topic: str, version: int) -> None:
    assert add(client, topic, 5, version=version).error_code == 0
    assert len(describe(client, topic).partitions) == 5


def test_added_partitions_take_records_at_once(client: Any, topic: str, produce: Any, batch: Any) -> None:
    add(client, topic, 3, [[1]])
    assert produce(client, topic, batch(b"value"), partition=2).base_offset == 0


def test_adding_partitions_can_be_only_checked(client: Any, topic: str) -> None:
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
def test_impossible_additions_are_refused(client: Any, topic: str, count: int, assignments: Any, error: Any) -> None:
    result = add(client, topic, count, assignments)
    assert result.error_code == error.code
    assert result.error_message


def test_partitions_of_an_unknown_topic_cannot_be_added(client: Any) -> None:
    assert add(client, "nowhere", 5).error_code == errors.UnknownTopicOrPartition.code


def test_a_topic_is_deleted_by_name(client: Any, topic: str, produce: Any, batch: Any) -> None:
    produce(client, topic, batch(b"value"))
    [result] = delete(client, topic)
    assert (result.error_code, result.name) == (0, topic)
    assert describe(client, topic).error_code == errors.UnknownTopicOrPartition.code
    assert produce(client, topic, batch(b"value")).error_code == errors.UnknownTopicOrPartition.code


def test_a_topic_is_deleted_by_id(client: Any, topic: str) -> None:
    topic_id = describe(client, topic).topic_id
    state = DeleteTopicState(name=None, topic_id=topic_id)
    [result] = client.call(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6).responses
    assert (result.error_code, result.name, result.topic_id) == (0, topic, topic_id)
    assert describe(client, topic).error_code == errors.UnknownTopicOrPartition.code


def test_a_topic_made_again_is_empty_and_has_another_id(client: Any, topic: str, produce: Any, batch: Any) -> None:
    produce(client, topic, batch(b"one", b"two"))
    before = describe(client, topic).topic_id
    delete(client, topic)
    create(client, wanted(topic))
    assert describe(client, topic).topic_id != before
    assert produce(client, topic, batch(b"three")).base_offset == 0


@pytest.mark.parametrize("version", range(1, 6))
def test_an_unknown_topic_cannot_be_deleted(client: Any, version: int) -> None:
    [result] = delete(client, "nowhere", version=version)
    assert result.error_code == errors.UnknownTopicOrPartition.code


def test_an_unknown_id_cannot_be_deleted(client: Any) -> None:
    state = DeleteTopicState(name=None, topic_id=uuid.UUID(int=5))
    [result] = client.call(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6).responses
    assert (result.error_code, result.name) == (errors.UnknownTopicId.code, None)


def test_a_topic_named_twice_is_not_deleted(client: Any, topic: str) -> None:
    topic_id = describe(client, topic).topic_id
    states = [DeleteTopicState(name=topic, topic_id=ZERO_UUID), DeleteTopicState(name=None, topic_id=topic_id)]
    [result] = client.call(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6).responses
    assert (result.name, result.error_code) == (topic, errors.InvalidRequest.code)
    both = DeleteTopicState(name=topic, topic_id=topic_id)
    [result] = client.call(DeleteTopicsRequest(topics=[both], timeout_ms=1000), 6).responses
    assert result.error_code == errors.InvalidRequest.code
    assert describe(client, topic).error_code == 0


@pytest.mark.parametrize(("version", "error"), [(2, errors.InvalidRequest), (3, errors.TopicDeletionDisabled)])
def test_deletion_can_be_forbidden(connect: Any, version: int, error: Any) -> None:
    with EmbeddedCluster(config={"delete.topic.enable": False}) as cluster:
        client = connect(cluster)
        create(client, wanted("kept"))
        [result] = delete(client, "kept", version=version)
        assert result.error_code == error.code
        assert describe(client, "kept").error_code == 0


def test_a_fetch_that_waits_learns_that_the_topic_is_gone(
    client: Any, connect: Any, broker: Any, topic: str, fetch_request: Any
) -> None:
    waiting = connect(broker)
    waiting.call(fetch_request(topic, {0: 0}), 11)
    waiting.send(fetch_request(topic, {0: 0}, max_wait_ms=30_000), 11)
    while not len(broker._runner.node.purgatory):
        describe(client, topic)
    delete(client, topic)
    response, _ = waiting.receive(type(fetch_request(topic, {})), 11)
    assert response.responses[0].partitions[0].error_code == errors.UnknownTopicOrPartition.code
