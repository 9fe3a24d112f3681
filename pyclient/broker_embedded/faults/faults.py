"""Faults at one node: the next requests that match fail, are delayed, dropped, disconnected or held."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.faults.request import FaultyRequest, is_about
from pyclient.broker_embedded.faults.spec import TIMINGS
from pyclient.broker_embedded.log.incremental_task import finished

if TYPE_CHECKING:
    from pyclient.broker_embedded.faults.request_log import LoggedRequest, RequestLog
    from pyclient.broker_embedded.faults.spec import FaultSpec
    from pyclient.broker_embedded.request_context import ClientConnection, RequestContext, Route
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.protocol.fields import Request

_REMEMBERED: Final = 1000  # faults that are over and kept for queries of their hits


class LiveFault:
    """A fault at a node: its specification, how many requests it has met, and those that it holds."""

    def __init__(self, number: int, spec: FaultSpec, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        self.spec = spec
        self.hits = 0
        self.over = False
        self._seen = 0
        self._released = False
        self._loop = loop
        self._held: set[asyncio.Future[None]] = set()
        self._dropped: set[asyncio.Future[None]] = set()
        self._watching: dict[asyncio.Future[None], int] = {}

    def __repr__(self) -> str:
        return f"<fault {self.number}: {self.spec.describe()}, {self.hits} hits{', over' if self.over else ''}>"

    @property
    def held(self) -> int:
        """Return how many requests wait for `release`."""
        return len(self._held)

    def describe(self) -> dict[str, Any]:
        """Return the fault as JSON values."""
        return {
            "id": self.number,
            **self.spec.as_json(),
            "hits": self.hits,
            "seen": self._seen,
            "held": self.held,
            "over": self.over,
        }

    def takes(self, name: str, request: Request[Any], context: RequestContext) -> bool:
        """Return True if the fault applies to this request, which then counts as a hit."""
        if not self.spec.names(name, context.client_id):
            return False
        if self.spec.limited and not is_about(name, request, context, self.spec.selection):
            return False
        self._seen += 1
        if self._seen <= self.spec.skip:
            return False
        self.hits += 1
        if self.spec.times is not None and self.hits >= self.spec.times:
            self.over = True
        for waiter, count in list(self._watching.items()):
            if self.hits >= count and not waiter.done():
                waiter.set_result(None)
        return True

    async def reached(self, count: int) -> None:
        """Return when `count` requests were met."""
        if self.hits >= count:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._watching[waiter] = count
        try:
            await waiter
        finally:
            del self._watching[waiter]

    async def hold(self) -> None:
        """Return when the fault is released."""
        if self._released:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._held.add(waiter)
        try:
            await waiter
        finally:
            self._held.discard(waiter)

    async def drop(self) -> None:
        """Return when the fault is cancelled; the connections of its requests may be closed then."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._dropped.add(waiter)
        try:
            await waiter
        finally:
            self._dropped.discard(waiter)

    def cancel(self) -> None:
        """End the fault, and end the wait of the requests it has dropped."""
        self.release()
        for waiter in self._dropped:
            if not waiter.done():
                waiter.set_result(None)

    def release(self) -> None:
        """End the fault, and continue the requests it holds."""
        self.over = self._released = True
        for waiter in self._held:
            if not waiter.done():
                waiter.set_result(None)


