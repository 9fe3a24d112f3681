"""Hold responses until the changes they report are committed, while other requests are served.

Some writes must be synced to the disk first, off the loop: batches of topics with `flush.messages`, those of the group
coordinator if that applies to `__consumer_offsets`, and every change of the metadata. Meanwhile memory is ahead of the
disk, and other requests read from memory; a response that reports a change is held until the change is durable.
"""

from __future__ import annotations

from asyncio import isfuture
from enum import Enum
from functools import partial
from inspect import isawaitable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient import errors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Iterator

    from pyclient.broker_embedded.controller.quorum import Quorum
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.replication.hosted_partitions import HostedPartition
    from pyclient.broker_embedded.request_context import Handler, RequestContext
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

_METADATA_LOG: Final = "__cluster_metadata"
_OFFSETS_LOG: Final = "__consumer_offsets"


class Durable(Enum):
    """The data that have to be on the disk before a request is answered."""

    NOTHING = "nothing"
    BATCHES = "the batches that it appended"
    METADATA = "all of the metadata, since the answer depends on changes of other requests, too"
    OWN_METADATA = "the metadata that it changed"
    GROUPS = "what it wrote to __consumer_offsets"


class _Began(NamedTuple):
    """The state of a node's metadata when a request arrived."""

    offset: int
    """The last offset in the image."""
    epoch: int | None
    """The epoch in which this node is the active controller, if the request needs that; else None."""


def hold_until_durable(durable: Durable, handler: Handler, *, by_controller: bool = False) -> Handler:
    """Wrap a handler: its answers are held until what they need is on the disk.

    With `by_controller` the handler works as the active controller: it fails with `NotController` if the node ceases
    to be that before its answer is given.
    """
    match durable:
        case Durable.NOTHING:
            return handler
        case Durable.BATCHES:
            return _produce(handler)
        case _:
            return _change(durable, handler, by_controller=by_controller)


# Changes of the metadata and of groups


def _change(durable: Durable, handler: Handler, *, by_controller: bool) -> Handler:
    def handle(request: Any, context: RequestContext) -> Any:
        services = context.services
        if durable is Durable.GROUPS and services.replicas is not None:
            partitions = _partitions_of(_groups_of(request), services)
            return _replicated_change(handler(request, context), partitions, services)
        if services.quorum is not None and not by_controller and durable is not Durable.GROUPS:
            return handler(request, context)  # the active controller makes its changes, and holds the answers
        quorum = services.quorum if by_controller else None
        began = _Began(services.metadata_offset, None if quorum is None else quorum.active_epoch)
        answer = handler(request, context)
        if type(answer) is GeneratorType:
            return _stepped(answer, durable, services, began)
        return _committed_change(answer, durable, services, began)

    return handle


def _stepped(
    steps: IncrementalTask[Any], durable: Durable, services: BrokerServices, began: _Began
) -> IncrementalTask[Any]:
    answer = yield from steps
    return _committed_change(answer, durable, services, began)


def _committed_change(answer: Any, durable: Durable, services: BrokerServices, began: _Began) -> Any:
    if isawaitable(answer):
        held = services.fs.durable or services.quorum is not None
        return _awaited(answer, durable, services, began) if held else answer
    _check_still_active(services.quorum, began)
    waiting = list(_changed(durable, services, began.offset)) if services.logs.awaiting_flush else None
    return _when_on_disk(answer, waiting, durable, services) if waiting else answer


async def _awaited(answer: Any, durable: Durable, services: BrokerServices, began: _Began) -> Any:
    given = await answer
    _check_still_active(services.quorum, began)
    waiting = list(_changed(durable, services, began.offset)) if services.logs.awaiting_flush else None
    return await _when_on_disk(given, waiting, durable, services) if waiting else given


def _check_still_active(quorum: Quorum | None, began: _Began) -> None:
    """Raise `NotController` if this node ceased to be the active controller while it worked on a request.

    What the request has changed by then may be removed from the log by the next controller.
    """
    if began.epoch is not None and quorum is not None and quorum.active_epoch != began.epoch:
        raise quorum.not_controller()


