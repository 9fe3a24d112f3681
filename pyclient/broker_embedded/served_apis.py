"""The table of served APIs: the module that handles each, and the versions, from which ApiVersions answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import Final


class ListenerType(Flag):
    """The peers that connect to a listener: clients and brokers, or nodes of the quorum to a controller.

    SASL and SASL_CONTROLLER are those at which they authenticate themselves.
    """

    CLIENT = auto()
    CONTROLLER = auto()
    SASL = auto()
    SASL_CONTROLLER = auto()


@dataclass(frozen=True, slots=True)
class Served:
    """One API: the module in `handlers/` that serves it, and the versions.

    `listed` is the minimum that ApiVersions reports, if it differs from the first served version; `listeners` are those
    that serve it.
    """

    module: str
    first: int
    last: int
    listed: int | None = None
    listeners: ListenerType = ListenerType.CLIENT

    @property
    def advertised_first(self) -> int:
        """Return the minimum that ApiVersions reports."""
        return self.first if self.listed is None else self.listed


OF_CONTROLLERS: Final = ListenerType.CONTROLLER | ListenerType.SASL_CONTROLLER
_BOTH: Final = ListenerType.CLIENT | ListenerType.CONTROLLER

_APIS: Final[dict[str, Served]] = {
    "Produce": Served("produce", 3, 13, listed=0),  # librdkafka < 2.11.1 stops compressing when the minimum is above 0
    "Fetch": Served("fetch", 4, 18),
    "ListOffsets": Served("list_offsets", 1, 11),
    "Metadata": Served("metadata", 0, 13),
    "OffsetCommit": Served("offset_commit", 2, 10),
    "OffsetFetch": Served("offset_fetch", 1, 10),
    "FindCoordinator": Served("find_coordinator", 0, 6),
    "JoinGroup": Served("join_group", 0, 9),
    "Heartbeat": Served("heartbeat", 0, 4),
    "LeaveGroup": Served("leave_group", 0, 5),
    "SyncGroup": Served("sync_group", 0, 5),
    "DescribeGroups": Served("describe_groups", 0, 6),
    "ListGroups": Served("list_groups", 0, 5),
    "ApiVersions": Served("api_versions", 0, 4, listeners=_BOTH),
    "CreateTopics": Served("create_topics", 2, 7, listeners=_BOTH),
    "DeleteTopics": Served("delete_topics", 1, 6, listeners=_BOTH),
    "InitProducerId": Served("init_producer_id", 0, 5),
    "AddPartitionsToTxn": Served("add_partitions_to_txn", 0, 5),
    "AddOffsetsToTxn": Served("add_offsets_to_txn", 0, 4),
    "EndTxn": Served("end_txn", 0, 5),
    "WriteTxnMarkers": Served("write_txn_markers", 1, 2),
    "TxnOffsetCommit": Served("txn_offset_commit", 0, 5),
    "OffsetForLeaderEpoch": Served("offset_for_leader_epoch", 2, 4),
    "DescribeConfigs": Served("describe_configs", 1, 4, listeners=_BOTH),
    "AlterConfigs": Served("alter_configs", 0, 2, listeners=_BOTH),
    "IncrementalAlterConfigs": Served("incremental_alter_configs", 0, 1, listeners=_BOTH),
    "ListConfigResources": Served("list_config_resources", 0, 1),
    "CreatePartitions": Served("create_partitions", 0, 3, listeners=_BOTH),
    "CreateDelegationToken": Served("create_delegation_token", 1, 3, listeners=_BOTH),
    "RenewDelegationToken": Served("renew_delegation_token", 1, 2, listeners=_BOTH),
    "ExpireDelegationToken": Served("expire_delegation_token", 1, 2, listeners=_BOTH),
    "DescribeDelegationToken": Served("describe_delegation_token", 1, 3, listeners=_BOTH),
    "DeleteGroups": Served("delete_groups", 0, 2),
    "OffsetDelete": Served("offset_delete", 0, 0),
    "ConsumerGroupHeartbeat": Served("consumer_group_heartbeat", 0, 1),
    "ConsumerGroupDescribe": Served("consumer_group_describe", 0, 1),
    "DescribeCluster": Served("describe_cluster", 0, 2, listeners=_BOTH),
    "DeleteRecords": Served("delete_records", 0, 2),
    "DescribeAcls": Served("describe_acls", 1, 3, listeners=_BOTH),
    "CreateAcls": Served("create_acls", 1, 3, listeners=_BOTH),
    "DeleteAcls": Served("delete_acls", 1, 3, listeners=_BOTH),
    "DescribeLogDirs": Served("describe_log_dirs", 1, 5),
    "AlterReplicaLogDirs": Served("alter_replica_log_dirs", 1, 2),
    "ElectLeaders": Served("elect_leaders", 0, 2, listeners=_BOTH),
    "AlterPartitionReassignments": Served("alter_partition_reassignments", 0, 1, listeners=_BOTH),
    "ListPartitionReassignments": Served("list_partition_reassignments", 0, 0, listeners=_BOTH),
    "DescribeClientQuotas": Served("describe_client_quotas", 0, 1),
    "AlterClientQuotas": Served("alter_client_quotas", 0, 1, listeners=_BOTH),
    "DescribeUserScramCredentials": Served("describe_user_scram_credentials", 0, 0, listeners=_BOTH),
    "AlterUserScramCredentials": Served("alter_user_scram_credentials", 0, 0, listeners=_BOTH),
    "DescribeQuorum": Served("describe_quorum", 0, 2, listeners=_BOTH),
    "UpdateFeatures": Served("update_features", 0, 2, listeners=_BOTH),
    "Envelope": Served("envelope", 0, 0, listeners=ListenerType.CONTROLLER),
    "FetchSnapshot": Served("fetch_snapshot", 0, 1, listeners=ListenerType.CONTROLLER),
    "Vote": Served("vote", 0, 2, listeners=ListenerType.CONTROLLER),
    "BeginQuorumEpoch": Served("begin_quorum_epoch", 0, 1, listeners=ListenerType.CONTROLLER),
    "EndQuorumEpoch": Served("end_quorum_epoch", 0, 1, listeners=ListenerType.CONTROLLER),
    "DescribeProducers": Served("describe_producers", 0, 0),
    "DescribeTransactions": Served("describe_transactions", 0, 0),
    "ListTransactions": Served("list_transactions", 0, 2),
    "DescribeTopicPartitions": Served("describe_topic_partitions", 0, 0),
    "AlterPartition": Served("alter_partition", 2, 3, listeners=ListenerType.CONTROLLER),
    "BrokerRegistration": Served("broker_registration", 0, 4, listeners=ListenerType.CONTROLLER),
    "BrokerHeartbeat": Served("broker_heartbeat", 0, 2, listeners=ListenerType.CONTROLLER),
    "ControllerRegistration": Served("controller_registration", 0, 0, listeners=ListenerType.CONTROLLER),
    "UnregisterBroker": Served("unregister_broker", 0, 0, listeners=_BOTH),
    "AllocateProducerIds": Served("allocate_producer_ids", 0, 0, listeners=ListenerType.CONTROLLER),
    "AssignReplicasToDirs": Served("assign_replicas_to_dirs", 0, 0, listeners=ListenerType.CONTROLLER),
    "AddRaftVoter": Served("add_raft_voter", 0, 1, listeners=_BOTH),
    "RemoveRaftVoter": Served("remove_raft_voter", 0, 0, listeners=_BOTH),
    "UpdateRaftVoter": Served("update_raft_voter", 0, 0, listeners=ListenerType.CONTROLLER),
    "SaslHandshake": Served("sasl_handshake", 0, 1, listeners=ListenerType.SASL),
    "SaslAuthenticate": Served("sasl_authenticate", 0, 2, listeners=ListenerType.SASL),
}

SERVED: Final = {name: served for name, served in _APIS.items() if ListenerType.CLIENT in served.listeners}
"""The APIs of listeners for clients. A handler's module is imported with the first request of its API."""

CONTROLLER_SERVED: Final = {
    "Fetch": Served("fetch_metadata_log", 13, 18, listeners=ListenerType.CONTROLLER),
    **{name: served for name, served in _APIS.items() if ListenerType.CONTROLLER in served.listeners},
}
"""The APIs of the CONTROLLER listener."""


_LOGIN: Final = {name: served for name, served in _APIS.items() if ListenerType.SASL in served.listeners}

_SERVED_ON: Final = {
    ListenerType.CLIENT: SERVED,
    ListenerType.CONTROLLER: CONTROLLER_SERVED,
    ListenerType.SASL: SERVED | _LOGIN,
    ListenerType.SASL_CONTROLLER: CONTROLLER_SERVED | _LOGIN,
}


def served_on(listener: ListenerType) -> dict[str, Served]:
    """Return the APIs of a listener by name."""
    return _SERVED_ON[listener]