class Interceptor:
    """Applies faults and the request log between a node's connections and handlers; attached only while needed.

    A request meets at most one fault that decides its outcome (fail, drop, disconnect) and one that decides its time
    (delay, hold), in each case the oldest that matches.
    """

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._numbers = itertools.count(1)
        self._faults: dict[int, LiveFault] = {}
        self._live: list[LiveFault] = []
        self._tasks: dict[ClientConnection, dict[asyncio.Task[Any], FaultyRequest | None]] = {}
        self.log: RequestLog | None = None

    @property
    def faults(self) -> list[LiveFault]:
        """Return the faults that are not cancelled, the oldest first."""
        return list(self._faults.values())

    def get(self, number: int) -> LiveFault | None:
        """Return the fault with a number; None if there is none or it was cancelled."""
        return self._faults.get(number)

    def add(self, spec: FaultSpec) -> LiveFault:
        """Create a fault."""
        fault = LiveFault(next(self._numbers), spec, self._services.loop)
        over = [each for each in self._faults.values() if each.over and not each.held]
        for old in over[: max(0, len(over) - _REMEMBERED)]:
            del self._faults[old.number]
        self._faults[fault.number] = fault
        self._live.append(fault)
        self.attach()
        return fault

    def end(self, fault: LiveFault) -> None:
        """End a fault and continue the requests it holds. Its hits can still be queried."""
        fault.release()
        self._live = [each for each in self._live if not each.over]
        self.attach()

    def cancel(self, fault: LiveFault) -> None:
        """End a fault and remove it. Connections whose requests it has dropped are closed."""
        self.end(fault)
        fault.cancel()
        self._faults.pop(fault.number, None)

    def clear(self) -> int:
        """Cancel every fault. Return how many there were."""
        faults = self.faults
        for fault in faults:
            self.cancel(fault)
        return len(faults)

    def move(self, services: BrokerServices) -> None:
        """Move the faults and the request log to the node that replaces the former one."""
        self._services = services
        self._tasks = {}
        if self.log is not None:
            self.log.loop, self.log.clock = services.loop, services.clock
        self.attach()

    def attach(self) -> None:
        """Intercept requests only while there are faults or a log: docs/measurements.md, "Request log and faults"."""
        self._services.interceptor = self if self._live or self._tasks or self.log is not None else None

    def serve(self, route: Route, request: Request[Any], context: RequestContext, correlation_id: int) -> Any:
        """Return the handler's answer to a request, or a task that makes the answer."""
        entry = None if self.log is None else self.log.begin(route.name, request, context, correlation_id)
        outcome, timing = self._match(route.name, request, context)
        if outcome is None and timing is None:
            answer = finished(route.handler(request, context))
            if entry is None:
                return answer
            if isinstance(answer, route.response) or answer is None:
                entry.answered(answer)
                return answer
            faulty, work = None, _resolved(answer)
        else:
            faulty = FaultyRequest(route, request, context, correlation_id, outcome=outcome, timing=timing)
            work = faulty.run()
        task = self._services.loop.create_task(work)
        if entry is not None:
            task.add_done_callback(lambda done: self._note(entry, done))
        self._tasks.setdefault(context.connection, {})[task] = faulty
        task.add_done_callback(lambda done: self._forget(context.connection, done))
        return task

    def forget(self, connection: ClientConnection) -> None:
        """Cancel the requests of a closed connection; held and delayed ones are served, as queued ones in Kafka."""
        for task, faulty in self._tasks.get(connection, {}).items():
            if faulty is None or not faulty.waiting:
                task.cancel()

    async def close(self) -> None:
        """Cancel all waiting requests."""
        tasks = [task for tasks in self._tasks.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _match(
        self, name: str, request: Request[Any], context: RequestContext
    ) -> tuple[LiveFault | None, LiveFault | None]:
        outcome: LiveFault | None = None
        timing: LiveFault | None = None
        for fault in self._live:
            taken = timing if fault.spec.kind in TIMINGS else outcome
            if taken is None and fault.takes(name, request, context):
                if fault.spec.kind in TIMINGS:
                    timing = fault
                else:
                    outcome = fault
        if any(fault is not None and fault.over for fault in (outcome, timing)):
            self._live = [each for each in self._live if not each.over]
        return outcome, timing

    def _note(self, entry: LoggedRequest, done: asyncio.Task[Any]) -> None:
        failed = done.cancelled() or done.exception() is not None
        entry.answered(None if failed else done.result(), lost=failed)

    def _forget(self, connection: ClientConnection, task: asyncio.Task[Any]) -> None:
        tasks = self._tasks.get(connection, {})
        tasks.pop(task, None)
        if not tasks:
            self._tasks.pop(connection, None)
        self.attach()


async def _resolved(answer: Awaitable[Any]) -> Any:
    return await answer