def _changed(durable: Durable, services: BrokerServices, began: int) -> Iterator[tuple[UnifiedLog, int]]:
    """Yield the logs, and the last offset in each, that an answer waits for."""
    for log in services.logs.awaiting_flush:
        last = log.end_offset - 1
        if log.topic == _METADATA_LOG:
            wanted = durable is Durable.METADATA or (durable is Durable.OWN_METADATA and last > began)
        else:
            wanted = log.topic == _OFFSETS_LOG and durable is Durable.GROUPS
        if wanted and log.high_watermark <= last:
            yield log, last
    partitions = services.unsynced_partitions(_OFFSETS_LOG) if durable is Durable.GROUPS else None
    if partitions is not None:
        yield partitions


def _when_on_disk(
    answer: Any, waiting: list[tuple[UnifiedLog, int]], durable: Durable, services: BrokerServices
) -> Future[Any]:
    """Return a future of the answer; it fails with `KafkaStorageError` (groups: `NotCoordinator`) if a sync failed.

    It fails with `NotController` if this node ceases to be the active controller before a change is committed.
    """

    def end(done: Future[Any]) -> None:
        for log, offset in waiting:
            if log.high_watermark <= offset:
                if services.quorum is not None and log.topic == _METADATA_LOG:
                    done.set_exception(services.quorum.not_controller())
                    return
                kind = errors.NotCoordinator if durable is Durable.GROUPS else errors.KafkaStorageError
                done.set_exception(kind(_why_lost(log)))
                return
        done.set_result(answer)

    return _when_all_committed(waiting, services.loop, end)


def _when_all_committed(
    waiting: list[tuple[UnifiedLog, int]], loop: AbstractEventLoop, end: Callable[[Future[Any]], None]
) -> Future[Any]:
    """Return a future that `end` completes when every log is committed up to its offset, or never will be."""
    done: Future[Any] = loop.create_future()
    remaining = len(waiting)

    def committed() -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining and not done.done():
            end(done)

    for log, offset in waiting:
        log.when_committed(offset, committed)
    return done


def _why_lost(log: UnifiedLog) -> str:
    return f"{log.topic}-{log.partition}: {log.failure or 'it was closed before a flush'}"


# Groups whose partition has several replicas


class _GroupPartitions(NamedTuple):
    """The partitions of `__consumer_offsets` that a request is about, and their leader epochs when it arrived."""

    groups: set[str]
    epochs: dict[int, int]


def _groups_of(request: Any) -> set[str]:
    """Return the groups of a request."""
    groups = {group.group_id for group in getattr(request, "groups", ())}
    return groups | {*getattr(request, "groups_names", ())} | {getattr(request, "group_id", "")}


def _partitions_of(groups: set[str], services: BrokerServices) -> _GroupPartitions:
    found = _hosted(groups, services)
    epochs = {index: -1 if hosted is None else hosted.partition.leader_epoch for index, hosted in found.items()}
    return _GroupPartitions(groups, epochs)


def _hosted(groups: set[str], services: BrokerServices) -> dict[int, HostedPartition | None]:
    """Return the groups' partitions; None for one without a replica on this node."""
    replicas = services.replicas
    if replicas is None or _OFFSETS_LOG not in services.image.topics:
        return {}
    indexes = {services.groups.groups.partition_of(group) for group in groups}
    return {index: replicas.find(_OFFSETS_LOG, index) for index in indexes}


def _replicated_change(answer: Any, began: _GroupPartitions, services: BrokerServices) -> Any:
    if type(answer) is GeneratorType:
        return _stepped_group(answer, began, services)
    if isawaitable(answer):
        return _awaited_group(answer, began, services)
    waiting = _unreplicated(began, services)
    return _when_replicated(answer, waiting, services) if waiting else answer


def _stepped_group(
    steps: IncrementalTask[Any], began: _GroupPartitions, services: BrokerServices
) -> IncrementalTask[Any]:
    answer = yield from steps
    return _replicated_change(answer, began, services)


async def _awaited_group(answer: Any, began: _GroupPartitions, services: BrokerServices) -> Any:
    given = await answer
    waiting = _unreplicated(began, services)
    return await _when_replicated(given, waiting, services) if waiting else given


