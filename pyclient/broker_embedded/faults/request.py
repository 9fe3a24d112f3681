"""One request that met a fault: it is delayed, lost, or fails in part or as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded.faults.answers import Failing, release
from pyclient.broker_embedded.faults.items import Item, copy_with, items_of, key_in, mark, mentions, without_failed
from pyclient.broker_embedded.faults.shapes import TOP, place_of, shape_of
from pyclient.broker_embedded.faults.spec import DISCONNECT, FAIL, HOLD
from pyclient.broker_embedded.log.incremental_task import finished
from pyclient.broker_embedded.request_context import CloseConnection
from pyclient.protocol import framing

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.faults.faults import LiveFault
    from pyclient.broker_embedded.faults.items import Selection
    from pyclient.broker_embedded.faults.shapes import Shape
    from pyclient.broker_embedded.replication.fetch_sessions import FetchSessions
    from pyclient.broker_embedded.request_context import RequestContext, Route
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.protocol.fields import Request, Response

_FETCH: Final = "Fetch"
_API_VERSIONS: Final = "ApiVersions"


def is_about(name: str, request: Request[Any], context: RequestContext, selection: Selection) -> bool:
    """Return True if a request has an item that the selection allows; of a Fetch, also in its session."""
    shape = shape_of(name, context.version)
    if mentions(shape, request, selection, context.services.image.topic_name):
        return True
    if name != _FETCH:
        return False
    return any(
        selection.allows(partition.roles)
        for topic in _session_items(shape, request, context.services.fetch_sessions, context.services.image)
        for partition in topic.children or ()
    )


class FaultyRequest:
    """A request with the fault that decides its outcome and the one that decides its time."""

    def __init__(
        self,
        route: Route,
        request: Request[Any],
        context: RequestContext,
        correlation_id: int,
        *,
        outcome: LiveFault | None,
        timing: LiveFault | None,
    ) -> None:
        self._services: BrokerServices = context.services
        self._route = route
        self._request = request
        self._context = context
        self._correlation_id = correlation_id
        self._outcome = outcome
        self._timing = timing
        self.waiting = False
        """True while it is held or delayed."""

    async def run(self) -> Any:
        """Return the answer, None for none. Does not return for a dropped request until its fault is cancelled."""
        outcome = self._outcome
        await self._wait(after=False)
        if outcome is not None and not outcome.spec.after:
            return await (self._fail(outcome) if outcome.spec.kind == FAIL else self._lose(outcome))
        answer = await self._work(self._request)
        try:
            await self._wait(after=True)
        except BaseException:
            release(answer)
            raise
        if outcome is None:
            return answer
        if outcome.spec.kind == FAIL:
            return await self._fail(outcome, answer)
        release(answer)
        return await self._lose(outcome)

    async def _wait(self, *, after: bool) -> None:
        """Wait if the timing fault applies to this moment."""
        fault = self._timing
        if fault is None or fault.spec.after != after:
            return
        self.waiting = True
        try:
            await (fault.hold() if fault.spec.kind == HOLD else self._delay(fault.spec.seconds))
        finally:
            self.waiting = False

    async def _delay(self, seconds: float) -> None:
        over: asyncio.Future[None] = self._services.loop.create_future()
        timer = self._services.timers.schedule(seconds, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()

    async def _lose(self, fault: LiveFault) -> None:
        if fault.spec.kind != DISCONNECT:
            await fault.drop()
        raise CloseConnection(f"{fault!r}")

    async def _work(self, request: Request[Any]) -> Any:
        answer = finished(self._route.handler(request, self._context))
        return await answer if isinstance(answer, Awaitable) else answer

    async def _fail(self, fault: LiveFault, answer: Response | None = None) -> Response | None:
        spec, request = fault.spec, self._request
        if getattr(request, "acks", None) == 0:
            raise CloseConnection(f"{fault!r}: the request wants no answer")  # as Kafka does
        name, version, selection = self._route.name, self._context.version, spec.selection
        place = place_of(
            name,
            version,
            spec.code,
            by_topic=selection.topic is not None,
            by_partition=selection.partitions is not None,
            whole=spec.whole,
        )
        if place is None:
            raise CloseConnection(f"{fault!r}: {name} v{version} has no error code")
        shape = shape_of(name, version)
        failing = Failing(shape, version, place, spec.code, spec.text(), selection, self._services.image.topic_name)
        if place == TOP:
            release(answer)
            if name == _API_VERSIONS and spec.code == errors.UnsupportedVersion.code:
                self._refuse()
                return None
            return failing.whole(request)
        return await self.fail_items(failing, shape, place, selection, answer)

    async def fail_items(
        self, failing: Failing, shape: Shape, place: int, selection: Selection, answer: Response | None
    ) -> Response:
        """Return the answer in which the selected items have the error. `answer`: all were served already."""
        request = self._request
        items = items_of(shape, request, self._services.image.topic_name)
        if items is not None:
            if self._route.name == _FETCH:
                items += _session_items(shape, request, self._services.fetch_sessions, self._services.image)
            mark(items, place, selection)
        if answer is not None:
            return failing.put(request, items, answer, done=True)
        if shape.overwrite or items is None:
            if self._route.name == _FETCH:
                request.max_wait_ms = 0  # type: ignore[attr-defined]  # an error ends the wait at once
            return failing.put(request, items, await self._work(request), done=True)
        rest = without_failed(shape, request, items)
        if rest is not None:
            return failing.put(request, items, await self._work(rest), done=False)
        nothing = await self._work_without_items(shape) if shape.always else None
        return failing.put(request, items, nothing, done=False)

    async def _work_without_items(self, shape: Shape) -> Response:
        """Return an answer without items, with its other fields (the brokers, in Metadata)."""
        level = shape.levels[0]
        answer: Response = await self._work(copy_with(self._request, {name: [] for name in level.lists}))
        setattr(answer, level.answered, [])  # in version 0 an empty list asks for all
        return answer

    def _refuse(self) -> None:
        """Answer UNSUPPORTED_VERSION in version 0, as for a version that is not served (KIP-511)."""
        from pyclient.broker_embedded.handlers.api_versions import unsupported_version

        parts = framing.encode_response(unsupported_version(self._services.release), 0, self._correlation_id)
        self._context.connection.stream.send(parts)


def _session_items(shape: Shape, request: Any, fetch_sessions: FetchSessions, image: MetadataImage) -> list[Item]:
    """Return the partitions that an incremental Fetch reads without naming them: those of its session (KIP-227)."""
    topics, partitions = shape.levels
    forgotten = {
        (topic.topic, topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    }
    found: dict[Any, Item] = {}
    for wanted in fetch_sessions.partitions_of(request.session_id, request.session_epoch):
        if wanted.key in forgotten:
            continue
        name = wanted.topic or image.topic_name(wanted.topic_id)
        roles = {"topic": name, "topic_id": wanted.topic_id}
        key = key_in(topics, roles, 0)
        topic = found.setdefault(key, Item(wanted, roles, key, []))
        assert topic.children is not None
        own = {"partition": wanted.partition}
        topic.children.append(Item(wanted, roles | own, key_in(partitions, own, 0)))
    return list(found.values())
