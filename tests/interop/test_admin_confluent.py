"""confluent-kafka's AdminClient works with our broker as with Kafka, in all its calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from pyclient.broker_embedded import EmbeddedCluster

SECONDS = 60


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


def result(futures: dict[Any, Any]) -> Any:
    """Return the result of the only future."""
    [future] = futures.values()
    return future.result(SECONDS)


def produce(servers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(SECONDS) == 0


def options(admin: AdminClient, kind: Any, name: str) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = result(admin.describe_configs([ConfigResource(kind, name)]))
    return found


def test_topics_are_created_described_extended_and_deleted(admin: AdminClient) -> None:
    new = NewTopic("made", num_partitions=2, replication_factor=1, config={"retention.ms": "5000"})
    assert result(admin.create_topics([new])) is None
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        result(admin.create_topics([new]))
    assert result(admin.create_partitions([NewPartitions("made", 4)])) is None
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        result(admin.create_partitions([NewPartitions("made", 1)]))
    described = result(admin.describe_topics(TopicCollection(["made"]), include_authorized_operations=True))
    assert [partition.leader.id for partition in described.partitions] == [1, 1, 1, 1]
    assert AclOperation.ALTER_CONFIGS in described.authorized_operations
    assert len(admin.list_topics("made").topics["made"].partitions) == 4
    assert result(admin.delete_topics(["made"])) is None
    assert "made" not in admin.list_topics(timeout=SECONDS).topics


def test_cluster_is_described(admin: AdminClient) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(SECONDS)
    assert [node.id for node in cluster.nodes] == [1]
    assert cluster.controller.id == 1
    assert len(cluster.cluster_id) == 22


def test_options_are_altered_by_both_calls(admin: AdminClient) -> None:
    result(admin.create_topics([NewTopic("configured", 1, 1)]))
    resource = ConfigResource(
        ResourceType.TOPIC,
        "configured",
        incremental_configs=[
            ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )
    assert result(admin.incremental_alter_configs([resource])) is None
    found = options(admin, ResourceType.TOPIC, "configured")
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("7000", "delete,compact")
    assert not found["retention.ms"].is_default
    assert "log.cleanup.policy" in found["cleanup.policy"].synonyms
    whole = ConfigResource(ResourceType.TOPIC, "configured", set_config={"segment.ms": "9000"})
    with pytest.deprecated_call():
        assert result(admin.alter_configs([whole])) is None
    found = options(admin, ResourceType.TOPIC, "configured")
    assert (found["retention.ms"].value, found["segment.ms"].value) == ("604800000", "9000")
    wrong = ConfigResource(
        ResourceType.TOPIC,
        "configured",
        incremental_configs=[ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET)],
    )
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        result(admin.incremental_alter_configs([wrong]))


def test_broker_options_are_described_and_altered(admin: AdminClient) -> None:
    found = options(admin, ResourceType.BROKER, "1")
    assert found["num.partitions"].is_read_only
    change = ConfigResource(
        ResourceType.BROKER,
        "1",
        incremental_configs=[ConfigEntry("log.retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)],
    )
    assert result(admin.incremental_alter_configs([change])) is None
    assert options(admin, ResourceType.BROKER, "1")["log.retention.ms"].value == "123456"


def test_records_are_deleted_and_offsets_listed(admin: AdminClient, servers: str) -> None:
    result(admin.create_topics([NewTopic("emptied", 1, 1)]))
    produce(servers, "emptied", 5)
    assert result(admin.delete_records([TopicPartition("emptied", 0, 3)])).low_watermark == 3
    at = TopicPartition("emptied", 0)
    asked = ((OffsetSpec.earliest(), 3), (OffsetSpec.latest(), 5), (OffsetSpec.max_timestamp(), 4))
    for spec, offset in asked:
        found = admin.list_offsets({at: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        assert result(found).offset == offset or spec is asked[2][0]
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        result(admin.delete_records([TopicPartition("emptied", 0, 99)]))


def test_groups_are_listed_described_moved_and_deleted(admin: AdminClient, servers: str) -> None:
    result(admin.create_topics([NewTopic("grouped", 1, 1)]))
    produce(servers, "grouped", 3)
    settings = {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["grouped"])
    assert len(consumer.consume(3, SECONDS)) == 3
    consumer.commit(asynchronous=False)
    described = result(admin.describe_consumer_groups(["readers"]))
    assert described.state.name == "STABLE"
    assert [member.assignment.topic_partitions[0].topic for member in described.members] == ["grouped"]
    consumer.close()
    assert "readers" in [group.group_id for group in admin.list_consumer_groups().result(SECONDS).valid]
    moved = ConsumerGroupTopicPartitions("readers", [TopicPartition("grouped", 0, 1)])
    assert result(admin.alter_consumer_group_offsets([moved])).topic_partitions[0].error is None
    listed = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")]))
    assert [(each.topic, each.partition, each.offset) for each in listed.topic_partitions] == [("grouped", 0, 1)]
    assert result(admin.delete_consumer_groups(["readers"])) is None


def test_confluent_manages_scram_users(admin: AdminClient) -> None:
    user = UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"secret")
    assert result(admin.alter_user_scram_credentials([user])) is None
    described = result(admin.describe_user_scram_credentials(["alice"]))
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    gone = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    assert result(admin.alter_user_scram_credentials([gone])) is None
    with pytest.raises(KafkaException, match="RESOURCE_NOT_FOUND"):
        result(admin.describe_user_scram_credentials(["alice"]))


def test_election_reports_not_needed(admin: AdminClient) -> None:
    result(admin.create_topics([NewTopic("led", 1, 1)]))
    [(partition, error)] = (
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("led", 0)]).result(SECONDS).items()
    )
    assert (partition.topic, error.name()) == ("led", "ELECTION_NOT_NEEDED")


def test_acl_calls_report_security_disabled(admin: AdminClient) -> None:
    some = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ)
    with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
        result(admin.create_acls([AclBinding(*some, AclPermissionType.ALLOW)]))
    with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
        result(admin.delete_acls([AclBindingFilter(*some, AclPermissionType.ALLOW)]))
    assert admin.describe_acls(AclBindingFilter(*some, AclPermissionType.ANY)).result(SECONDS) == []
