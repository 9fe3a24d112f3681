"""DeleteTopics v1-6: delete topics by name, from v6 also by id.

A duplicate topic is answered with one error and not deleted. With deletion disabled, versions before 3 answer
INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.controller import Controller
    from pyclient.broker_embedded.controller.image import TopicImage
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.network.quotas import MutationQuota
    from pyclient.broker_embedded.request_context import RequestContext

_STRICT: Final = 5  # since this version a client above its quota is refused (KIP-599)


@handles(DeleteTopicsRequest, versions=(1, 6), durable=Durable.METADATA, forwarded=True)
def handle(request: DeleteTopicsRequest, context: RequestContext) -> IncrementalTask[DeleteTopicsResponse]:
    """Answer every topic."""
    wanted = request.topics if context.version >= 6 else [_by_name(name) for name in request.topic_names]
    times: Counter[object] = Counter()
    states: dict[object, DeleteTopicState] = {}
    for state in reversed(wanted):
        key = _key(context.services.controller, state)
        times[key] += 1
        states[key] = state
        yield None
    quota = context.mutation_quota(strict=context.version >= _STRICT)
    deletions = reversed(list(states.values()))
    responses = yield from in_steps(lambda state: _delete(state, context, times, quota), deletions)
    return DeleteTopicsResponse(throttle_time_ms=context.throttle(quota.wait), responses=responses)


def _by_name(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name, topic_id=ZERO_UUID)


def _key(controller: Controller, state: DeleteTopicState) -> object:
    """Return a key that is the same for a topic by name and by id."""
    if state.name is not None:
        return state.name
    topic = controller.image.topics_by_id.get(state.topic_id)
    return state.topic_id if topic is None else topic.name


def _delete(
    state: DeleteTopicState, context: RequestContext, times: Counter[object], quota: MutationQuota
) -> DeletableTopicResult:
    services = context.services
    try:
        if times[_key(services.controller, state)] > 1:
            raise errors.InvalidRequest("the topic is in the request more than once")
        topic = _find(services.controller, state)
        services.controller.delete_topic(topic, charge=quota.charge)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, f"deletion of topic {state.name or state.topic_id}")
        if code == errors.TopicDeletionDisabled.code and context.version < 3:
            code = errors.InvalidRequest.code
        return DeletableTopicResult(
            name=state.name if context.version >= 6 else state.name or "",
            topic_id=state.topic_id,
            error_code=code,
            error_message=message_of(error),
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=0)


def _find(controller: Controller, state: DeleteTopicState) -> TopicImage:
    if state.name is None and state.topic_id == ZERO_UUID:
        raise errors.InvalidRequest("a topic must have a name or an id")
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise errors.InvalidRequest("a topic must not have both a name and an id")
    if state.name is not None:
        topic = controller.image.topics.get(state.name)
        if topic is None:
            raise errors.UnknownTopicOrPartition(f"topic {state.name!r} does not exist")
        return topic
    found = controller.image.topics_by_id.get(state.topic_id)
    if found is None:
        raise errors.UnknownTopicId(f"topic id {state.topic_id} does not exist")
    return found
