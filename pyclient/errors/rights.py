"""The rights that requests need, by API and error code: brokers do not say which one was missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyclient.errors import security

__all__ = ["needed_right"]

_TOPIC: Final = security.TopicAuthorizationFailed.code
_GROUP: Final = security.GroupAuthorizationFailed.code
_CLUSTER: Final = security.ClusterAuthorizationFailed.code
_TXN: Final = security.TransactionalIdAuthorizationFailed.code
_TOKEN: Final = security.DelegationTokenAuthorizationFailed.code

_RESOURCES: Final[Mapping[int, str]] = {
    _TOPIC: "the topic",
    _GROUP: "the group",
    _CLUSTER: "the cluster",
    _TXN: "the transactional id",
    _TOKEN: "the owner of the token",
}
_NEEDED: Final[Mapping[str, Mapping[int, str]]] = {
    "AddOffsetsToTxn": {_TXN: "WRITE", _GROUP: "READ"},
    "AddPartitionsToTxn": {_TXN: "WRITE", _TOPIC: "WRITE"},
    "AddRaftVoter": {_CLUSTER: "ALTER"},
    "ConsumerGroupDescribe": {_GROUP: "DESCRIBE", _TOPIC: "DESCRIBE"},
    "ConsumerGroupHeartbeat": {_GROUP: "READ", _TOPIC: "DESCRIBE"},
    "CreateAcls": {_CLUSTER: "ALTER"},
    "CreateDelegationToken": {_TOKEN: "CREATE_TOKENS"},
    "CreatePartitions": {_TOPIC: "ALTER"},
    "CreateTopics": {_TOPIC: "CREATE (or CREATE on the cluster)", _CLUSTER: "CREATE"},
    "DeleteAcls": {_CLUSTER: "ALTER"},
    "DeleteGroups": {_GROUP: "DELETE"},
    "DeleteTopics": {_TOPIC: "DELETE"},
    "DescribeAcls": {_CLUSTER: "DESCRIBE"},
    "DescribeGroups": {_GROUP: "DESCRIBE"},
    "DescribeProducers": {_TOPIC: "READ"},
    "DescribeQuorum": {_CLUSTER: "DESCRIBE"},
    "DescribeTransactions": {_TXN: "DESCRIBE"},
    "EndTxn": {_TXN: "WRITE"},
    "Fetch": {_TOPIC: "READ"},
    "FindCoordinator": {_GROUP: "DESCRIBE", _TXN: "DESCRIBE"},
    "Heartbeat": {_GROUP: "READ"},
    "InitProducerId": {_TXN: "WRITE", _CLUSTER: "IDEMPOTENT_WRITE (or WRITE on a topic)"},
    "JoinGroup": {_GROUP: "READ"},
    "LeaveGroup": {_GROUP: "READ"},
    "ListOffsets": {_TOPIC: "DESCRIBE"},
    "Metadata": {_TOPIC: "DESCRIBE (and CREATE if it does not exist)"},
    "OffsetCommit": {_GROUP: "READ", _TOPIC: "READ"},
    "OffsetFetch": {_GROUP: "DESCRIBE", _TOPIC: "DESCRIBE"},
    "OffsetForLeaderEpoch": {_TOPIC: "DESCRIBE"},
    "Produce": {_TOPIC: "WRITE", _TXN: "WRITE", _CLUSTER: "IDEMPOTENT_WRITE (or WRITE on a topic)"},
    "RemoveRaftVoter": {_CLUSTER: "ALTER"},
    "SyncGroup": {_GROUP: "READ"},
    "TxnOffsetCommit": {_TXN: "WRITE", _GROUP: "READ", _TOPIC: "READ"},
    "WriteTxnMarkers": {_CLUSTER: "ALTER (or CLUSTER_ACTION)"},
}
"""Source: "Operations and Resources on Protocols" of Kafka's documentation, and `KafkaApis`."""


def needed_right(api: str, code: int) -> str:
    """Return the right that a request needs, for a broker's error code; empty if no right is missing."""
    operation = _NEEDED.get(api, {}).get(code)
    return f"this client's principal needs {operation} on {_RESOURCES[code]}" if operation else ""
