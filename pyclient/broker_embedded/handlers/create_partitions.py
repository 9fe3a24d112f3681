"""CreatePartitions v0-3: add partitions to topics, or only validate the request."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.network.quotas import MutationQuota
    from pyclient.broker_embedded.request_context import RequestContext

_STRICT: Final = 3  # since this version a client above its quota is refused (KIP-599)


@handles(CreatePartitionsRequest, versions=(0, 3), durable=Durable.METADATA, forwarded=True)
def handle(request: CreatePartitionsRequest, context: RequestContext) -> IncrementalTask[CreatePartitionsResponse]:
    """Answer every topic."""
    times = Counter(topic.name for topic in request.topics)
    quota = context.mutation_quota(strict=context.version >= _STRICT)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if times[topic.name] > 1:
                raise errors.InvalidRequest(f"topic {topic.name!r} is {times[topic.name]} times in the request")
            yield from _create(topic, context, quota, validate_only=request.validate_only)
        except Exception as error:  # every failure is answered with its error code
            code = code_of(error, f"adding partitions to {topic.name}")
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message_of(error))
            )
        else:
            results.append(CreatePartitionsTopicResult(name=topic.name, error_code=0))
        yield None
    return CreatePartitionsResponse(throttle_time_ms=context.throttle(quota.wait), results=results)


def _create(
    topic: CreatePartitionsTopic, context: RequestContext, quota: MutationQuota, *, validate_only: bool
) -> IncrementalTask[None]:
    assignments = None
    if topic.assignments is not None:
        assignments = [assignment.broker_ids for assignment in topic.assignments]
    yield from context.services.controller.create_partitions(
        topic.name, topic.count, assignments, validate_only=validate_only, charge=quota.charge
    )
