"""Answers to Produce that wait until what they report is committed, while other requests are served.

Where `flush.messages` wants batches on the disk first, the disk is waited for beside the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyclient import errors

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Iterator

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.dispatch import Handler, RequestContext
    from pyclient.broker_embedded.log.partition_log import PartitionLog
    from pyclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse


def behind_commits(name: str, handler: Handler) -> Handler:
    """The handler of the API `name`; if that is Produce, what it answers is committed."""
    if name != "Produce":
        return handler

    def handle(request: Any, context: RequestContext) -> Any:
        response = handler(request, context)
        node = context.node
        if response is None or not node.logs.held:
            return response
        waiting = list(_uncommitted(response, node))
        return _committed(response, waiting, node) if waiting else response

    return handle


def _uncommitted(
    response: ProduceResponse, node: BrokerNode
) -> Iterator[tuple[PartitionProduceResponse, PartitionLog]]:
    for topic in response.responses:
        name = topic.name or node.topic_name(topic.topic_id)
        for answer in topic.partition_responses:
            log = None if answer.error_code or name is None else node.logs.find(name, answer.index)
            if log is not None and log in node.logs.held and log.high_watermark <= answer.base_offset:
                yield answer, log


def _committed(
    response: ProduceResponse, waiting: list[tuple[PartitionProduceResponse, PartitionLog]], node: BrokerNode
) -> Future[ProduceResponse]:
    over: Future[ProduceResponse] = node.loop.create_future()
    left = len(waiting)

    def told() -> None:
        nonlocal left
        left -= 1
        if not left and not over.done():
            for answer, log in waiting:
                _correct(answer, log)
            over.set_result(response)

    for answer, log in waiting:
        log.when_committed(answer.base_offset, told)
    return over


def _correct(answer: PartitionProduceResponse, log: PartitionLog) -> None:
    """Say what became of a batch that could not be brought to the disk."""
    if log.high_watermark <= answer.base_offset:
        answer.error_code = errors.KafkaStorageError.code
        answer.error_message = f"{log.topic}-{log.partition}: {log.failure or 'it was closed before a flush'}"
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
