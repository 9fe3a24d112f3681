"""DeleteTopics v1-6: delete topics by name, from v6 also by id.

A topic that a request has twice is one error, and stays. Before v3 a broker without deletion answers INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.log.steps import in_steps
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.controller.image import TopicImage
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.log.steps import Steps
    from pyclient.broker_embedded.mutation_quotas import MutationQuota

_STRICT: Final = 5  # from here on a client above its quota is refused (KIP-599)


@handles(DeleteTopicsRequest, versions=(1, 6))
def handle(request: DeleteTopicsRequest, context: RequestContext) -> Steps[DeleteTopicsResponse]:
    """Answer every topic."""
    wanted = request.topics if context.version >= 6 else [_by_name(name) for name in request.topic_names]
    times: Counter[object] = Counter()
    once: dict[object, DeleteTopicState] = {}
    for state in reversed(wanted):
        key = _key(context.node, state)
        times[key] += 1
        once[key] = state
        yield None
    quota = context.mutation_quota(strict=context.version >= _STRICT)
    responses = yield from in_steps(lambda state: _delete(state, context, times, quota), reversed(list(once.values())))
    return DeleteTopicsResponse(throttle_time_ms=context.throttle(quota.wait), responses=responses)


def _by_name(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name, topic_id=ZERO_UUID)


def _key(node: BrokerNode, state: DeleteTopicState) -> object:
    """The same for a topic that is named and one that is asked for by its id."""
    if state.name is not None:
        return state.name
    topic = node.image.topics_by_id.get(state.topic_id)
    return state.topic_id if topic is None else topic.name


def _delete(
    state: DeleteTopicState, context: RequestContext, times: Counter[object], quota: MutationQuota
) -> DeletableTopicResult:
    node = context.node
    try:
        if times[_key(node, state)] > 1:
            raise errors.InvalidRequest("the topic is in the request more than once")
        topic = _find(node, state)
        node.controller.delete_topic(topic, charge=quota.charge)
    except Exception as error:  # whatever it is, it becomes this answer
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


def _find(node: BrokerNode, state: DeleteTopicState) -> TopicImage:
    if state.name is None and state.topic_id == ZERO_UUID:
        raise errors.InvalidRequest("a topic is asked for by neither name nor id")
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise errors.InvalidRequest("a topic is asked for by name and by id: one of them, please")
    if state.name is not None:
        topic = node.image.topics.get(state.name)
        if topic is None:
            raise errors.UnknownTopicOrPartition(f"there is no topic {state.name!r}")
        return topic
    found = node.image.topics_by_id.get(state.topic_id)
    if found is None:
        raise errors.UnknownTopicId(f"there is no topic with id {state.topic_id}")
    return found
