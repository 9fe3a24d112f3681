"""ConsumerGroupHeartbeat 0-1 (KIP-848): a member joins, goes on or leaves, and is told what it may read.

1 has members that make their own ids, and subscriptions by regular expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.consumer_protocol import check_consumer_protocol
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.broker_embedded.groups.consumer.events import ConsumerHeartbeat
from pyclient.errors import BrokerError, UnsupportedVersion
from pyclient.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.groups.consumer.model import Target

_MAKES_OWN_ID: Final = 1


@handles(ConsumerGroupHeartbeatRequest, versions=(0, 1))
def handle(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerGroupHeartbeatResponse:
    """Answer with the member's epoch and, when it changed, its assignment; UNSUPPORTED_VERSION where it is off."""
    groups = context.node.groups
    try:
        check_consumer_protocol(context.node)
        answer = groups.consumer_heartbeat(
            request.group_id, _event(request, context), makes_own_id=context.version >= _MAKES_OWN_ID
        )
    except BrokerError as error:
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=error.code,
            error_message=None if isinstance(error, UnsupportedVersion) else message_of(error),
            member_epoch=0,
            heartbeat_interval_ms=0,
        )
    interval = groups.consumers.heartbeat_interval_ms(request.group_id)
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=interval if answer.member_epoch >= 0 else 0,
        assignment=None if answer.assignment is None else _assignment(answer.assignment),
    )


def _event(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerHeartbeat:
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else tuple(topics),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else {topic.topic_id: frozenset(topic.partitions) for topic in owned},
        client_id=context.client_id,
        client_host=context.client_host,
    )


def _assignment(target: Target) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
