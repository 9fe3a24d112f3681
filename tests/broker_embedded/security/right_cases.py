"""The rights that each API needs: a request, its rights, and the error without one of them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

from pyclient import errors
from pyclient.acls import CLUSTER_NAME, AclBinding, AclOperation, AclPermission, ResourceType
from pyclient.records import build_batch

TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
SEE, SET = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

NO_TOPIC: Final = errors.TopicAuthorizationFailed.code
NO_GROUP: Final = errors.GroupAuthorizationFailed.code
NO_CLUSTER: Final = errors.ClusterAuthorizationFailed.code
NO_TXN: Final = errors.TransactionalIdAuthorizationFailed.code
REFUSALS: Final = frozenset({NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TXN})

GIVEN: Final = ("without", "denied", "with")
"""The three ways to run a case: alice is without the tested right, denied it, or has it."""

_NAMES: Final = {TOPIC: "rights", GROUP: "rights-group", CLUSTER: CLUSTER_NAME, TXN: "rights-txn"}
_OF_GROUP: Final[dict[str, Any]] = {"group_id": "rights-group", "generation_id": 1, "member_id": "m"}
_OF_TXN: Final[dict[str, Any]] = {"transactional_id": "rights-txn", "producer_id": 1, "producer_epoch": 0}


class Right(NamedTuple):
    """An operation on a resource."""

    kind: ResourceType
    operation: AclOperation

    @property
    def name(self) -> str:
        return _NAMES[self.kind]

    def acl(self, permission: AclPermission = AclPermission.ALLOW) -> AclBinding:
        return AclBinding(self.kind, self.name, "User:alice", self.operation, permission)


class Case(NamedTuple):
    """A request that needs all of `rights`; `tested` is the one that is taken away, which gives `refusal`."""

    api: str
    version: int
    fields: dict[str, Any]
    tested: Right
    refusal: int
    others: tuple[Right, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.api}-{self.version}-{self.tested.operation.name}-{self.tested.kind.name}"

    def acls(self, given: str) -> list[AclBinding]:
        """Return alice's ACLs without the right that is tested, with it, or with it and a DENY of it."""
        acls = [each.acl() for each in self.others]
        if given != "without":
            acls.append(self.tested.acl())
        if given == "denied":
            acls.append(self.tested.acl(AclPermission.DENY))
        return acls


def _topic(operation: AclOperation, api: str, version: int, fields: dict[str, Any], *others: Right) -> Case:
    return Case(api, version, fields, Right(TOPIC, operation), NO_TOPIC, others)


def _group(operation: AclOperation, api: str, version: int, fields: dict[str, Any], *others: Right) -> Case:
    return Case(api, version, fields, Right(GROUP, operation), NO_GROUP, others)


def _cluster(operation: AclOperation, api: str, version: int, fields: dict[str, Any], *others: Right) -> Case:
    return Case(api, version, fields, Right(CLUSTER, operation), NO_CLUSTER, others)


def _txn(operation: AclOperation, api: str, version: int, fields: dict[str, Any], *others: Right) -> Case:
    return Case(api, version, fields, Right(TXN, operation), NO_TXN, others)


_PARTITION: Final = {"partition_index": 0}
_NAMED: Final = {"name": "rights"}
_ANY_ACL: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": "none",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_READ_GROUP, _READ_TOPIC, _WRITE_TXN = Right(GROUP, READ), Right(TOPIC, READ), Right(TXN, WRITE)
_SEE_TOPIC, _SEE_GROUP = Right(TOPIC, DESCRIBE), Right(GROUP, DESCRIBE)


def _fetch(version: int) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "log_start_offset": -1}
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "rights", "partitions": [partition]}],
        "forgotten_topics_data": [],
    }


def _commit(extra: dict[str, Any]) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    return {**extra, "topics": [{"name": "rights", "partitions": partitions}]}


def _config(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, **more}]}


_TXN_OFFSETS: Final = _commit(
    {"transactional_id": "rights-txn", "group_id": "rights-group", "producer_id": 1, "producer_epoch": 0}
)
_OLD_TXN: Final = {
    "v3_and_below_transactional_id": "rights-txn",
    "v3_and_below_producer_id": 1,
    "v3_and_below_producer_epoch": 0,
    "v3_and_below_topics": [{"name": "rights", "partitions": [0]}],
}
_NEW_TXN: Final = {
    **_OF_TXN,
    "verify_only": False,
    "topics": [{"name": "rights", "partitions": [0]}],
}
_SYNC: Final = {**_OF_GROUP, "assignments": []}
_JOIN: Final = {
    "group_id": "rights-group",
    "session_timeout_ms": 6000,
    "rebalance_timeout_ms": 6000,
    "member_id": "unknown",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}
