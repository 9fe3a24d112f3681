"""Metadata v0-13: brokers, controller, topics, partition leaders.

Null topics (v0: an empty list) are all topics. An unknown topic is created if the request and
auto.create.topics.enable allow it, and the response already has its partitions. Topics may be requested by id from v12.
v13's top-level error (REBOOTSTRAP_REQUIRED) is never sent.
A client without the right to describe a topic does not learn whether it exists.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.acls import CLUSTER_NAME, AclOperation, ResourceType
from pyclient.broker_embedded.controller.image import INTERNAL_TOPICS
from pyclient.broker_embedded.controller.topics import (
    MAX_RECORDS_PER_REQUEST,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    TopicPlan,
    check_name,
)
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.broker_embedded.replication.auto_topic_creation import ensure_internal_topic
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.image import MetadataImage, PartitionImage, TopicImage
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.replication.replica_manager import ReplicaManager
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices

log = logging.getLogger("pyclient.broker_embedded")
_BY_ID: Final = 12
NOT_REQUESTED: Final = -(2**31)
TOPIC_OPERATIONS: Final = 0b1101_1111_1000
"""All operations on a topic, as bits: read, write, create, delete, alter, describe, and both of configs."""

CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000


@handles(MetadataRequest, versions=(0, 13), durable=Durable.OWN_METADATA)
def handle(request: MetadataRequest, context: RequestContext) -> IncrementalTask[MetadataResponse]:
    """Answer for the requested topics."""
    services, version = context.services, context.version
    for wanted in request.topics or ():
        if not _is_valid(wanted, version):
            return _refused(request)
        yield None
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED
    topics = []
    if request.topics is None or (version == 0 and not request.topics):
        for topic in list(services.image.topics.values()):
            if context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
                described = yield from _describe(topic, context, operations)
                topics.append(described)
    else:
        create = request.allow_auto_topic_creation and services.configs.current.boolean("auto.create.topics.enable")
        requested = list(_unique(request.topics))
        if create:
            create = not (yield from _exceed_limit(requested, services.configs.current, services.image))
        for wanted in requested:
            described = _denied(wanted, context) or (yield from _answer(wanted, context, operations, create))
            topics.append(described)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in services.listeners.advertised(context.connection)
        ],
        cluster_id=services.logs.directories.cluster_id,
        controller_id=services.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def cluster_operations(context: RequestContext) -> int:
    """Return what the client may do to the cluster; nothing if it may not describe it, as in Kafka."""
    if not context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return context.operations(CLUSTER_OPERATIONS, ResourceType.CLUSTER, CLUSTER_NAME)


def _denied(wanted: MetadataRequestTopic, context: RequestContext) -> MetadataResponseTopic | None:
    """Return the answer about a topic that the client may not describe, which does not reveal whether it exists."""
    by_id = wanted.topic_id != ZERO_UUID
    name = context.services.image.topic_name(wanted.topic_id) if by_id else wanted.name
    if name is None or context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return None
    code = errors.TopicAuthorizationFailed.code
    return MetadataResponseTopic(error_code=code, name=None if by_id else name, topic_id=wanted.topic_id, partitions=[])


def _is_valid(topic: MetadataRequestTopic, version: int) -> bool:
    """Return True if a topic has a name, or from version 12 on a name or an id."""
    if version < _BY_ID:
        return topic.name is not None and topic.topic_id == ZERO_UUID
    return topic.name is not None or topic.topic_id != ZERO_UUID


def _refused(request: MetadataRequest) -> MetadataResponse:
    """Refuse the whole request with INVALID_REQUEST for every topic, as Kafka does."""
    code = errors.InvalidRequest.code
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
            for topic in request.topics or ()
        ],
        error_code=code,
    )


def _unique(topics: list[MetadataRequestTopic]) -> Iterable[MetadataRequestTopic]:
    """Return each topic once; if any is requested by id, only those."""
    by_id = {topic.topic_id: topic for topic in topics if topic.topic_id != ZERO_UUID}
    return by_id.values() or {topic.name: topic for topic in topics}.values()


def _exceed_limit(
    requested: list[MetadataRequestTopic], config: BrokerConfig, image: MetadataImage
) -> IncrementalTask[bool]:
    """Return True if creating the missing topics takes too many records: as in Kafka, none is created then."""
    records_each = 1 + config.integer("num.partitions")
    records = 0
    for wanted in requested:
        records += 0 if wanted.name in image.topics else records_each
        yield None
    return records > MAX_RECORDS_PER_REQUEST


def _answer(
    wanted: MetadataRequestTopic, context: RequestContext, operations: int, create: bool
) -> IncrementalTask[MetadataResponseTopic]:
    yield None
    services = context.services
    if wanted.topic_id != ZERO_UUID:
        by_id = services.image.topics_by_id.get(wanted.topic_id)
        if by_id is not None:
            return (yield from _describe(by_id, context, operations))
        return MetadataResponseTopic(
            error_code=errors.UnknownTopicId.code, name=None, topic_id=wanted.topic_id, partitions=[]
        )
    name = wanted.name
    topic = services.image.topics.get(name) if name is not None else None
    if topic is not None:
        return (yield from _describe(topic, context, operations))
    try:
        if create and name is not None and not may_create(name, context):
            raise errors.TopicAuthorizationFailed(f"CREATE on topic {name!r} is not allowed")
        topic = yield from _create(name, services, create)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"auto-creation of topic {name}")
        return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[])
    return (yield from _describe(topic, context, operations))


def may_create(name: str, context: RequestContext) -> bool:
    """Return True if the client may create that topic, or any."""
    return context.may(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or context.may(
        AclOperation.CREATE, ResourceType.TOPIC, name
    )


def _create(name: str | None, services: BrokerServices, create: bool) -> IncrementalTask[TopicImage]:
    if name is None:
        raise errors.InvalidRequest("a topic must have a name or an id")
    check_name(name)
    if not create:
        raise errors.UnknownTopicOrPartition(f"topic {name!r} does not exist")
    if name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        return ensure_internal_topic(name, services)
    if services.replicas is not None:
        services.replicas.auto_creation.create(TopicPlan(name))
        raise errors.UnknownTopicOrPartition(f"topic {name!r} does not exist yet")
    try:
        yield from services.controller.create_topic(TopicPlan(name))
    except errors.TopicAlreadyExists:  # another request has created it between the steps
        return services.image.topics[name]
    log.info("topic %s was created on a client's Metadata request", name)
    return services.image.topics[name]


def _describe(topic: TopicImage, context: RequestContext, operations: int) -> IncrementalTask[MetadataResponseTopic]:
    partitions = yield from in_steps(
        partial(_describe_partition, context.services.replicas), list(topic.partitions.values())
    )
    if operations != NOT_REQUESTED:
        operations = context.operations(operations, ResourceType.TOPIC, topic.name)
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _describe_partition(replicas: ReplicaManager | None, partition: PartitionImage) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0 if partition.leader >= 0 else errors.LeaderNotAvailable.code,
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[] if replicas is None else replicas.offline(partition.replicas),
    )
