"""The rights that each API needs, as Kafka checks them: of the whole request, and of each of its items. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient import errors
from pyclient.acls import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ERRORS: Final = {
    ResourceType.CLUSTER: errors.ClusterAuthorizationFailed,
    ResourceType.TOPIC: errors.TopicAuthorizationFailed,
    ResourceType.GROUP: errors.GroupAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: errors.TransactionalIdAuthorizationFailed,
}

RequiredRight = tuple[AclOperation, ResourceType, str]
"""A right to check: an operation, on a resource of a type, with a name."""


class RequestRight(NamedTuple):
    """A right that the whole request needs: one of `any_of(request, version)`; None: it needs none."""

    any_of: Callable[[Any, int], tuple[RequiredRight, ...] | None]
    error: type[errors.BrokerError]
    or_any_topic: bool = False
    """True if the right to write to any topic is enough, too."""


class ItemRight(NamedTuple):
    """A right that each item with the role needs; `outer` if the error is the outermost item's, as of groups.

    `wanted(roles, request)` returns what is asked, or None.
    """

    role: str
    wanted: Callable[[Mapping[str, Any], Any], RequiredRight | None]
    error: Callable[[Mapping[str, Any]], type[errors.BrokerError]]
    outer: bool = False


Right = RequestRight | ItemRight


def _cluster(operation: AclOperation, *more: AclOperation) -> RequestRight:
    asked = tuple((each, ResourceType.CLUSTER, CLUSTER_NAME) for each in (operation, *more))
    return RequestRight(lambda _request, _version: asked, errors.ClusterAuthorizationFailed)


def _field(operation: AclOperation, kind: ResourceType, field: str) -> RequestRight:
    """Need a right to the resource that a field names; none if it names none."""

    def asked(request: Any, _version: int) -> tuple[RequiredRight, ...] | None:
        name = getattr(request, field)
        return None if name is None else ((operation, kind, name),)

    return RequestRight(asked, _ERRORS[kind])


def _each(operation: AclOperation, kind: ResourceType, role: str, *, outer: bool = False) -> ItemRight:
    def asked(roles: Mapping[str, Any], _request: Any) -> RequiredRight | None:
        name = roles.get(role)
        return None if name is None else (operation, kind, name)

    return ItemRight(role, asked, lambda _roles: _ERRORS[kind], outer)


def _topics(operation: AclOperation) -> ItemRight:
    return _each(operation, ResourceType.TOPIC, "topic")


_OF_RESOURCE: Final = {
    2: ResourceType.TOPIC,
    4: ResourceType.CLUSTER,
    8: ResourceType.CLUSTER,
    16: ResourceType.CLUSTER,
    32: ResourceType.GROUP,
}
"""Type of a config resource -> the resource whose ACLs protect it."""


def _configs(operation: AclOperation) -> ItemRight:
    def kind_of(roles: Mapping[str, Any]) -> ResourceType | None:
        return _OF_RESOURCE.get(roles.get("type", 0))

    def asked(roles: Mapping[str, Any], _request: Any) -> RequiredRight | None:
        kind = kind_of(roles)
        if kind is None:
            return None
        return operation, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else roles["resource"]

    return ItemRight("resource", asked, lambda roles: _ERRORS[kind_of(roles) or ResourceType.CLUSTER], outer=True)


def _coordinator(request: Any, version: int) -> tuple[RequiredRight, ...] | None:
    kind = ResourceType.GROUP if request.key_type == 0 else ResourceType.TRANSACTIONAL_ID
    return ((AclOperation.DESCRIBE, kind, request.key),) if version < 4 and request.key_type in (0, 1) else None


def _coordinators(operation_type: int) -> ItemRight:
    kind = ResourceType.GROUP if operation_type == 0 else ResourceType.TRANSACTIONAL_ID

    def asked(roles: Mapping[str, Any], request: Any) -> RequiredRight | None:
        name = roles["coordinator"]
        if request.key_type != operation_type or name is None:
            return None
        return AclOperation.DESCRIBE, kind, name

    return ItemRight("coordinator", asked, lambda _roles: _ERRORS[kind], outer=True)


def _sync_group(request: Any, version: int) -> tuple[RequiredRight, ...] | None:
    """Need no right for a request without the fields that version 5 demands: it is refused for that."""
    if version >= 5 and None in (request.protocol_type, request.protocol_name):
        return None
    return ((AclOperation.READ, ResourceType.GROUP, request.group_id),)


def _new_producer(request: Any, _version: int) -> tuple[RequiredRight, ...]:
    if request.transactional_id is not None:
        return ((AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id),)
    return ((AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME),)


def _old_transaction(request: Any, version: int) -> tuple[RequiredRight, ...] | None:
    if version >= 4:
        return ((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME),)
    return ((AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id),)


def _follower(request: Any, _version: int) -> tuple[RequiredRight, ...] | None:
    state = getattr(request, "replica_state", None)
    replica = request.replica_id if state is None or state.replica_id < 0 else state.replica_id
    return ((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME),) if replica >= 0 else None


def _read_topics(roles: Mapping[str, Any], request: Any) -> RequiredRight | None:
    name = roles.get("topic")
    if name is None or _follower(request, 0) is not None:
        return None
    return AclOperation.READ, ResourceType.TOPIC, name


_READ, _WRITE, _DESCRIBE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DELETE
_ALTER, _ACTION = AclOperation.ALTER, AclOperation.CLUSTER_ACTION
_GROUP, _TRANSACTION = ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_OF_GROUP: Final = _field(_READ, _GROUP, "group_id")
_OF_TRANSACTION: Final = _field(_WRITE, _TRANSACTION, "transactional_id")
_OF_NODES: Final = (_cluster(_ACTION),)

RIGHTS: Final[dict[str, tuple[Right, ...]]] = {
    "ApiVersions": (),
    "SaslHandshake": (),
    "SaslAuthenticate": (),
    "DescribeCluster": (),  # the operations in its answer depend on rights; a controller's handler asks
    "ListGroups": (),  # its answer has what the client may see, as those of the next ones
    "ListTransactions": (),
    "Metadata": (),
    "DescribeTopicPartitions": (_topics(_DESCRIBE),),
    "Produce": (_topics(_WRITE),),  # its handler asks for the transactional id
    "Fetch": (
        RequestRight(_follower, errors.TopicAuthorizationFailed),
        ItemRight("topic", _read_topics, lambda _roles: errors.TopicAuthorizationFailed),
    ),
    "ListOffsets": (_topics(_DESCRIBE),),
    "OffsetForLeaderEpoch": (_topics(_DESCRIBE),),
    "OffsetCommit": (_OF_GROUP, _topics(_READ)),
    "OffsetFetch": (_each(_DESCRIBE, _GROUP, "group", outer=True), _topics(_DESCRIBE)),
    "OffsetDelete": (_field(_DELETE, _GROUP, "group_id"), _topics(_READ)),
    "FindCoordinator": (
        RequestRight(_coordinator, errors.GroupAuthorizationFailed),
        _coordinators(0),
        _coordinators(1),
    ),
    "JoinGroup": (_OF_GROUP,),
    "SyncGroup": (RequestRight(_sync_group, errors.GroupAuthorizationFailed),),
    "Heartbeat": (_OF_GROUP,),
    "LeaveGroup": (_OF_GROUP,),
    "ConsumerGroupHeartbeat": (_OF_GROUP,),  # its handler asks for the topics
    "DescribeGroups": (_each(_DESCRIBE, _GROUP, "group", outer=True),),
    "ConsumerGroupDescribe": (_each(_DESCRIBE, _GROUP, "group", outer=True),),
    "DeleteGroups": (_each(_DELETE, _GROUP, "group", outer=True),),
    "CreateTopics": (),  # its handler asks, since the right to create any topic is the cluster's
    "DeleteTopics": (_topics(_DELETE),),
    "DeleteRecords": (_topics(_DELETE),),
    "CreatePartitions": (_topics(_ALTER),),
    "InitProducerId": (RequestRight(_new_producer, errors.ClusterAuthorizationFailed, or_any_topic=True),),
    # its handler checks the topics
    "AddPartitionsToTxn": (RequestRight(_old_transaction, errors.TransactionalIdAuthorizationFailed),),
    "AddOffsetsToTxn": (_OF_TRANSACTION, _OF_GROUP),
    "EndTxn": (_OF_TRANSACTION,),
    "TxnOffsetCommit": (_OF_TRANSACTION, _OF_GROUP, _topics(_READ)),
    "WriteTxnMarkers": (_cluster(_ACTION, _ALTER),),
    "DescribeProducers": (_topics(_READ),),
    "DescribeTransactions": (_each(_DESCRIBE, _TRANSACTION, "transaction", outer=True),),
    "DescribeConfigs": (_configs(AclOperation.DESCRIBE_CONFIGS),),
    "AlterConfigs": (_configs(AclOperation.ALTER_CONFIGS),),
    "IncrementalAlterConfigs": (_configs(AclOperation.ALTER_CONFIGS),),
    "ListConfigResources": (_cluster(AclOperation.DESCRIBE_CONFIGS),),
    "DescribeAcls": (_cluster(_DESCRIBE),),
    "CreateAcls": (_cluster(_ALTER),),
    "DeleteAcls": (_cluster(_ALTER),),
    "DescribeLogDirs": (_cluster(_DESCRIBE),),
    "AlterReplicaLogDirs": (),  # its handler asks
    "ElectLeaders": (_cluster(_ALTER),),
    "AlterPartitionReassignments": (_cluster(_ALTER),),
    "ListPartitionReassignments": (_cluster(_DESCRIBE),),
    "DescribeClientQuotas": (_cluster(AclOperation.DESCRIBE_CONFIGS),),
    "AlterClientQuotas": (_cluster(AclOperation.ALTER_CONFIGS),),
    "DescribeUserScramCredentials": (_cluster(_DESCRIBE),),
    "AlterUserScramCredentials": (_cluster(_ALTER),),
    "CreateDelegationToken": (),  # its handler asks; changing a token is its owner's and renewers' right
    "RenewDelegationToken": (),
    "ExpireDelegationToken": (),
    "DescribeDelegationToken": (),  # its answer has what the client may see
    "DescribeQuorum": (_cluster(_DESCRIBE),),
    "UpdateFeatures": (_cluster(_ALTER),),
    "UnregisterBroker": (_cluster(_ALTER),),
    "AddRaftVoter": (_cluster(_ALTER),),
    "RemoveRaftVoter": (_cluster(_ALTER),),
    "UpdateRaftVoter": _OF_NODES,
    "Envelope": _OF_NODES,
    "FetchSnapshot": _OF_NODES,
    "Vote": _OF_NODES,
    "BeginQuorumEpoch": _OF_NODES,
    "EndQuorumEpoch": _OF_NODES,
    "AlterPartition": _OF_NODES,
    "BrokerRegistration": _OF_NODES,
    "BrokerHeartbeat": _OF_NODES,
    "AllocateProducerIds": _OF_NODES,
    "AssignReplicasToDirs": _OF_NODES,
    "ControllerRegistration": _OF_NODES,
}
"""The rights that the APIs need, by name. An API that is not in the table is refused."""


def error_of(right: RequestRight, wanted: tuple[RequiredRight, ...]) -> errors.BrokerError:
    """Return the error of a request without a right that it needs as a whole."""
    kind = right.error if right.error is errors.TopicAuthorizationFailed else _ERRORS[wanted[0][1]]
    operation, resource, name = wanted[0]
    return kind(f"{operation.name} on {resource.name.lower()} {name!r} is not allowed")