def _unreplicated(began: _GroupPartitions, services: BrokerServices) -> list[tuple[UnifiedLog, int]]:
    """Return the partitions of `__consumer_offsets` that an answer waits for.

    Raise `NotCoordinator` if one has another leader epoch than when the request arrived: its leader may not have what
    the request wrote or read.
    """
    if _partitions_of(began.groups, services) != began:
        raise errors.NotCoordinator(f"another leader epoch of {_OFFSETS_LOG} has begun")
    waiting = []
    for hosted in _hosted(began.groups, services).values():
        opened = None if hosted is None or not hosted.partition.leads else hosted.log
        if opened is not None and opened.high_watermark < opened.end_offset:
            waiting.append((opened, opened.end_offset - 1))
    return waiting


def _when_replicated(answer: Any, waiting: list[tuple[UnifiedLog, int]], services: BrokerServices) -> Future[Any]:
    """Return a future of the answer; it fails with `NotCoordinator` if this node stops leading a partition.

    After `offsets.commit.timeout.ms` it fails with `CoordinatorNotAvailable`.
    """
    done: Future[Any] = services.loop.create_future()
    remaining = len(waiting)

    def decided(opened: UnifiedLog, offset: int) -> None:
        nonlocal remaining
        remaining -= 1
        if done.done():
            return
        if opened.high_watermark <= offset:  # now: later the next leader's records may be there
            done.set_exception(errors.NotCoordinator(f"this broker no longer leads {_name(opened)}"))
        elif not remaining:
            done.set_result(answer)

    def expire() -> None:
        if not done.done():
            names = ", ".join(_name(opened) for opened, _offset in waiting)
            done.set_exception(
                errors.CoordinatorNotAvailable(f"the replicas of {names} did not get the records in time")
            )

    timer = services.timers.schedule(services.configs.current.seconds("offsets.commit.timeout.ms"), expire)
    done.add_done_callback(lambda _done: timer.cancel())
    for opened, offset in waiting:
        opened.when_committed(offset, partial(decided, opened, offset))
    return done


def _name(opened: UnifiedLog) -> str:
    return f"{opened.topic}-{opened.partition}"


# Produce


def _produce(handler: Handler) -> Handler:
    def handle(request: Any, context: RequestContext) -> Any:
        response = handler(request, context)
        if type(response) is GeneratorType:
            return _stepped_produce(response, context.services)
        return _committed_produce(response, context.services)

    return handle


async def _committed_later(appending: Any, services: BrokerServices) -> Any:
    response = await appending
    answer = _committed_produce(response, services)
    return await answer if isawaitable(answer) else answer


def _stepped_produce(steps: IncrementalTask[Any], services: BrokerServices) -> IncrementalTask[Any]:
    response = yield from steps
    return _committed_produce(response, services)


def _committed_produce(response: Any, services: BrokerServices) -> Any:
    if isfuture(response):
        return response  # all of its batches are replicated: they are committed when the replicas have synced them
    if isawaitable(response):
        return _committed_later(response, services)
    if response is None or not services.logs.awaiting_flush:
        return response
    waiting = list(_uncommitted(response, services))
    return _committed(response, waiting, services) if waiting else response


def _uncommitted(
    response: ProduceResponse, services: BrokerServices
) -> Iterator[tuple[PartitionProduceResponse, UnifiedLog, int]]:
    """Yield a partition's answer with a log and the offset up to which it must be on the disk first."""
    for topic in response.responses:
        name = topic.name or services.image.topic_name(topic.topic_id)
        for answer in topic.partition_responses:
            log = None if answer.error_code or name is None else services.logs.find(name, answer.index)
            if log is None or log.commits_at_once:
                continue
            if log in services.logs.awaiting_flush and log.high_watermark <= answer.base_offset:
                yield answer, log, answer.base_offset
            partitions = services.unsynced_partitions(log.topic)
            if partitions is not None:
                yield answer, *partitions


def _committed(
    response: ProduceResponse, waiting: list[tuple[PartitionProduceResponse, UnifiedLog, int]], services: BrokerServices
) -> Future[ProduceResponse]:
    def end(done: Future[Any]) -> None:
        for answer, log, offset in waiting:
            _correct(answer, log, offset)
        done.set_result(response)

    return _when_all_committed([(log, offset) for _answer, log, offset in waiting], services.loop, end)


def _correct(answer: PartitionProduceResponse, log: UnifiedLog, offset: int) -> None:
    """Set the error of a batch that could not be synced, or whose partition's metadata could not."""
    if log.high_watermark <= offset:
        answer.error_code = errors.KafkaStorageError.code
        answer.error_message = _why_lost(log)
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
