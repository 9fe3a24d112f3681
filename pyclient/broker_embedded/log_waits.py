"""Requests for partitions whose logs are not open yet wait for them, while others are served.

Kafka recovers all of its logs before it listens. Here a node listens at once: a log that has to be recovered is opened
in steps, and who asks for it is answered then, or told to try again (NOT_LEADER_OR_FOLLOWER) when that takes long.
A Fetch waits by itself, for it may have other partitions to tell of; one that may not wait waits here if it has none.
"""

from __future__ import annotations

from functools import partial
from inspect import isawaitable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.dispatch import Handler, RequestContext
    from pyclient.broker_embedded.log.steps import Steps

    Asked = Callable[[Any, BrokerNode], Iterable[TopicPartition]]

LONGEST_WAIT: Final = 5.0
"""Seconds that a request waits: clients that hear nothing for 30 seconds or so take the node for dead."""


def behind_openings(name: str, handler: Handler) -> Handler:
    """The handler of the API `name`, begun when the logs that a request asks for are open."""
    asked = _ASKED.get(name)
    if asked is None:
        return handler

    def handle(request: Any, context: RequestContext) -> Any:
        if context.node.logs.unopened:
            return _when_open(asked, handler, request, context)
        return handler(request, context)

    return handle


def _when_open(asked: Asked, handler: Handler, request: Any, context: RequestContext) -> Steps[Any]:
    node = context.node
    wanted = set()
    for at in asked(request, node):
        if at in node.logs.unopened and node.image.partition(*at) is not None:
            wanted.add(at)
        yield None
    over = opened(node, wanted)
    if over is not None:
        return _behind(over, handler, request, context)
    given = handler(request, context)
    return (yield from given) if type(given) is GeneratorType else given


def opened(node: BrokerNode, wanted: Iterable[TopicPartition]) -> Future[None] | None:
    """What is done when these logs are open, or cannot be, or that takes too long; None if it is so now."""
    openings = node.logs.openings
    left = {at for at in wanted if not openings.want(at)}
    if not left:
        return None
    over: Future[None] = node.loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    def told(at: TopicPartition) -> None:
        left.discard(at)
        if not left:
            end()

    for at in left:
        openings.when_over(at, partial(told, at))
    timer = node.schedule(LONGEST_WAIT, end)
    over.add_done_callback(lambda _done: timer.cancel())
    return over


def _behind(over: Future[None], handler: Handler, request: Any, context: RequestContext) -> Coroutine[Any, Any, Any]:
    connection = context.connection

    def abandoned() -> None:  # nothing is done then, as if the request had not been read
        over.cancel()

    def ended() -> None:  # who has only finished sending gets an answer
        if not over.done():
            over.set_result(None)

    connection.on_abandoned, connection.on_ended = abandoned, ended

    async def answer() -> Any:
        try:
            await over
        finally:
            connection.on_abandoned = connection.on_ended = None
        given = handler(request, context)
        return await given if isawaitable(given) else given

    return answer()


def _produce(request: Any, node: BrokerNode) -> Iterator[TopicPartition]:
    for topic in request.topic_data:
        name = topic.name or node.topic_name(topic.topic_id)
        for partition in topic.partition_data:
            yield TopicPartition(name or "", partition.index)


def _fetch(request: Any, node: BrokerNode) -> list[TopicPartition]:
    if request.max_wait_ms > 0:
        return []
    asked = [
        TopicPartition(topic.topic or node.topic_name(topic.topic_id) or "", partition.partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    return asked if all(at in node.logs.unopened for at in asked) else []


def _list_offsets(request: Any, _node: BrokerNode) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index)


def _offset_for_leader_epoch(request: Any, _node: BrokerNode) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.topic, partition.partition)


def _describe_producers(request: Any, _node: BrokerNode) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index)


_ASKED: Final[dict[str, Asked]] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _list_offsets,
    "DeleteRecords": _list_offsets,
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "DescribeProducers": _describe_producers,
}
