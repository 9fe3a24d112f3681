"""The highest version of each API that a release of Kafka advertises, for a node that looks like that release.

Facts of the releases' brokers in KRaft mode; 3.9 and 4.3 were measured. Only maxima are capped: a minimum below ours
would promise versions that are not served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyclient.broker_embedded.served_apis import SERVED
from pyclient.errors import ConfigError
from pyclient.protocol.versions import API_KEYS

RELEASES: Final = ("2.8", *(f"3.{minor}" for minor in range(10)), "4.0", "4.1", "4.2", "4.3")

_LAST: Final[dict[str, str]] = {
    "Produce": "2.8:9 3.7:10 3.8:11 4.0:12 4.1:13",
    "Fetch": "2.8:12 3.1:13 3.5:15 3.7:16 3.9:17 4.1:18",
    "ListOffsets": "2.8:6 3.0:7 3.5:8 3.9:9 4.0:10 4.2:11",
    "Metadata": "2.8:11 3.1:12 4.0:13",
    "OffsetCommit": "2.8:8 3.7:9 4.2:10",
    "OffsetFetch": "2.8:7 3.0:8 3.7:9 4.2:10",
    "FindCoordinator": "2.8:3 3.0:4 3.8:5 3.9:6",
    "JoinGroup": "2.8:7 3.2:9",
    "Heartbeat": "2.8:4",
    "LeaveGroup": "2.8:4 3.2:5",
    "SyncGroup": "2.8:5",
    "DescribeGroups": "2.8:5 4.0:6",
    "ListGroups": "2.8:4 3.8:5",
    "ApiVersions": "2.8:3 3.9:4",
    "CreateTopics": "2.8:7",
    "DeleteTopics": "2.8:6",
    "DeleteRecords": "2.8:2",
    "InitProducerId": "2.8:4 3.8:5",
    "AddPartitionsToTxn": "2.8:3 3.6:4 3.8:5",
    "AddOffsetsToTxn": "2.8:3 3.8:4",
    "EndTxn": "2.8:3 3.8:4 4.0:5",
    "WriteTxnMarkers": "2.8:1 4.2:2",
    "TxnOffsetCommit": "2.8:3 3.8:4 4.0:5",
    "OffsetForLeaderEpoch": "2.8:4",
    "DescribeAcls": "2.8:2 3.3:3",
    "CreateAcls": "2.8:2 3.3:3",
    "DeleteAcls": "2.8:2 3.3:3",
    "DescribeConfigs": "2.8:4",
    "AlterConfigs": "2.8:2",
    "DescribeLogDirs": "2.8:2 3.2:3 3.3:4 4.3:5",
    "AlterReplicaLogDirs": "2.8:2",
    "CreatePartitions": "2.8:3",
    "CreateDelegationToken": "3.6:3",
    "RenewDelegationToken": "3.6:2",
    "ExpireDelegationToken": "3.6:2",
    "DescribeDelegationToken": "3.6:3",
    "DeleteGroups": "2.8:2",
    "ElectLeaders": "2.8:2",
    "IncrementalAlterConfigs": "2.8:1",
    "AlterPartitionReassignments": "2.8:0 4.1:1",
    "ListPartitionReassignments": "2.8:0",
    "OffsetDelete": "2.8:0",
    "DescribeClientQuotas": "2.8:1",
    "AlterClientQuotas": "2.8:1",
    "DescribeUserScramCredentials": "2.8:0",
    "AlterUserScramCredentials": "2.8:0",
    "DescribeQuorum": "2.8:0 3.3:1 3.9:2",
    "UpdateFeatures": "2.8:0 3.3:1 4.0:2",
    "DescribeCluster": "2.8:0 3.7:1 4.0:2",
    "DescribeProducers": "2.8:0",
    "DescribeTransactions": "3.0:0",
    "ListTransactions": "3.0:0 3.8:1 4.1:2",
    "ConsumerGroupHeartbeat": "3.7:0 4.0:1",
    "ConsumerGroupDescribe": "3.8:0 4.0:1",
    "ListConfigResources": "3.7:0 4.1:1",
    "DescribeTopicPartitions": "3.8:0",
    "UnregisterBroker": "2.8:0",
    "AddRaftVoter": "3.9:0 4.2:1",
    "RemoveRaftVoter": "3.9:0",
}
"""API -> its highest versions, each with its first release. Earlier releases do not have the API."""

_FEATURES: Final[dict[str, str]] = {
    "metadata.version": "3.3:7 3.4:8 3.5:11 3.6:14 3.7:19 3.8:20 3.9:21 4.0:25 4.1:27 4.2:29 4.3:30",
    "group.version": "4.0:1",
    "kraft.version": "3.9:1",
    "transaction.version": "4.0:2",
    "eligible.leader.replicas.version": "4.0:1",
    "share.version": "4.1:1",
    "streams.version": "4.1:1",
}

_OLDEST_METADATA: Final = "2.8:1 4.0:7"


@dataclass(frozen=True, slots=True)
class Release:
    """A release that a node looks like. `versions` are the highest ones by API key, `features` the highest levels,
    which a new cluster has."""

    name: str
    versions: dict[int, int]
    features: dict[str, int]
    oldest_metadata: int
    """The lowest metadata.version that its brokers read."""

    def serves(self, api_key: int, version: int) -> bool:
        """Return True if a broker of the release serves that version."""
        return version <= self.versions.get(api_key, -1)


def release_of(text: str) -> Release:
    """Return the release of `text` ("3.9", "3.9.2"). Raise `ConfigError` for an unknown one."""
    name = ".".join(text.strip().split(".")[:2])
    if name not in RELEASES:
        raise ConfigError(f"as_version is {text!r}: it must be one of {', '.join(RELEASES)}")
    return Release(
        name,
        {API_KEYS[api]: last for api in SERVED if (last := _at(_LAST[api], name)) is not None},
        {feature: level for feature, steps in _FEATURES.items() if (level := _at(steps, name)) is not None},
        _at(_OLDEST_METADATA, name) or 1,
    )


def _at(steps: str, name: str) -> int | None:
    """Return the last number whose first release is not later than `name`."""
    found = None
    for step in steps.split():
        since, _, value = step.partition(":")
        if RELEASES.index(since) <= RELEASES.index(name):
            found = int(value)
    return found