_HEARTBEAT: Final = {
    "group_id": "rights-group",
    "member_id": "member",
    "member_epoch": 7,
    "rebalance_timeout_ms": -1,
    "subscribed_topic_names": ["rights"],
    "server_assignor": None,
    "topic_partitions": None,
}
_NO_SUCH_BROKER: Final = 99
_TXN_BATCH: Final = build_batch(
    [(None, b"1")], timestamp_ms=1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
)

_DESCRIBE_CONSUMERS: Final = {"group_ids": ["rights-group"], "include_authorized_operations": False}
_NEW_TOPIC: Final = {**_NAMED, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
_COMMIT: Final = _commit({"group_id": "rights-group", "generation_id_or_member_epoch": -1, "member_id": ""})

CASES: Final = (
    _topic(READ, "Fetch", 12, _fetch(12)),
    _topic(READ, "Fetch", 4, _fetch(4)),
    _topic(
        DESCRIBE,
        "ListOffsets",
        5,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "rights", "partitions": [{**_PARTITION, "timestamp": -1}]}],
        },
    ),
    *(_topic(DESCRIBE, "Metadata", version, {"topics": [_NAMED]}) for version in (1, 4, 9, 12)),
    _topic(
        DESCRIBE, "DescribeTopicPartitions", 0, {"topics": [_NAMED], "response_partition_limit": 10, "cursor": None}
    ),
    _topic(
        DESCRIBE,
        "OffsetForLeaderEpoch",
        4,
        {"replica_id": -1, "topics": [{"topic": "rights", "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
    ),
    *(
        each
        for version in (2, 8, 9)
        for each in (
            _group(READ, "OffsetCommit", version, _COMMIT, _READ_TOPIC),
            _topic(READ, "OffsetCommit", version, _COMMIT, _READ_GROUP),
        )
    ),
    *(
        each
        for version, fields in (
            (2, {"group_id": "rights-group", "topics": [{"name": "rights", "partition_indexes": [0]}]}),
            (7, {"group_id": "rights-group", "topics": [{"name": "rights", "partition_indexes": [0]}]}),
            (
                8,
                {"groups": [{"group_id": "rights-group", "topics": [{"name": "rights", "partition_indexes": [0]}]}]},
            ),
        )
        for each in (
            _group(DESCRIBE, "OffsetFetch", version, fields, _SEE_TOPIC),
            _topic(DESCRIBE, "OffsetFetch", version, fields, _SEE_GROUP),
        )
    ),
    _group(
        DELETE,
        "OffsetDelete",
        0,
        {"group_id": "rights-group", "topics": [{"name": "rights", "partitions": [_PARTITION]}]},
        _READ_TOPIC,
    ),
    _group(DESCRIBE, "FindCoordinator", 3, {"key": "rights-group", "key_type": 0}),
    _group(DESCRIBE, "FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["rights-group"]}),
    _txn(DESCRIBE, "FindCoordinator", 3, {"key": "rights-txn", "key_type": 1}),
    _txn(DESCRIBE, "FindCoordinator", 5, {"key_type": 1, "coordinator_keys": ["rights-txn"]}),
    _group(READ, "JoinGroup", 5, _JOIN),
    _group(READ, "JoinGroup", 9, _JOIN),
    _group(READ, "SyncGroup", 3, _SYNC),
    _group(READ, "SyncGroup", 5, {**_SYNC, "protocol_type": "consumer", "protocol_name": "range"}),
    _group(READ, "Heartbeat", 0, _OF_GROUP),
    _group(READ, "Heartbeat", 4, _OF_GROUP),
    _group(READ, "LeaveGroup", 1, {"group_id": "rights-group", "member_id": "m"}),
    _group(READ, "LeaveGroup", 4, {"group_id": "rights-group", "members": [{"member_id": "m"}]}),
    _group(READ, "ConsumerGroupHeartbeat", 0, _HEARTBEAT, _SEE_TOPIC),
    _topic(DESCRIBE, "ConsumerGroupHeartbeat", 0, _HEARTBEAT, _READ_GROUP),
    _group(DESCRIBE, "DescribeGroups", 0, {"groups": ["rights-group"]}),
    _group(DESCRIBE, "DescribeGroups", 5, {"groups": ["rights-group"]}),
    _group(DESCRIBE, "ConsumerGroupDescribe", 0, _DESCRIBE_CONSUMERS),
    _group(DELETE, "DeleteGroups", 1, {"groups_names": ["rights-group"]}),
    _topic(
        CREATE,
        "CreateTopics",
        5,
        {
            "topics": [
                {"name": "rights", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            ],
            "timeout_ms": 9000,
            "validate_only": True,
        },
    ),
    Case(
        "CreateTopics",
        5,
        {"topics": [_NEW_TOPIC], "timeout_ms": 9000, "validate_only": True},
        Right(CLUSTER, CREATE),
        NO_TOPIC,
    ),
    _topic(
        ALTER,
        "CreatePartitions",
        2,
        {
            "topics": [{"name": "rights", "count": 1, "assignments": None}],
            "timeout_ms": 9000,
            "validate_only": True,
        },
    ),
    _topic(
        DELETE,
        "DeleteRecords",
        1,
        {"topics": [{"name": "rights", "partitions": [{**_PARTITION, "offset": 0}]}], "timeout_ms": 9000},
    ),
    _topic(DELETE, "DeleteTopics", 5, {"topic_names": ["rights"], "timeout_ms": 9000}),
    _topic(DELETE, "DeleteTopics", 6, {"topics": [{"name": "rights", "topic_id": UUID(int=0)}], "timeout_ms": 9000}),
    _txn(WRITE, "InitProducerId", 1, {"transactional_id": "rights-txn", "transaction_timeout_ms": 9000}),
    _cluster(
        AclOperation.IDEMPOTENT_WRITE, "InitProducerId", 1, {"transactional_id": None, "transaction_timeout_ms": 9000}
    ),
    _txn(WRITE, "AddPartitionsToTxn", 1, _OLD_TXN, Right(TOPIC, WRITE)),
    _topic(WRITE, "AddPartitionsToTxn", 1, _OLD_TXN, _WRITE_TXN),
    _cluster(ACTION, "AddPartitionsToTxn", 4, {"transactions": [_NEW_TXN]}),
    _txn(WRITE, "AddOffsetsToTxn", 1, {**_OF_TXN, "group_id": "rights-group"}, _READ_GROUP),
    _group(READ, "AddOffsetsToTxn", 1, {**_OF_TXN, "group_id": "rights-group"}, _WRITE_TXN),
    _txn(WRITE, "EndTxn", 1, {**_OF_TXN, "committed": True}),
    _txn(WRITE, "TxnOffsetCommit", 2, _TXN_OFFSETS, _READ_GROUP, _READ_TOPIC),
    _group(READ, "TxnOffsetCommit", 2, _TXN_OFFSETS, _WRITE_TXN, _READ_TOPIC),
    _topic(READ, "TxnOffsetCommit", 2, _TXN_OFFSETS, _WRITE_TXN, _READ_GROUP),
    _topic(READ, "DescribeProducers", 0, {"topics": [{"name": "rights", "partition_indexes": [0]}]}),
    _txn(DESCRIBE, "DescribeTransactions", 0, {"transactional_ids": ["rights-txn"]}),
    _topic(SEE, "DescribeConfigs", 2, _config(2, "rights", configuration_keys=["retention.ms"])),
    _cluster(SEE, "DescribeConfigs", 2, _config(4, "1", configuration_keys=["num.partitions"])),
    _group(SEE, "DescribeConfigs", 4, _config(32, "rights-group", configuration_keys=None)),
    _topic(SET, "AlterConfigs", 1, {**_config(2, "rights", configs=[]), "validate_only": True}),
    _cluster(SET, "AlterConfigs", 1, {**_config(4, "1", configs=[]), "validate_only": True}),
    _topic(SET, "IncrementalAlterConfigs", 0, {**_config(2, "rights", configs=[]), "validate_only": True}),
    _cluster(SET, "IncrementalAlterConfigs", 1, {**_config(4, "1", configs=[]), "validate_only": True}),
    _cluster(SEE, "ListConfigResources", 0, {}),
    _cluster(DESCRIBE, "DescribeAcls", 1, _ANY_ACL),
    _cluster(DESCRIBE, "DescribeAcls", 3, _ANY_ACL),
    _cluster(ALTER, "DeleteAcls", 2, {"filters": [_ANY_ACL]}),
    _cluster(
        ALTER,
        "CreateAcls",
        2,
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": "",
                    "resource_pattern_type": 3,
                    "principal": "User:x",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
    ),
    _cluster(DESCRIBE, "DescribeLogDirs", 4, {"topics": []}),
    _cluster(
        ALTER,
        "AlterReplicaLogDirs",
        1,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": "rights", "partitions": [0]}]}]},
    ),
    _cluster(
        ALTER,
        "ElectLeaders",
        2,
        {"election_type": 0, "topic_partitions": [{"topic": "rights", "partitions": [0]}], "timeout_ms": 9000},
    ),
    _cluster(ALTER, "AlterPartitionReassignments", 0, {"timeout_ms": 9000, "topics": []}),
    _cluster(DESCRIBE, "ListPartitionReassignments", 0, {"timeout_ms": 9000, "topics": None}),
    _cluster(SEE, "DescribeClientQuotas", 0, {"components": [], "strict": False}),
    _cluster(
        SET,
        "AlterClientQuotas",
        0,
        {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}],
            "validate_only": True,
        },
    ),
    _cluster(DESCRIBE, "DescribeUserScramCredentials", 0, {"users": [{"name": "nobody"}]}),
    _cluster(
        ALTER,
        "AlterUserScramCredentials",
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
    ),
    _cluster(
        DESCRIBE,
        "DescribeQuorum",
        0,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [_PARTITION]}]},
    ),
    _cluster(ALTER, "UpdateFeatures", 1, {"timeout_ms": 9000, "feature_updates": [], "validate_only": True}),
    _cluster(ALTER, "UnregisterBroker", 0, {"broker_id": _NO_SUCH_BROKER}),
    _cluster(
        ALTER,
        "AddRaftVoter",
        0,
        {
            "cluster_id": None,
            "timeout_ms": 9000,
            "voter_id": _NO_SUCH_BROKER,
            "voter_directory_id": UUID(int=9),
            "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 1}],
        },
    ),
    _cluster(
        ALTER,
        "RemoveRaftVoter",
        0,
        {"cluster_id": None, "voter_id": _NO_SUCH_BROKER, "voter_directory_id": UUID(int=9)},
    ),
    _cluster(
        ACTION,
        "WriteTxnMarkers",
        1,
        {
            "markers": [
                {
                    "producer_id": 1,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "topics": [{"name": "rights", "partition_indexes": [9]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
    ),
    Case(
        "Produce",
        7,
        {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": 9000,
            "topic_data": [{"name": "rights", "partition_data": [{"index": 0, "records": b""}]}],
        },
        Right(TOPIC, WRITE),
        NO_TOPIC,
    ),
    _txn(
        WRITE,
        "Produce",
        7,
        {
            "transactional_id": "rights-txn",
            "acks": -1,
            "timeout_ms": 9000,
            "topic_data": [{"name": "rights", "partition_data": [{"index": 0, "records": _TXN_BATCH}]}],
        },
        Right(TOPIC, WRITE),
    ),
)
"""One for each API and right, and for versions whose answers have other places for errors."""

WITHOUT_A_CASE: Final = {
    "ApiVersions": "needs no right",
    "SaslHandshake": "needs no right",
    "SaslAuthenticate": "needs no right",
    "DescribeCluster": "is never refused: test_rights_in_answers.py",
    "ListGroups": "is never refused: test_rights_in_answers.py",
    "ListTransactions": "is never refused: test_rights_in_answers.py",
    "CreateDelegationToken": "needs other rights: test_delegation_tokens.py",
    "RenewDelegationToken": "is for the token's owner and renewers: test_delegation_tokens.py",
    "ExpireDelegationToken": "is for the token's owner and renewers: test_delegation_tokens.py",
    "DescribeDelegationToken": "is never refused to a client that has logged in: test_delegation_tokens.py",
    **dict.fromkeys(
        (
            "AllocateProducerIds",
            "AlterPartition",
            "AssignReplicasToDirs",
            "BeginQuorumEpoch",
            "BrokerHeartbeat",
            "BrokerRegistration",
            "ControllerRegistration",
            "EndQuorumEpoch",
            "Envelope",
            "FetchSnapshot",
            "UpdateRaftVoter",
            "Vote",
        ),
        "is served on listeners of controllers: test_rights_of_nodes.py",
    ),
}
"""The other APIs, and why they have no case."""
