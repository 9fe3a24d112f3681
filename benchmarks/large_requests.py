"""Requests with many items, at least one for each API that the broker advertises: the load of the case large-requests.

`existing` is a topic of `PARTITIONS` partitions that the broker has; everything else is unknown to it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from pyclient.protocol.fields import Request

PARTITIONS: Final = 1000
LONGEST_TEXT: Final = 30_000

Build = Callable[[Any, int, str], Request[Any]]
"""From the module of an API's messages, a number of items, and an existing topic."""


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:06d}" for number in range(count)]


def _resources(m: Any, n: int, *, incremental: bool = False) -> Any:
    kind = m.IncrementalAlterConfigsRequest if incremental else m.AlterConfigsRequest
    resources = [m.AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in _names("c", n)]
    return kind(resources=resources, validate_only=True)


def _fetch(m: Any, n: int, topic: str, *, session_epoch: int = -1) -> Any:
    partitions = [
        m.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(n)
    ]
    return m.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=session_epoch,
        topics=[m.FetchTopic(topic=topic, partitions=partitions)],
    )


def _described(m: Any, n: int, kind: int, name: str) -> Any:
    resources = [m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)] * n
    return m.DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def _pattern(m: Any, n: int, _topic: str) -> Any:
    return m.ConsumerGroupHeartbeatRequest(
        group_id="large-pattern",
        member_id="large-member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[],
        subscribed_topic_regex="|".join(["(a?b?c?d?)*x"] * (min(n, LONGEST_TEXT) // 12)),
        topic_partitions=[],
    )


REQUESTS: Final[dict[str, tuple[str, int, Build]]] = {
    "Produce": (
        "produce",
        9,
        lambda m, n, _t: m.ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                m.TopicProduceData(
                    name="unknown", partition_data=[m.PartitionProduceData(index=i, records=b"x") for i in range(n)]
                )
            ],
        ),
    ),
    "Fetch": ("fetch", 11, lambda m, n, _t: _fetch(m, n, "unknown")),
    "Fetch, new session": ("fetch", 11, lambda m, n, _t: _fetch(m, n, "unknown", session_epoch=0)),
    "Fetch, existing": ("fetch", 11, lambda m, n, t: _fetch(m, min(n, PARTITIONS), t)),
    "ListOffsets": (
        "list_offsets",
        6,
        lambda m, n, _t: m.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                m.ListOffsetsTopic(
                    name="unknown",
                    partitions=[m.ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(n)],
                )
            ],
        ),
    ),
    "ListOffsets, existing": (
        "list_offsets",
        6,
        lambda m, n, t: m.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                m.ListOffsetsTopic(
                    name=t,
                    partitions=[
                        m.ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(min(n, PARTITIONS))
                    ],
                )
            ],
        ),
    ),
    "Metadata": (
        "metadata",
        9,
        lambda m, n, _t: m.MetadataRequest(
            topics=[m.MetadataRequestTopic(name=name) for name in _names("m", n)], allow_auto_topic_creation=False
        ),
    ),
    "Metadata, creating": (
        "metadata",
        9,
        lambda m, n, _t: m.MetadataRequest(topics=[m.MetadataRequestTopic(name=name) for name in _names("auto.", n)]),
    ),
    "Metadata, all topics": ("metadata", 9, lambda m, _n, _t: m.MetadataRequest(topics=None)),
    "OffsetCommit": (
        "offset_commit",
        8,
        lambda m, n, t: m.OffsetCommitRequest(
            group_id="large",
            topics=[
                m.OffsetCommitRequestTopic(
                    name=t,
                    partitions=[
                        m.OffsetCommitRequestPartition(partition_index=i, committed_offset=1, committed_metadata="")
                        for i in range(n)
                    ],
                )
            ],
        ),
    ),
    "OffsetFetch": (
        "offset_fetch",
        8,
        lambda m, n, _t: m.OffsetFetchRequest(
            groups=[m.OffsetFetchRequestGroup(group_id=name, topics=None) for name in _names("g", n)]
        ),
    ),
    "FindCoordinator": (
        "find_coordinator",
        4,
        lambda m, n, _t: m.FindCoordinatorRequest(coordinator_keys=_names("g", n)),
    ),
    "JoinGroup": (
        "join_group",
        7,
        lambda m, n, _t: m.JoinGroupRequest(
            group_id="large-join",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1000,
            member_id="",
            group_instance_id="one",
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name=name, metadata=b"") for name in _names("p", n)],
        ),
    ),
    "Heartbeat": (
        "heartbeat",
        4,
        lambda m, n, _t: m.HeartbeatRequest(group_id="g" * min(n, LONGEST_TEXT), generation_id=1, member_id="m"),
    ),
    "LeaveGroup": (
        "leave_group",
        4,
        lambda m, n, _t: m.LeaveGroupRequest(
            group_id="large", members=[m.MemberIdentity(member_id=name) for name in _names("m", n)]
        ),
    ),
    "SyncGroup": (
        "sync_group",
        4,
        lambda m, n, _t: m.SyncGroupRequest(
            group_id="large",
            generation_id=1,
            member_id="m",
            assignments=[m.SyncGroupRequestAssignment(member_id=name, assignment=b"") for name in _names("m", n)],
        ),
    ),
    "DescribeGroups": ("describe_groups", 5, lambda m, n, _t: m.DescribeGroupsRequest(groups=_names("g", n))),
    "ListGroups": ("list_groups", 5, lambda m, n, _t: m.ListGroupsRequest(states_filter=_names("s", n))),
    "ApiVersions": (
        "api_versions",
        3,
        lambda m, n, _t: m.ApiVersionsRequest(
            client_software_name="a" * min(n, LONGEST_TEXT) + "-", client_software_version="1"
        ),
    ),
    "CreateTopics": (
        "create_topics",
        7,
        lambda m, n, _t: m.CreateTopicsRequest(
            topics=[
                m.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for name in _names("made.", n)
            ]
        ),
    ),
    "CreatePartitions": (
        "create_partitions",
        3,
        lambda m, n, _t: m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in _names("made.", n)],
            timeout_ms=1000,
            validate_only=False,
        ),
    ),
    "DeleteTopics": (
        "delete_topics",
        5,
        lambda m, n, _t: m.DeleteTopicsRequest(topic_names=_names("made.", n), timeout_ms=1000),
    ),
    "InitProducerId": (
        "init_producer_id",
        4,
        lambda m, n, _t: m.InitProducerIdRequest(
            transactional_id="t" * min(n, LONGEST_TEXT), transaction_timeout_ms=1000
        ),
    ),
    "AddPartitionsToTxn": (
        "add_partitions_to_txn",
        3,
        lambda m, n, _t: m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="large",
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(name="unknown", partitions=list(range(n)))],
        ),
    ),
    "AddPartitionsToTxn, verify": (
        "add_partitions_to_txn",
        5,
        lambda m, n, t: m.AddPartitionsToTxnRequest(
            transactions=[
                m.AddPartitionsToTxnTransaction(
                    transactional_id=name,
                    producer_id=1,
                    producer_epoch=0,
                    verify_only=True,
                    topics=[m.AddPartitionsToTxnTopic(name=t, partitions=[0])],
                )
                for name in _names("x", n)
            ],
        ),
    ),
    "AddOffsetsToTxn": (
        "add_offsets_to_txn",
        3,
        lambda m, n, _t: m.AddOffsetsToTxnRequest(
            transactional_id="large", producer_id=1, producer_epoch=0, group_id="g" * min(n, LONGEST_TEXT)
        ),
    ),
    "EndTxn": (
        "end_txn",
        4,
        lambda m, n, _t: m.EndTxnRequest(
            transactional_id="x" * min(n, LONGEST_TEXT), producer_id=1, producer_epoch=0, committed=True
        ),
    ),
    "WriteTxnMarkers": (
        "write_txn_markers",
        1,
        lambda m, n, _t: m.WriteTxnMarkersRequest(
            markers=[
                m.WritableTxnMarker(
                    producer_id=1,
                    producer_epoch=0,
                    transaction_result=True,
                    topics=[m.WritableTxnMarkerTopic(name="unknown", partition_indexes=list(range(n)))],
                    coordinator_epoch=0,
                )
            ]
        ),
    ),
    "TxnOffsetCommit": (
        "txn_offset_commit",
        3,
        lambda m, n, _t: m.TxnOffsetCommitRequest(
            transactional_id="large",
            group_id="large",
            producer_id=1,
            producer_epoch=0,
            topics=[
                m.TxnOffsetCommitRequestTopic(
                    name="unknown",
                    partitions=[
                        m.TxnOffsetCommitRequestPartition(
                            partition_index=i, committed_offset=1, committed_metadata=None
                        )
                        for i in range(n)
                    ],
                )
            ],
        ),
    ),
    "DescribeTransactions": (
        "describe_transactions",
        0,
        lambda m, n, _t: m.DescribeTransactionsRequest(transactional_ids=_names("x", n)),
    ),
    "ListTransactions": (
        "list_transactions",
        1,
        lambda m, n, _t: m.ListTransactionsRequest(state_filters=_names("s", n), producer_id_filters=list(range(n))),
    ),
    "OffsetForLeaderEpoch": (
        "offset_for_leader_epoch",
        4,
        lambda m, n, _t: m.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                m.OffsetForLeaderTopic(
                    topic="unknown",
                    partitions=[m.OffsetForLeaderPartition(partition=i, leader_epoch=0) for i in range(n)],
                )
            ],
        ),
    ),
    "DescribeConfigs": ("describe_configs", 4, lambda m, n, t: _described(m, n, 2, t)),
    "DescribeConfigs, broker": ("describe_configs", 4, lambda m, n, _t: _described(m, n, 4, "0")),
    "DescribeConfigs, keys": (
        "describe_configs",
        4,
        lambda m, n, _t: m.DescribeConfigsRequest(
            resources=[m.DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=_names("k", n))]
        ),
    ),
    "AlterConfigs": ("alter_configs", 2, lambda m, n, _t: _resources(m, n)),
    "IncrementalAlterConfigs": (
        "incremental_alter_configs",
        1,
        lambda m, n, _t: _resources(m, n, incremental=True),
    ),
    "IncrementalAlterConfigs, list": (
        "incremental_alter_configs",
        1,
        lambda m, n, t: m.IncrementalAlterConfigsRequest(
            resources=[
                m.AlterConfigsResource(
                    resource_type=2,
                    resource_name=t,
                    configs=[
                        m.AlterableConfig(
                            name="leader.replication.throttled.replicas",
                            config_operation=2,
                            value=",".join(f"{i}:0" for i in range(min(n, 3000))),
                        )
                    ],
                )
            ],
            validate_only=True,
        ),
    ),
    "ListConfigResources": (
        "list_config_resources",
        1,
        lambda m, n, _t: m.ListConfigResourcesRequest(resource_types=[2] * n),
    ),
    "DeleteGroups": ("delete_groups", 2, lambda m, n, _t: m.DeleteGroupsRequest(groups_names=_names("g", n))),
    "OffsetDelete": (
        "offset_delete",
        0,
        lambda m, n, _t: m.OffsetDeleteRequest(
            group_id="large",
            topics=[
                m.OffsetDeleteRequestTopic(
                    name="unknown", partitions=[m.OffsetDeleteRequestPartition(partition_index=i) for i in range(n)]
                )
            ],
        ),
    ),
    "ConsumerGroupHeartbeat": (
        "consumer_group_heartbeat",
        1,
        lambda m, n, _t: m.ConsumerGroupHeartbeatRequest(
            group_id="large-consumer",
            member_id="large-member",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=_names("s", n),
            topic_partitions=[],
        ),
    ),
    "ConsumerGroupHeartbeat, pattern": ("consumer_group_heartbeat", 1, _pattern),
    "ConsumerGroupDescribe": (
        "consumer_group_describe",
        1,
        lambda m, n, _t: m.ConsumerGroupDescribeRequest(group_ids=_names("g", n), include_authorized_operations=False),
    ),
    "UnregisterBroker": (
        "unregister_broker",
        0,
        lambda m, _n, _t: m.UnregisterBrokerRequest(broker_id=77),
    ),
    "AddRaftVoter": (
        "add_raft_voter",
        1,
        lambda m, n, _t: m.AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=1000,
            voter_id=77,
            voter_directory_id=UUID(int=77),
            listeners=[m.Listener(name=name, host="127.0.0.1", port=1) for name in _names("l", n)],
        ),
    ),
    "RemoveRaftVoter": (
        "remove_raft_voter",
        0,
        lambda m, _n, _t: m.RemoveRaftVoterRequest(cluster_id=None, voter_id=77, voter_directory_id=UUID(int=77)),
    ),
    "DescribeCluster": (
        "describe_cluster",
        2,
        lambda m, _n, _t: m.DescribeClusterRequest(include_cluster_authorized_operations=True),
    ),
    "DeleteRecords": (
        "delete_records",
        2,
        lambda m, n, _t: m.DeleteRecordsRequest(
            topics=[
                m.DeleteRecordsTopic(
                    name="unknown", partitions=[m.DeleteRecordsPartition(partition_index=i, offset=0) for i in range(n)]
                )
            ],
            timeout_ms=1000,
        ),
    ),
    "DescribeAcls": (
        "describe_acls",
        3,
        lambda m, n, _t: m.DescribeAclsRequest(
            resource_type_filter=2,
            resource_name_filter="r" * min(n, LONGEST_TEXT),
            principal_filter=None,
            host_filter=None,
            operation=2,
            permission_type=3,
        ),
    ),
    "CreateAcls": (
        "create_acls",
        3,
        lambda m, n, _t: m.CreateAclsRequest(
            creations=[
                m.AclCreation(
                    resource_type=2, resource_name=name, principal="User:a", host="*", operation=3, permission_type=3
                )
                for name in _names("a", n)
            ]
        ),
    ),
    "DeleteAcls": (
        "delete_acls",
        3,
        lambda m, n, _t: m.DeleteAclsRequest(
            filters=[
                m.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=name,
                    principal_filter=None,
                    host_filter=None,
                    operation=2,
                    permission_type=3,
                )
                for name in _names("a", n)
            ]
        ),
    ),
    "DescribeLogDirs": ("describe_log_dirs", 4, lambda m, _n, _t: m.DescribeLogDirsRequest(topics=None)),
    "AlterReplicaLogDirs": (
        "alter_replica_log_dirs",
        2,
        lambda m, n, t: m.AlterReplicaLogDirsRequest(
            dirs=[
                m.AlterReplicaLogDir(
                    path="/unknown", topics=[m.AlterReplicaLogDirTopic(name=t, partitions=list(range(n)))]
                )
            ]
        ),
    ),
    "ElectLeaders": (
        "elect_leaders",
        2,
        lambda m, n, _t: m.ElectLeadersRequest(
            topic_partitions=[m.TopicPartitions(topic="unknown", partitions=list(range(n)))]
        ),
    ),
    "AlterPartitionReassignments": (
        "alter_partition_reassignments",
        0,
        lambda m, n, _t: m.AlterPartitionReassignmentsRequest(
            topics=[
                m.ReassignableTopic(
                    name="unknown", partitions=[m.ReassignablePartition(partition_index=i) for i in range(n)]
                )
            ]
        ),
    ),
    "ListPartitionReassignments": (
        "list_partition_reassignments",
        0,
        lambda m, n, _t: m.ListPartitionReassignmentsRequest(
            topics=[m.ListPartitionReassignmentsTopics(name="unknown", partition_indexes=list(range(n)))]
        ),
    ),
    "DescribeClientQuotas": (
        "describe_client_quotas",
        1,
        lambda m, n, _t: m.DescribeClientQuotasRequest(
            components=[m.ComponentData(entity_type=name, match_type=0, match="x") for name in _names("q", n)],
            strict=False,
        ),
    ),
    "AlterClientQuotas": (
        "alter_client_quotas",
        1,
        lambda m, n, _t: m.AlterClientQuotasRequest(
            entries=[
                m.AlterClientQuotasRequestEntryData(
                    entity=[m.AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=name)],
                    ops=[m.OpData(key="producer_byte_rate", value=1e9, remove=False)],
                )
                for name in _names("q", n)
            ],
            validate_only=True,
        ),
    ),
    "DescribeUserScramCredentials": (
        "describe_user_scram_credentials",
        0,
        lambda m, n, _t: m.DescribeUserScramCredentialsRequest(
            users=[m.UserName(name=name) for name in _names("u", n)]
        ),
    ),
    "AlterUserScramCredentials": (
        "alter_user_scram_credentials",
        0,
        lambda m, n, _t: m.AlterUserScramCredentialsRequest(
            deletions=[m.ScramCredentialDeletion(name=name, mechanism=1) for name in _names("u", n)], upsertions=[]
        ),
    ),
    "CreateDelegationToken": (
        "create_delegation_token",
        3,
        lambda m, n, _t: m.CreateDelegationTokenRequest(
            renewers=[m.CreatableRenewers(principal_type="User", principal_name=name) for name in _names("u", n)],
            max_lifetime_ms=-1,
        ),
    ),
    "RenewDelegationToken": (
        "renew_delegation_token",
        2,
        lambda m, n, _t: m.RenewDelegationTokenRequest(hmac=bytes(n), renew_period_ms=-1),
    ),
    "ExpireDelegationToken": (
        "expire_delegation_token",
        2,
        lambda m, n, _t: m.ExpireDelegationTokenRequest(hmac=bytes(n), expiry_time_period_ms=-1),
    ),
    "DescribeDelegationToken": (
        "describe_delegation_token",
        3,
        lambda m, n, _t: m.DescribeDelegationTokenRequest(
            owners=[
                m.DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in _names("u", n)
            ]
        ),
    ),
    "DescribeQuorum": (
        "describe_quorum",
        2,
        lambda m, n, _t: m.DescribeQuorumRequest(
            topics=[
                m.DescribeQuorumRequestTopicData(
                    topic_name="__cluster_metadata",
                    partitions=[m.DescribeQuorumRequestPartitionData(partition_index=i) for i in range(n)],
                )
            ]
        ),
    ),
    "UpdateFeatures": (
        "update_features",
        1,
        lambda m, n, _t: m.UpdateFeaturesRequest(
            feature_updates=[
                m.FeatureUpdateKey(feature=name, max_version_level=1, upgrade_type=1) for name in _names("f", n)
            ],
            validate_only=True,
        ),
    ),
    "DescribeProducers": (
        "describe_producers",
        0,
        lambda m, n, _t: m.DescribeProducersRequest(
            topics=[m.TopicRequest(name="unknown", partition_indexes=list(range(n)))]
        ),
    ),
    "DescribeTopicPartitions": (
        "describe_topic_partitions",
        0,
        lambda m, n, _t: m.DescribeTopicPartitionsRequest(
            topics=[m.TopicRequest(name=name) for name in _names("d", n)]
        ),
    ),
}
"""By a name that begins with the API's: the module of its messages, the version, and how the request is built."""


def api_of(name: str) -> str:
    """Return the API that a request of `REQUESTS` asks."""
    return name.partition(",")[0]


def large_request(name: str, items: int, topic: str) -> tuple[Request[Any], int]:
    """Return the request and its version."""
    module, version, build = REQUESTS[name]
    return build(import_module(f"pyclient.protocol.messages.{module}"), items, topic), version
