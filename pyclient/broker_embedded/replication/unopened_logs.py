"""Hold requests for partitions whose logs are not open yet, while others are served.

Kafka recovers all of its logs before it listens. Here a node listens at once: a log that has to be recovered is opened
in steps. Requests for it are answered then, or with a retriable error (NOT_LEADER_OR_FOLLOWER) if that takes long.
A Fetch waits in the purgatory with its other partitions; one with max_wait_ms=0 waits here if no log of it is open.
"""

from __future__ import annotations

from functools import partial
from inspect import isawaitable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Coroutine, Iterable

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import Handler, RequestContext
    from pyclient.broker_embedded.services import BrokerServices

    Asked = Callable[[Any, BrokerServices], Iterable[TopicPartition]]

LONGEST_WAIT: Final = 5.0
"""Seconds that a request waits: clients close a connection that is silent for about 30 seconds."""


def run_when_opened(asked: Asked | None, handler: Handler) -> Handler:
    """Wrap a handler: it runs when the logs of the partitions that `asked` finds in the request are open."""
    if asked is None:
        return handler

    def handle(request: Any, context: RequestContext) -> Any:
        if context.services.logs.unopened:
            return _when_open(asked, handler, request, context)
        return handler(request, context)

    return handle


def _when_open(asked: Asked, handler: Handler, request: Any, context: RequestContext) -> IncrementalTask[Any]:
    services = context.services
    wanted = set()
    for partition in asked(request, services):
        if partition in services.logs.unopened and services.image.partition(*partition) is not None:
            wanted.add(partition)
        yield None
    over = opened(services, wanted)
    if over is not None:
        return _handle_after(over, handler, request, context)
    answer = handler(request, context)
    return (yield from answer) if type(answer) is GeneratorType else answer


def opened(services: BrokerServices, wanted: Iterable[TopicPartition]) -> Future[None] | None:
    """Return a future that is done when these logs are open or failed to open, or after `LONGEST_WAIT`.

    None if they are open now.
    """
    queue = services.logs.recovery_queue
    remaining = {partition for partition in wanted if not queue.request(partition)}
    if not remaining:
        return None
    over: Future[None] = services.loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    def log_opened(partition: TopicPartition) -> None:
        remaining.discard(partition)
        if not remaining:
            end()

    for partition in remaining:
        queue.on_completion(partition, partial(log_opened, partition))
    timer = services.timers.schedule(LONGEST_WAIT, end)
    over.add_done_callback(lambda _done: timer.cancel())
    return over


def _handle_after(
    over: Future[None], handler: Handler, request: Any, context: RequestContext
) -> Coroutine[Any, Any, Any]:
    connection = context.connection

    def abandoned() -> None:  # the request is not served
        over.cancel()

    def ended() -> None:  # a client that has only finished sending gets an answer
        if not over.done():
            over.set_result(None)

    connection.on_abandoned, connection.on_ended = abandoned, ended

    async def answer() -> Any:
        try:
            await over
        finally:
            connection.on_abandoned = connection.on_ended = None
        result = handler(request, context)
        return await result if isawaitable(result) else result

    return answer()
