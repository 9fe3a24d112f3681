"""The remaining methods of the admin clients: groups, offsets, users, ACLs, elections and features."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import Consumer, Producer
from pyclient.broker_embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiokafka"),
]

SECONDS = 30


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with topic `read`: one partition, four records."""
    with EmbeddedCluster() as cluster:
        with Producer(cluster.bootstrap_servers) as producer:
            for number in range(4):
                producer.send("read", b"%d" % number, partition=0)
        yield cluster.bootstrap_servers


@pytest.fixture
def group(servers: str, request: pytest.FixtureRequest) -> str:
    """An empty group per test that has committed offset 2."""
    name = f"readers-{request.node.name}"
    options = {"group_id": name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer("read", bootstrap_servers=servers, **options) as consumer:
        assert len(consumer.poll(timeout=SECONDS, max_records=2)) == 2
        consumer.commit()
    return name


@pytest.fixture
def admin(servers: str) -> Iterator[Any]:
    from kafka import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=servers)
    yield client
    client.close()


def test_kafka_python_lists_describes_and_deletes_groups(admin: Any, group: str) -> None:
    assert group in repr(admin.list_groups())
    assert group in repr(admin.list_groups(states_filter=["Empty"]))
    assert group not in repr(admin.list_groups(states_filter=["Stable"]))
    assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    assert admin.delete_groups([group]) == {group: "OK"}
    assert group not in repr(admin.list_groups())


def test_kafka_python_moves_and_deletes_offsets(admin: Any, group: str) -> None:
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec
    from kafka.errors import NoError
    from kafka.structs import OffsetAndMetadata

    at = TopicPartition("read", 0)
    assert admin.list_group_offsets({group: None})[group][at].offset == 2
    assert admin.alter_group_offsets(group, {at: OffsetAndMetadata(1, "moved", -1)}) == {at: NoError}
    assert admin.list_group_offsets({group: [at]})[group][at].offset == 1
    assert admin.reset_group_offsets(group, {at: OffsetSpec.LATEST}) == {at: {"error": NoError, "offset": 4}}
    assert admin.list_group_offsets({group: [at]})[group][at].offset == 4
    assert admin.delete_group_offsets(group, [at]) == {at: NoError}
    assert admin.list_group_offsets({group: None}) == {group: {}}


def test_kafka_python_removes_silent_member(admin: Any, servers: str, group: str) -> None:
    from kafka.admin import MemberToRemove
    from kafka.errors import NoError, UnknownMemberIdError

    options = {"group_id": group, "group_instance_id": "one", "auto_offset_reset": "earliest"}
    with Consumer("read", bootstrap_servers=servers, **options) as consumer:
        assert len(consumer.poll(timeout=SECONDS)) == 2
        members = [MemberToRemove(member_id="unknown"), MemberToRemove(group_instance_id="one")]
        removed = admin.remove_group_members(group, members)
        assert set(removed.values()) == {UnknownMemberIdError, NoError}


def test_kafka_python_finds_offsets(admin: Any) -> None:
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec

    at = TopicPartition("read", 0)
    assert admin.list_partition_offsets({at: OffsetSpec.LATEST})[at].offset == 4


def test_kafka_python_manages_scram_users(admin: Any) -> None:
    from kafka.admin import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion

    kind = ScramMechanism.SCRAM_SHA_256
    assert admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", kind, "secret")]) == {"bob": None}
    [kept] = admin.describe_user_scram_credentials()["bob"]["credential_infos"]
    assert kept == {"mechanism": kind, "iterations": 4096}
    assert admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", kind)]) == {"bob": None}


def test_kafka_python_gets_security_disabled_for_acls(admin: Any) -> None:
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
    from kafka.errors import SecurityDisabledError

    some = ("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "t"))
    assert admin.create_acls([ACL(*some)])["failed"] == [SecurityDisabledError]
    [(_filter, deleted, error)] = admin.delete_acls([ACL(*some)])
    assert (deleted, error) == ([], SecurityDisabledError)
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls(ACL(*some))


def test_kafka_python_elects_and_reassigns_in_cluster_of_one(admin: Any) -> None:
    from kafka import TopicPartition
    from kafka.errors import ElectionNotNeededError

    [elected] = admin.elect_leaders(0, {"read": [0]}, raise_errors=False).replica_election_results
    assert [each.error_code for each in elected.partition_result] == [ElectionNotNeededError.errno]
    assert admin.alter_partition_reassignments({TopicPartition("read", 0): [1]}) == {TopicPartition("read", 0): None}
    assert admin.update_features({"group.version": 1}, validate_only=True) == {"group.version": "OK"}
    admin.wait_for_topics(["read"])


def test_kafka_python_cannot_move_replica_to_missing_directory(admin: Any) -> None:
    from kafka.errors import LogDirNotFoundError

    results = admin.alter_replica_log_dirs({("read", 0, 1): "/elsewhere"})
    assert list(results.values()) == [LogDirNotFoundError]


def test_aiokafka_lists_and_describes_groups(servers: str, group: str) -> None:
    from aiokafka import TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient

    async def use() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            assert (group, "consumer") in await admin.list_consumer_groups()
            assert await admin.find_coordinator(group) == 1
            [described] = await admin.describe_consumer_groups([group])
            assert described.groups[0][1:4] == (group, "Empty", "consumer")
            offsets = await admin.list_consumer_group_offsets(group)
            assert offsets[TopicPartition("read", 0)].offset == 2
        finally:
            await admin.close()

    asyncio.run(use())
