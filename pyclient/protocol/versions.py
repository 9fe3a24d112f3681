"""The table of APIs, and the negotiation of versions.

The table names every API without importing its module: a client uses about twenty of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from pyclient.errors import ProtocolError, UnsupportedVersion
from pyclient.protocol.fields import Request, Response

_APIS: Final[dict[int, tuple[str, int | None]]] = {
    # key: (name, first flexible version)
    0: ("Produce", 9),
    1: ("Fetch", 12),
    2: ("ListOffsets", 6),
    3: ("Metadata", 9),
    8: ("OffsetCommit", 8),
    9: ("OffsetFetch", 6),
    10: ("FindCoordinator", 3),
    11: ("JoinGroup", 6),
    12: ("Heartbeat", 4),
    13: ("LeaveGroup", 4),
    14: ("SyncGroup", 4),
    15: ("DescribeGroups", 5),
    16: ("ListGroups", 3),
    17: ("SaslHandshake", None),
    18: ("ApiVersions", 3),
    19: ("CreateTopics", 5),
    20: ("DeleteTopics", 4),
    21: ("DeleteRecords", 2),
    22: ("InitProducerId", 2),
    23: ("OffsetForLeaderEpoch", 4),
    24: ("AddPartitionsToTxn", 3),
    25: ("AddOffsetsToTxn", 3),
    26: ("EndTxn", 3),
    27: ("WriteTxnMarkers", 1),
    28: ("TxnOffsetCommit", 3),
    29: ("DescribeAcls", 2),
    30: ("CreateAcls", 2),
    31: ("DeleteAcls", 2),
    32: ("DescribeConfigs", 4),
    33: ("AlterConfigs", 2),
    34: ("AlterReplicaLogDirs", 2),
    35: ("DescribeLogDirs", 2),
    36: ("SaslAuthenticate", 2),
    37: ("CreatePartitions", 2),
    38: ("CreateDelegationToken", 2),
    39: ("RenewDelegationToken", 2),
    40: ("ExpireDelegationToken", 2),
    41: ("DescribeDelegationToken", 2),
    42: ("DeleteGroups", 2),
    43: ("ElectLeaders", 2),
    44: ("IncrementalAlterConfigs", 1),
    45: ("AlterPartitionReassignments", 0),
    46: ("ListPartitionReassignments", 0),
    47: ("OffsetDelete", None),
    48: ("DescribeClientQuotas", 1),
    49: ("AlterClientQuotas", 1),
    50: ("DescribeUserScramCredentials", 0),
    51: ("AlterUserScramCredentials", 0),
    52: ("Vote", 0),
    53: ("BeginQuorumEpoch", 1),
    54: ("EndQuorumEpoch", 1),
    55: ("DescribeQuorum", 0),
    56: ("AlterPartition", 0),
    57: ("UpdateFeatures", 0),
    58: ("Envelope", 0),
    59: ("FetchSnapshot", 0),
    60: ("DescribeCluster", 0),
    61: ("DescribeProducers", 0),
    62: ("BrokerRegistration", 0),
    63: ("BrokerHeartbeat", 0),
    64: ("UnregisterBroker", 0),
    65: ("DescribeTransactions", 0),
    66: ("ListTransactions", 0),
    67: ("AllocateProducerIds", 0),
    68: ("ConsumerGroupHeartbeat", 0),
    69: ("ConsumerGroupDescribe", 0),
    70: ("ControllerRegistration", 0),
    71: ("GetTelemetrySubscriptions", 0),
    72: ("PushTelemetry", 0),
    73: ("AssignReplicasToDirs", 0),
    74: ("ListConfigResources", 0),
    75: ("DescribeTopicPartitions", 0),
    80: ("AddRaftVoter", 0),
    81: ("RemoveRaftVoter", 0),
    82: ("UpdateRaftVoter", 0),
}

API_KEYS: Final[dict[str, int]] = {name: key for key, (name, _) in _APIS.items()}
"""API name, e.g. `Produce` -> API key."""


class UnknownApi(ProtocolError, LookupError):
    """No API that this library supports has this key."""


def api_name(api_key: int) -> str:
    """Return the name of an API, e.g. `Produce`. Raise UnknownApi if none has this key."""
    return _entry(api_key)[0]


def is_flexible(api_key: int, version: int) -> bool:
    """Return True if this version of the API has tagged fields, in its body and its request header."""
    flexible = _entry(api_key)[1]
    return flexible is not None and version >= flexible


def request_class(api_key: int) -> type[Request[Any]]:
    """Return the request class of an API, importing its module. Raise UnknownApi if none has this key."""
    name = api_name(api_key)
    cls: type[Request[Any]] = getattr(import_module(f"pyclient.protocol.messages.{_module(name)}"), f"{name}Request")
    return cls


def negotiate(
    cls: type[Request[Any]] | type[Response],
    broker_ranges: Mapping[int, tuple[int, int]],
    maximum: int | None = None,
) -> int:
    """Return the highest version that the declaration, the broker's range and `maximum` have in common.

    `broker_ranges` is the broker's ApiVersions response: API key -> (lowest, highest). Raise UnsupportedVersion, which
    names the API and both ranges, if there is none.
    """
    lowest, highest = cls.versions
    if maximum is not None:
        highest = min(highest, maximum)
    offered = broker_ranges.get(cls.api_key)
    if offered is None:
        raise UnsupportedVersion(f"the broker does not offer {cls.name}; this client supports {lowest} to {highest}")
    version = min(highest, offered[1])
    if version < max(lowest, offered[0]):
        raise UnsupportedVersion(
            f"{cls.name}: the broker offers versions {offered[0]} to {offered[1]}, this client {lowest} to {highest}"
        )
    return version


def _entry(api_key: int) -> tuple[str, int | None]:
    try:
        return _APIS[api_key]
    except KeyError:
        raise UnknownApi(f"no API with key {api_key} is known") from None


def _module(name: str) -> str:
    """DescribeLogDirs -> describe_log_dirs."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
