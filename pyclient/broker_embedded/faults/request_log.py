"""The log of the requests to a node and their outcomes: bounded, and off by default."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.faults.items import Item, fits, items_of, top_roles
from pyclient.broker_embedded.faults.shapes import error_codes, shape_of
from pyclient.broker_embedded.faults.spec import api_name, error_code, error_name
from pyclient.config.options import nearest
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.clock import Clock
    from pyclient.protocol.fields import Request

_NUMBER: Final = re.compile("-?[0-9]{1,19}")

DEFAULT_LIMIT: Final = 10_000
"""Requests that are kept; above it the oldest are dropped."""

FILTERS: Final = {
    "api": "an API by name or key",
    "client": "a client id; a * matches any text",
    "topic": "a topic that the request is about; a * matches any text",
    "partition": "a partition that the request is about",
    "group": "the group that the request is about; a * matches any text",
    "error": "an error in the answer, by name or code",
    "answered": "true: only those that were answered, false: only those that were not (yet)",
}


class LoggedRequest:
    """One request. `duration_ms` is None until it was answered; `errors` are the codes in the answer."""

    __slots__ = (
        "_log",
        "_started",
        "api",
        "client_host",
        "client_id",
        "correlation_id",
        "duration_ms",
        "errors",
        "groups",
        "lost",
        "number",
        "time_ms",
        "topics",
        "version",
    )

    def __init__(
        self, log: RequestLog, number: int, api: str, request: Request[Any], context: RequestContext, correlation: int
    ) -> None:
        clock = context.services.clock
        self.number = number
        self.api = api
        self.version = context.version
        self.client_id = context.client_id
        self.client_host = context.client_host
        self.correlation_id = correlation
        self.time_ms = clock.time_ms()
        self.duration_ms: float | None = None
        self.errors: list[int] = []
        self.lost = False
        self.topics: dict[str, list[int]] = {}
        self.groups: list[str] = []
        self._log = log
        self._started = clock.monotonic()
        shape = shape_of(api, context.version)
        self._learn(top_roles(shape, request))
        for item in items_of(shape, request, context.services.image.topic_name) or ():
            self._learn_item(item)

    def answered(self, answer: Any, *, lost: bool = False) -> None:
        """Note the answer, None for none. `lost`: the client did not get it."""
        self.duration_ms = round((self._log.clock.monotonic() - self._started) * 1000, 3)
        self.lost = lost
        if answer is not None:
            self.errors = error_codes(self.api, self.version, answer)
        self._log.changed()

    def as_json(self) -> dict[str, Any]:
        """Return the request as JSON values; times in milliseconds."""
        return {
            "number": self.number,
            "api": self.api,
            "version": self.version,
            "client_id": self.client_id,
            "client_host": self.client_host.removeprefix("/"),
            "correlation_id": self.correlation_id,
            "time_ms": self.time_ms,
            "duration_ms": self.duration_ms,
            "answered": self.duration_ms is not None and not self.lost,
            "topics": self.topics,
            "groups": self.groups,
            "errors": [error_name(code) for code in self.errors],
        }

    def _learn_item(self, item: Item) -> None:
        self._learn(item.roles)
        for child in item.children or ():
            self._learn_item(child)

    def _learn(self, roles: Mapping[str, Any]) -> None:
        topic, partition, group = roles.get("topic"), roles.get("partition"), roles.get("group")
        if topic is not None:
            partitions = self.topics.setdefault(topic, [])
            if partition is not None and partition not in partitions:
                partitions.append(partition)
        if group is not None and group not in self.groups:
            self.groups.append(group)


class RequestFilter:
    """A filter of requests by the names of `FILTERS`; raises `ConfigError` for others."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in FILTERS:
                raise ConfigError(f"{name}: requests are not filtered by that{nearest(name, FILTERS)}")
        self._given = {name: value for name, value in given.items() if value is not None}
        for name in ("client", "topic", "group"):
            if not isinstance(self._given.get(name, ""), str):
                raise ConfigError(f"{name} is {self._given[name]!r}: it must be a text")
        self._api = api_name(given["api"]) if given.get("api") is not None else None
        self._error = error_code(_number(given["error"])) if given.get("error") is not None else None
        self._partition = _number(given.get("partition"))
        if self._partition is not None and (type(self._partition) is not int or not 0 <= self._partition < 2**31):
            raise ConfigError(
                f"partition is {given['partition']!r:.100}: it must be a whole number from 0 to {2**31 - 1}"
            )
        answered = str(self._given.get("answered", None)).lower()
        if answered not in ("true", "false", "none"):
            raise ConfigError(f"answered is {given['answered']!r}: it must be true or false")
        self._answered = {"true": True, "false": False}.get(answered)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._given.items()) or "any request"

    def fits(self, request: LoggedRequest) -> bool:
        """Return True if the request passes the filter."""
        given = self._given
        return (
            (self._api is None or request.api == self._api)
            and fits(given.get("client"), request.client_id)
            and ("group" not in given or any(fits(given["group"], group) for group in request.groups))
            and self._fits_topics(request.topics)
            and (self._error is None or self._error in request.errors)
            and (self._answered is None or (request.duration_ms is not None and not request.lost) == self._answered)
        )

    def _fits_topics(self, topics: Mapping[str, list[int]]) -> bool:
        pattern = self._given.get("topic")
        if pattern is None and self._partition is None:
            return True
        return any(
            fits(pattern, topic) and (self._partition is None or self._partition in partitions)
            for topic, partitions in topics.items()
        )


class RequestLog:
    """The last requests of a node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, limit: int = DEFAULT_LIMIT) -> None:
        self.loop = loop
        self.clock = clock
        self.limit = limit
        self._requests: deque[LoggedRequest] = deque(maxlen=limit)
        self._numbers = itertools.count(1)
        self._changes: set[asyncio.Future[None]] = set()

    def begin(self, api: str, request: Request[Any], context: RequestContext, correlation_id: int) -> LoggedRequest:
        """Add a request that has arrived."""
        entry = LoggedRequest(self, next(self._numbers), api, request, context, correlation_id)
        self._requests.append(entry)
        self.changed()
        return entry

    def changed(self) -> None:
        """Wake the waiters after a request has arrived or was answered."""
        for waiter in self._changes:
            if not waiter.done():
                waiter.set_result(None)

    def find(self, wanted: RequestFilter) -> list[LoggedRequest]:
        """Return the requests that pass a filter, the oldest first."""
        return [request for request in self._requests if wanted.fits(request)]

    def clear(self) -> None:
        """Remove all entries."""
        self._requests.clear()

    async def reached(self, wanted: RequestFilter, count: int) -> list[LoggedRequest]:
        """Return the requests that pass a filter as soon as there are `count`."""
        while len(found := self.find(wanted)) < count:
            change: asyncio.Future[None] = self.loop.create_future()
            self._changes.add(change)
            try:
                await change
            finally:
                self._changes.discard(change)
        return found


def _number(value: Any) -> Any:
    """Convert a number given as text, as in a URL's query."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    return value


def names_of(requests: Iterable[LoggedRequest]) -> list[dict[str, Any]]:
    """Return requests as JSON values."""
    return [request.as_json() for request in requests]
