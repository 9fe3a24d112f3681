"""CreateTopics v2-7: create topics, or only validate the request.

-1 is the broker's default for partitions and replication factor in every version. A duplicate name is answered with one
error. v5+ return partitions, replication factor and options of the new topic, v7 its id.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.controller.topics import MAX_PARTITIONS_PER_REQUEST, MAX_RECORDS_PER_REQUEST, TopicPlan
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.handlers.metadata import may_create
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.configs import Configs
    from pyclient.broker_embedded.controller.controller import Controller
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.network.quotas import MutationQuota
    from pyclient.broker_embedded.request_context import RequestContext

_STRICT: Final = 6  # since this version a client above its quota is refused (KIP-599)


@handles(CreateTopicsRequest, versions=(2, 7), durable=Durable.METADATA, forwarded=True)
def handle(request: CreateTopicsRequest, context: RequestContext) -> IncrementalTask[CreateTopicsResponse]:
    """Answer every topic."""
    times = Counter(topic.name for topic in request.topics)
    wanted = {topic.name: topic for topic in request.topics}
    excess = yield from _excess(list(wanted.values()), context.services.controller, context.services.configs.current)
    topics = []
    quota = context.mutation_quota(strict=context.version >= _STRICT)
    for topic in wanted.values():
        try:
            if times[topic.name] > 1:
                raise errors.InvalidRequest(f"topic {topic.name!r} is {times[topic.name]} times in the request")
            if not may_create(topic.name, context):
                raise errors.TopicAuthorizationFailed("Authorization failed.")
            if excess is not None:
                raise excess
            created = yield from _create(
                topic, context.services.controller, context.services.configs, quota, validate_only=request.validate_only
            )
            if not context.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
                _hide_configs(created)
            topics.append(created)
        except Exception as error:  # every failure is answered with its error code
            topics.append(_failed(topic.name, error))
        yield None
    return CreateTopicsResponse(throttle_time_ms=context.throttle(quota.wait), topics=topics)


def _excess(
    topics: list[CreatableTopic], controller: Controller, config: BrokerConfig
) -> IncrementalTask[errors.PolicyViolation | None]:
    """Return the error, with Kafka's message, of a request that is refused as a whole because it is too large."""
    partitions = records = 0
    for topic in topics:
        yield None
        if topic.name in controller.image.topics:
            continue
        given = len(topic.assignments) or topic.num_partitions
        count = config.integer("num.partitions") if given == -1 else max(given, 0)
        partitions += count
        records += 1 + count + len(topic.configs)
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        return errors.PolicyViolation("Excessively large number of partitions per request.")
    if records > MAX_RECORDS_PER_REQUEST:
        return errors.PolicyViolation("Unable to perform excessively large batch operation.")
    return None


def _create(
    topic: CreatableTopic, controller: Controller, options: Configs, quota: MutationQuota, *, validate_only: bool
) -> IncrementalTask[CreatableTopicResult]:
    assignments = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise errors.InvalidReplicaAssignment(f"duplicate partition in the assignment of topic {topic.name!r}")
    configs = {config.name: config.value for config in topic.configs}
    plan = TopicPlan(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)
    created = yield from controller.create_topic(plan, validate_only=validate_only, charge=quota.charge)
    given = {name: value for name, value in configs.items() if value is not None}
    return CreatableTopicResult(
        name=topic.name,
        topic_id=created.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=False,
                config_source=entry.source,
                is_sensitive=False,
            )
            for entry in options.of_topic(given)
        ],
    )


def _hide_configs(created: CreatableTopicResult) -> None:
    """Leave out what the client may not see of a topic that it has created."""
    created.topic_config_error_code = errors.TopicAuthorizationFailed.code
    created.num_partitions = created.replication_factor = -1
    created.configs = []


def _failed(name: str, error: Exception) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        error_code=code_of(error, f"creation of topic {name}"),
        error_message=message_of(error),
        configs=[],
    )
