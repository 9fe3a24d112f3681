"""Fetch v4-18: read record batches, waiting for `min_bytes` up to `max_wait_ms`.

An error of a partition that is there ends the wait at once. From v7 on clients may have a session (KIP-227) and then
name only what changed; its partitions take turns, and only those with data, news or an error are answered. From v13 on
topics have ids. Not done: reads by followers (a replica id is refused), preferred replicas, tiered storage.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.fetch_reading import ISOLATION_LEVELS, Reading, refused
from pyclient.broker_embedded.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    NO_SESSION,
    SESSIONS_SINCE,
    TOPIC_IDS_SINCE,
    wanted_of,
)
from pyclient.broker_embedded.log.steps import finished
from pyclient.net.file_region import release_regions
from pyclient.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.fetch_reading import Told
    from pyclient.broker_embedded.fetch_sessions import FetchSession, Wanted
    from pyclient.broker_embedded.log.steps import Steps

    Respond = Callable[[Told], Steps[FetchResponse]]

_FEW: Final = 16  # partitions of a request that is answered in one go


@handles(FetchRequest, versions=(4, 18))
def handle(request: FetchRequest, context: RequestContext) -> Any:
    """Answer at once where there is enough, or an error; else park the request. In steps if partitions are many."""
    topics = request.topics
    in_session = context.node.fetch_sessions.size_of(request.session_id)
    if in_session <= _FEW and len(topics) <= _FEW and sum(len(topic.partitions) for topic in topics) <= _FEW:
        return finished(_serve(request, context))
    return _serve(request, context)


def _serve(request: FetchRequest, context: RequestContext) -> Steps[Any]:
    node, by_id = context.node, context.version >= TOPIC_IDS_SINCE
    if request.isolation_level not in ISOLATION_LEVELS:
        return (yield from _refused(request, errors.InvalidRequest.code, by_id=by_id))
    try:
        wanted, respond = yield from _plan(request, context, by_id=by_id)
    except errors.BrokerError as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
    if node.image.client_quotas:
        respond = partial(_within_quota, respond, request.session_id, context)
    reading = Reading(request, wanted, node, version=context.version, most=_most_at_once(context), respond=respond)
    response = yield from reading.attempt(last=request.max_wait_ms <= 0)
    if response is not None:
        return response
    return node.purgatory.park(reading, request.max_wait_ms / 1000, context.connection)


def _refused(request: FetchRequest, code: int, *, by_id: bool) -> Steps[FetchResponse]:
    """One error of the whole request, and before topics had ids of each partition, too."""
    all_wanted = [] if by_id else (yield from wanted_of(request))
    response = yield from _full([(wanted, refused(wanted.partition, code)) for wanted in all_wanted])
    response.error_code = code
    return response


def _plan(request: FetchRequest, context: RequestContext, *, by_id: bool) -> Steps[tuple[Iterable[Wanted], Respond]]:
    """What is to be read, and how the response is made of it. Raises what is wrong with the session."""
    sessions = context.node.fetch_sessions
    if request.session_epoch in (FIRST_EPOCH, FINAL_EPOCH):
        sessions.close(request.session_id)
        wanted = yield from wanted_of(request)
        if request.session_epoch == FIRST_EPOCH and context.version >= SESSIONS_SINCE:
            return wanted, partial(_begin, context, wanted, by_id)
        return wanted, _full
    session = yield from sessions.resume(
        request, context.version, context.node.clock.monotonic(), owner=context.connection_id
    )
    if session is None:
        return (), _full
    # another connection may go on with the session while this request waits: what it reads is not to change with it
    return list(session.partitions.values()), partial(_go_on, session, session.epoch)


def _most_at_once(context: RequestContext) -> int:
    """The bytes that one answer may have: `fetch.max.bytes`, or what a quota of the client allows in its windows."""
    node = context.node
    limit = node.config.integer("fetch.max.bytes")
    of_quota = node.fetch_quotas.most_at_once(context.client_id)
    return limit if of_quota is None else min(limit, int(of_quota))


def _within_quota(respond: Respond, session_id: int, context: RequestContext, told: Told) -> Steps[FetchResponse]:
    """The response, unless the client has had too much: then nothing for now, and it is left alone (KIP-219).

    A batch that is larger than all a client may have is given to one that was quiet, or it would never get on.
    """
    quotas, now = context.node.fetch_quotas, context.node.clock.monotonic()
    size = sum(len(answer.records or b"") for _wanted, answer in told)
    was_quiet = quotas.had_nothing(context.client_id, now)
    seconds = quotas.charge(context.client_id, size, now)
    if seconds <= 0 or not size:
        return (yield from respond(told))
    context.connection.mute(seconds)
    if was_quiet:
        response = yield from respond(told)
    else:
        quotas.refund(context.client_id, size, now)
        _release(told)
        response = FetchResponse(session_id=session_id, responses=[])
    response.throttle_time_ms = round(seconds * 1000)
    return response


def _full(told: Told, session_id: int = NO_SESSION) -> Steps[FetchResponse]:
    """A response with every partition; neighbours of one topic share an entry."""
    topics: list[FetchableTopicResponse] = []
    last: Wanted | None = None
    for wanted, answer in told:
        if last is None or wanted.topic != last.topic or wanted.topic_id != last.topic_id:
            topics.append(FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]))
            yield None
        topics[-1].partitions.append(answer)
        last = wanted
        if not len(topics[-1].partitions) % _FEW:
            yield None
    return FetchResponse(session_id=session_id, responses=topics)


def _begin(context: RequestContext, wanted: list[Wanted], by_id: bool, told: Told) -> Steps[FetchResponse]:
    """The first response of a session, if there is room for one more and its client is still there."""
    node = context.node
    session = None
    if context.connection_id in node.connections:
        session = node.fetch_sessions.open(
            wanted, uses_topic_ids=by_id, now=node.clock.monotonic(), owner=context.connection_id
        )
    if session is None:
        return (yield from _full(told))
    for each, answer in told:
        each.note(answer)
    return (yield from _full(told, session.id))


def _go_on(session: FetchSession, epoch: int, told: Told) -> Steps[FetchResponse]:
    """A response with what is new."""
    if session.epoch != epoch:  # another request went on with the session while this one waited
        _release(told)
        return FetchResponse(error_code=errors.InvalidFetchSessionEpoch.code, session_id=NO_SESSION, responses=[])
    news = [(wanted, answer) for wanted, answer in told if wanted.must_be_told(answer)]
    for wanted, answer in news:
        wanted.note(answer)
        if answer.records:
            session.served(wanted)
    return (yield from _full(news, session.id))


def _release(told: Told) -> None:
    """Give back the files behind what is not sent after all."""
    release_regions([answer.records or b"" for _wanted, answer in told])
