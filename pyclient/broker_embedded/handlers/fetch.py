"""Fetch v4-18: read record batches, waiting for `min_bytes` up to `max_wait_ms`.

An error of an existing partition ends the wait. From v7 on clients may have a fetch session (KIP-227) and then name
only changed partitions; the session's partitions are read in rotation, and only those with data, changes or an error
are in the response. Followers (a replica id) read up to the end of the log; consumers up to the high watermark, from
v11 on of any replica. From v13 on topics have ids, from v16 on the answer for a moved partition names its leader
(KIP-951). Not done: tiered storage.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.log.incremental_task import finished
from pyclient.broker_embedded.replication.fetch_reading import ISOLATION_LEVELS, Reading, refused
from pyclient.broker_embedded.replication.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    NO_SESSION,
    SESSIONS_SINCE,
    TOPIC_IDS_SINCE,
    wanted_of,
)
from pyclient.net.file_region import release_regions
from pyclient.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.replication.fetch_reading import Answers
    from pyclient.broker_embedded.replication.fetch_sessions import CachedPartition, FetchSession
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices

    Respond = Callable[[Answers], IncrementalTask[FetchResponse]]

_FEW: Final = 16  # a request of so many partitions is served in one step


def _logs(request: FetchRequest, services: BrokerServices) -> list[TopicPartition]:
    """Return nothing if the request may wait in the purgatory, or if some of its logs are open."""
    if request.max_wait_ms > 0:
        return []
    asked = [
        TopicPartition(topic.topic or services.image.topic_name(topic.topic_id) or "", partition.partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    return asked if all(partition in services.logs.unopened for partition in asked) else []


@handles(FetchRequest, versions=(4, 18), logs=_logs)
def handle(request: FetchRequest, context: RequestContext) -> Any:
    """Answer immediately if there is enough data or an error, else park the request. Many partitions take steps."""
    topics = request.topics
    in_session = context.services.fetch_sessions.size_of(request.session_id)
    if in_session <= _FEW and len(topics) <= _FEW and sum(len(topic.partitions) for topic in topics) <= _FEW:
        return finished(_serve(request, context))
    return _serve(request, context)


def _serve(request: FetchRequest, context: RequestContext) -> IncrementalTask[Any]:
    services, by_id = context.services, context.version >= TOPIC_IDS_SINCE
    if request.isolation_level not in ISOLATION_LEVELS:
        return (yield from _refused(request, errors.InvalidRequest.code, by_id=by_id))
    try:
        wanted, respond = yield from _plan(request, context, by_id=by_id)
    except errors.BrokerError as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
    if services.image.client_quotas and max(request.replica_id, request.replica_state.replica_id) < 0:
        respond = partial(_within_quota, respond, request.session_id, context)
    reading = Reading(
        request,
        wanted,
        services,
        version=context.version,
        most=_response_limit(context),
        respond=respond,
        endpoints=partial(services.listeners.advertised, context.connection),
    )
    response = yield from reading.attempt(last=request.max_wait_ms <= 0)
    if response is not None:
        return response
    return services.purgatory.park(reading, request.max_wait_ms / 1000, context.connection)


def _refused(request: FetchRequest, code: int, *, by_id: bool) -> IncrementalTask[FetchResponse]:
    """Return an error of the whole request, and in versions without topic ids of each partition, too."""
    all_wanted = [] if by_id else (yield from wanted_of(request))
    response = yield from _full([(wanted, refused(wanted.partition, code)) for wanted in all_wanted])
    response.error_code = code
    return response


def _plan(
    request: FetchRequest, context: RequestContext, *, by_id: bool
) -> IncrementalTask[tuple[Iterable[CachedPartition], Respond]]:
    """Return the partitions to read and the function that builds the response. Raise the session's error."""
    sessions = context.services.fetch_sessions
    if request.session_epoch in (FIRST_EPOCH, FINAL_EPOCH):
        sessions.close(request.session_id)
        wanted = yield from wanted_of(request)
        if request.session_epoch == FIRST_EPOCH and context.version >= SESSIONS_SINCE:
            return wanted, partial(_open_session, context, wanted, by_id)
        return wanted, _full
    session = yield from sessions.resume(
        request, context.version, context.services.clock.monotonic(), owner=context.connection_id
    )
    if session is None:
        return (), _full
    # a copy: another connection may change the session while this request waits
    return list(session.partitions.values()), partial(_continue_session, session, session.epoch)


