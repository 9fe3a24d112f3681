"""Every served version of every API succeeds, over a plain socket."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final
from uuid import UUID

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.protocol.versions import API_KEYS
from pyclient.records import build_batch
from tests.broker_embedded.odd.wire import Connection, IdOf, Lost, Names

TOPIC: Final = "every"
Fields = dict[str, Any]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Yield a broker."""
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def send(servers: str) -> Iterator[Callable[..., Any]]:
    """Return a function that sends a request: (API, version, fields) -> response.

    The broker has a topic with one record, two groups with committed offsets, and a consumer group with a member.
    """
    names = Names()
    with closing(Connection(servers)) as connection:

        def ask(api: str, version: int, fields: Fields) -> Any:
            return connection.ask_in_plain(api, version, names.filled(fields))

        creation = {"topics": [{"name": TOPIC, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 30_000}
        [topic] = ask("CreateTopics", 7, creation).topics
        names.note(TOPIC, topic.topic_id)
        for api, version, fields in (
            ("Produce", 9, WORK["Produce"]),
            ("FindCoordinator", 4, WORK["FindCoordinator"]),
            ("OffsetCommit", 9, WORK["OffsetCommit"]),
            ("OffsetCommit", 9, {**WORK["OffsetCommit"], "group_id": "forgotten"}),
            ("ConsumerGroupHeartbeat", 1, WORK["ConsumerGroupHeartbeat"]),
        ):
            assert errors_in(ask(api, version, fields)) == set(), api
        yield ask


def errors_in(response: Any) -> set[int]:
    """Return all nonzero error codes in a response."""
    return _codes(Names().plain(response)) - {0}


def _codes(value: Any) -> set[int]:
    if isinstance(value, list):
        return {code for each in value for code in _codes(each)}
    if not isinstance(value, dict):
        return set()
    return {value.get("error_code", 0)}.union(*map(_codes, value.values()))


def _topics(*names: str, **partition: Any) -> list[Fields]:
    """Return lists of topics, under all the names that a topic and its partitions have in one request or another."""
    return [
        {
            "name": TOPIC,
            "topic": TOPIC,
            "topic_id": IdOf(TOPIC),
            **{name: [{"index": 0, "partition": 0, "partition_index": 0, **partition}] for name in names},
        }
    ]


_RESOURCE: Final = {"resource_type": 2, "resource_name": TOPIC}
_ENTITY: Final = {"entity_type": "client-id", "entity_name": "app"}
_ACL: Final = {
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_name": "t",
    "resource_name_filter": "t",
    "resource_pattern_type": 3,
    "pattern_type": 3,
    "pattern_type_filter": 3,
    "principal": "User:a",
    "principal_filter": "User:a",
    "host": "*",
    "host_filter": "*",
    "operation": 3,
    "permission_type": 3,
}
_BATCH: Final = build_batch([(b"key", b"value")], timestamp_ms=1_700_000_000_000)
_NUMBERS: Final = {"topics": [{"topic": TOPIC, "name": TOPIC, "partitions": [0], "partition_indexes": [0]}]}

WORK: Final[dict[str, Fields]] = {
    "Produce": {"acks": -1, "timeout_ms": 5000, "topic_data": _topics("partition_data", records=_BATCH)},
    "Fetch": {"replica_id": -1, "session_epoch": -1, "max_bytes": 1 << 20}
    | {"topics": _topics("partitions", partition_max_bytes=1 << 20)},
    "ListOffsets": {"replica_id": -1, "topics": _topics("partitions", timestamp=-1)},
    "Metadata": {"topics": [{"name": TOPIC}]},
    "OffsetCommit": {"group_id": "g", "generation_id_or_member_epoch": -1, "retention_time_ms": -1}
    | {"topics": _topics("partitions", committed_offset=1)},
    "OffsetFetch": {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    | {"groups": [{"group_id": "g", "member_epoch": -1, "topics": None}]},
    "FindCoordinator": {"key": "g", "coordinator_keys": ["g"]},
    "JoinGroup": {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
    | {"protocols": [{"name": "range", "metadata": b""}]},
    "DescribeGroups": {"groups": ["g"]},
    "ListGroups": {},
    "ApiVersions": {"client_software_name": "raw", "client_software_version": "1"},
    "CreateTopics": {"topics": [{"name": "more", "num_partitions": 1, "replication_factor": 1}], "validate_only": True},
    "InitProducerId": {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
    "WriteTxnMarkers": {"markers": []},
    "DescribeTransactions": {"transactional_ids": []},
    "ListTransactions": {"duration_filter": -1},
    "OffsetForLeaderEpoch": {"replica_id": -1, "topics": _topics("partitions", current_leader_epoch=-1)},
    "DescribeConfigs": {"resources": [_RESOURCE]},
    "AlterConfigs": {"resources": [{**_RESOURCE, "configs": [{"name": "retention.ms", "value": "7"}]}]},
    "IncrementalAlterConfigs": {"resources": [{**_RESOURCE, "configs": [{"name": "retention.ms", "value": "8"}]}]},
    "ListConfigResources": {},
    "CreatePartitions": {"topics": [{"name": TOPIC, "count": 2, "assignments": None}], "validate_only": True},
    "OffsetDelete": {"group_id": "forgotten", "topics": _topics("partitions")},
    "ConsumerGroupHeartbeat": {"group_id": "new", "member_id": "m", "rebalance_timeout_ms": 5000}
    | {"subscribed_topic_names": [TOPIC], "topic_partitions": []},
    "ConsumerGroupDescribe": {"group_ids": ["new"]},
    "DescribeCluster": {"endpoint_type": 1},
    "DeleteRecords": {"topics": _topics("partitions", offset=0)},
    "DescribeAcls": _ACL,
    "CreateAcls": {"creations": [_ACL]},
    "DeleteAcls": {"filters": [_ACL]},
    "DescribeLogDirs": {"topics": None},
    "AlterReplicaLogDirs": {"dirs": []},
    "ElectLeaders": {"topic_partitions": _NUMBERS["topics"]},
    "AlterPartitionReassignments": {"topics": _topics("partitions", replicas=[1])},
    "ListPartitionReassignments": {"topics": None},
    "DescribeClientQuotas": {"components": []},
    "AlterClientQuotas": {"entries": [{"entity": [_ENTITY], "ops": [{"key": "producer_byte_rate", "value": 1e9}]}]},
    "DescribeUserScramCredentials": {"users": None},
    "AlterUserScramCredentials": {
        "upsertions": [{"name": "u", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}]
    },
    "CreateDelegationToken": {"renewers": [{"principal_type": "User", "principal_name": "u"}], "max_lifetime_ms": -1},
    "RenewDelegationToken": {"hmac": b"h" * 64, "renew_period_ms": -1},
    "ExpireDelegationToken": {"hmac": b"h" * 64, "expiry_time_period_ms": -1},
    "DescribeDelegationToken": {"owners": None},
    "DescribeQuorum": {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    "UpdateFeatures": {
        "feature_updates": [{"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}],
    },
    "UnregisterBroker": {"broker_id": 9},
    "AddRaftVoter": {
        "cluster_id": None,
        "timeout_ms": 1000,
        "voter_id": 9,
        "voter_directory_id": UUID(int=1000),
        "listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}],
    },
    "RemoveRaftVoter": {"cluster_id": None, "voter_id": 9, "voter_directory_id": UUID(int=1000)},
    "DescribeProducers": _NUMBERS,
    "DescribeTopicPartitions": {"topics": [{"name": TOPIC}], "response_partition_limit": 10},
}
"""Fields of requests that no version refuses. Fields that a version does not have are not sent."""

IN_STEPS: Final = {"SyncGroup", "Heartbeat", "LeaveGroup", "DeleteGroups", "DeleteTopics"} | {
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
}
"""Requests that need an own member, group, topic or transaction for each version; sent together with others."""

OTHERWISE: Final = {
    **dict.fromkeys(("DescribeAcls", "CreateAcls", "DeleteAcls"), errors.SecurityDisabled.code),
    **dict.fromkeys(
        (f"{call}DelegationToken" for call in ("Create", "Renew", "Expire", "Describe")),
        errors.DelegationTokenRequestNotAllowed.code,
    ),
    "ElectLeaders": errors.ElectionNotNeeded.code,
    "UnregisterBroker": errors.BrokerIdNotRegistered.code,
    "AddRaftVoter": errors.UnsupportedVersion.code,
    "RemoveRaftVoter": errors.UnsupportedVersion.code,
}
"""The expected errors of a single-broker cluster without ACLs and authentication."""


@pytest.mark.parametrize("api", sorted(SERVED.keys() - IN_STEPS - {"JoinGroup"}))
def test_every_version_succeeds(send: Callable[..., Any], api: str) -> None:
    for version in range(SERVED[api].first, SERVED[api].last + 1):
        found = errors_in(send(api, version, WORK[api]))
        assert found == ({OTHERWISE[api]} if api in OTHERWISE else set()), f"{api} v{version}"


@pytest.mark.parametrize("version", range(SERVED["JoinGroup"].last + 1))
def test_member_joins_and_leaves_in_every_version(send: Callable[..., Any], version: int) -> None:
    group = f"joined-{version}"

    def ask(api: str, **fields: Any) -> Any:
        return send(api, min(version, SERVED[api].last), {"group_id": group, **fields})

    joined = ask("JoinGroup", **WORK["JoinGroup"])
    if version >= 4:  # a new member first receives its id
        assert joined.error_code == errors.MemberIdRequired.code
        joined = ask("JoinGroup", **WORK["JoinGroup"], member_id=joined.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    member = {"generation_id": 1, "member_id": joined.member_id}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    synced = ask("SyncGroup", **member, **protocol, assignments=[{**member, "assignment": b"all of it"}])
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"all of it")
    assert ask("Heartbeat", **member).error_code == 0
    assert errors_in(ask("LeaveGroup", **member, members=[{**member, "group_instance_id": None}])) == set()
    assert ask("Heartbeat", **member).error_code == errors.UnknownMemberId.code
    assert errors_in(ask("DeleteGroups", groups_names=[group])) == set()
    assert errors_in(ask("DeleteGroups", groups_names=[group])) == {errors.GroupIdNotFound.code}


@pytest.mark.parametrize("version", range(SERVED["DeleteTopics"].first, SERVED["DeleteTopics"].last + 1))
def test_topic_is_deleted_in_every_version(send: Callable[..., Any], version: int) -> None:
    name = f"deletion-{version}"
    creation = {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 30_000}
    assert errors_in(send("CreateTopics", 7, creation)) == set()
    deletion = {"topic_names": [name], "topics": [{"name": name}], "timeout_ms": 30_000}
    assert errors_in(send("DeleteTopics", version, deletion)) == set()
    assert errors_in(send("DeleteTopics", version, deletion)) == {errors.UnknownTopicOrPartition.code}


@pytest.mark.parametrize("version", range(6))
def test_transaction_is_served_in_every_version(send: Callable[..., Any], version: int) -> None:
    mine = {"transactional_id": f"id-{version}", "transaction_timeout_ms": 60_000, "group_id": "g"}

    def ask(api: str, **fields: Any) -> Any:
        known = max(version, 1) if api == "FindCoordinator" else version  # version 0 finds those of groups only
        answer = send(api, min(known, SERVED[api].last), {**mine, **fields})
        assert errors_in(answer) == set(), api
        return answer

    ask("FindCoordinator", key=mine["transactional_id"], key_type=1, coordinator_keys=[mine["transactional_id"]])
    begun = ask("InitProducerId", producer_id=-1, producer_epoch=-1)
    mine |= {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    topics = [{"name": TOPIC, "partitions": [0]}]
    old = {f"v3_and_below_{name}": mine[name] for name in ("transactional_id", "producer_id", "producer_epoch")}
    new = {"transactions": [{**mine, "verify_only": False, "topics": topics}]}
    ask("AddPartitionsToTxn", **old, **new, v3_and_below_topics=topics)
    ask("AddOffsetsToTxn")
    ask("TxnOffsetCommit", generation_id=-1, topics=_topics("partitions", committed_offset=1))
    ask("EndTxn", committed=True)
    assert ask("ListTransactions", producer_id_filters=[begun.producer_id], duration_filter=-1).transaction_states


def test_every_served_api_is_tested() -> None:
    assert WORK.keys() | IN_STEPS == SERVED.keys()
    assert not WORK.keys() & IN_STEPS


def test_unserved_version_is_neither_advertised_nor_answered(send: Callable[..., Any], servers: str) -> None:
    advertised = {each.api_key: (each.min_version, each.max_version) for each in send("ApiVersions", 0, {}).api_keys}
    assert advertised == {API_KEYS[name]: (served.advertised_first, served.last) for name, served in SERVED.items()}
    for key in set(range(100)) - advertised.keys():
        with closing(Connection(servers)) as connection, pytest.raises(Lost, match="closed"):
            connection.ask(struct.pack(">ihhih", 12, key, 0, 1, 2) + b"me")