def _response_limit(context: RequestContext) -> int:
    """Return the maximum size of a response in bytes: `fetch.max.bytes`, or less if the client's quota requires it."""
    services = context.services
    limit = services.configs.current.integer("fetch.max.bytes")
    if not services.image.client_quotas:
        return limit
    quota = services.quotas.fetch.most_at_once(context.quota_client)
    return limit if quota is None else min(limit, int(quota))


def _within_quota(
    respond: Respond, session_id: int, context: RequestContext, answers: Answers
) -> IncrementalTask[FetchResponse]:
    """Return the response; if the client exceeds its quota, an empty one, and mute its connection (KIP-219).

    A client that was idle gets its response even if one batch exceeds the quota; otherwise it could never progress.
    """
    quotas, now = context.services.quotas.fetch, context.services.clock.monotonic()
    client = context.quota_client
    size = sum(len(answer.records or b"") for _wanted, answer in answers)
    was_idle = quotas.had_nothing(client, now)
    seconds = quotas.charge(client, size, now)
    if seconds <= 0 or not size:
        return (yield from respond(answers))
    context.connection.mute(seconds)
    if was_idle:
        response = yield from respond(answers)
    else:
        quotas.refund(client, size, now)
        _release(answers)
        response = FetchResponse(session_id=session_id, responses=[])
    response.throttle_time_ms = round(seconds * 1000)
    return response


def _full(answers: Answers, session_id: int = NO_SESSION) -> IncrementalTask[FetchResponse]:
    """Return a response with every partition; adjacent partitions of one topic share an entry."""
    topics: list[FetchableTopicResponse] = []
    last: CachedPartition | None = None
    for wanted, answer in answers:
        if last is None or wanted.topic != last.topic or wanted.topic_id != last.topic_id:
            topics.append(FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]))
            yield None
        topics[-1].partitions.append(answer)
        last = wanted
        if not len(topics[-1].partitions) % _FEW:
            yield None
    return FetchResponse(session_id=session_id, responses=topics)


def _open_session(
    context: RequestContext, wanted: list[CachedPartition], by_id: bool, answers: Answers
) -> IncrementalTask[FetchResponse]:
    """Return the first response of a session, without one if there is no capacity or the client has disconnected."""
    services = context.services
    session = None
    if context.connection_id in services.connections:
        session = services.fetch_sessions.open(
            wanted, uses_topic_ids=by_id, now=services.clock.monotonic(), owner=context.connection_id
        )
    if session is None:
        return (yield from _full(answers))
    for each, answer in answers:
        each.note(answer)
    return (yield from _full(answers, session.id))


def _continue_session(session: FetchSession, epoch: int, answers: Answers) -> IncrementalTask[FetchResponse]:
    """Return a response with the changed partitions of a session."""
    if session.epoch != epoch:  # another request of the session was served while this one waited
        _release(answers)
        return FetchResponse(error_code=errors.InvalidFetchSessionEpoch.code, session_id=NO_SESSION, responses=[])
    changed = [(wanted, answer) for wanted, answer in answers if wanted.must_be_included(answer)]
    for wanted, answer in changed:
        wanted.note(answer)
        if answer.records:
            session.served(wanted)
    return (yield from _full(changed, session.id))


def _release(answers: Answers) -> None:
    """Release the file regions of records that are not sent."""
    release_regions([answer.records or b"" for _wanted, answer in answers])
