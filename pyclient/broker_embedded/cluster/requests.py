"""`cluster.requests`: the requests of clients to a broker, for tests to inspect and to wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pyclient.broker_embedded.faults.request_log import DEFAULT_LIMIT, RequestFilter
from pyclient.broker_embedded.faults.spec import error_code
from pyclient.errors import BrokerError, ClientError, ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from pyclient.broker_embedded.cluster.broker import Broker


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. Times are in milliseconds; `duration_ms` is None until it was answered or lost.

    `topics` maps the topics of the request to the partitions it names; `errors` are the error names in its answer.
    """

    number: int
    api: str
    version: int
    client_id: str
    client_host: str
    correlation_id: int
    time_ms: int
    duration_ms: float | None
    answered: bool
    topics: Mapping[str, list[int]]
    groups: list[str]
    errors: list[str]


class Wanted(TypedDict, total=False):
    """Filters for requests; a request must match all of them. `*` in a text matches any characters.

    `answered`: True for requests that were answered, False for others; `error`: an error in the answer.
    """

    client: str
    topic: str
    partition: int
    group: str
    error: type[BrokerError] | str | int
    answered: bool


class Requests:
    """The request log of a cluster. It is off until `start()`, since it costs some ten microseconds per request.

        with cluster.requests.start() as requests:
            producer.send("orders", b"...").result()
            [produce] = requests.query("Produce", topic="orders")

    As a context manager it stops at the end of the block. A restarted broker begins with an empty log.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._limit: int | None = None
        broker.on_start.append(self._after_start)

    def __repr__(self) -> str:
        return f"<Requests {'off' if self._limit is None else f'on, the last {self._limit}'}>"

    def __enter__(self) -> Requests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self.query())

    def start(self, limit: int = DEFAULT_LIMIT) -> Requests:
        """Log requests from now on; above `limit` the oldest are dropped."""
        self._broker.call("POST", "/requests/start", {"limit": limit})
        self._limit = limit
        return self

    def stop(self) -> None:
        """Stop logging and clear the log."""
        was_on, self._limit = self._limit is not None, None
        if was_on and self._broker.reachable:
            self._broker.call("POST", "/requests/stop")
        elif was_on:
            self._broker.later(self._stop_late)

    def clear(self) -> None:
        """Clear the log."""
        self._broker.call("DELETE", "/requests")

    def query(self, api: str | int | None = None, **wanted: Unpack[Wanted]) -> list[RequestRecord]:
        """Return the logged requests, the oldest first: all, or those of one API that match the filters `wanted`."""
        return _records(self._broker.call("GET", "/requests", _filters(api, wanted)))

    def wait_request(
        self, api: str | int | None = None, *, count: int = 1, timeout: float = 30.0, **wanted: Unpack[Wanted]
    ) -> RequestRecord:
        """Wait until `count` matching requests were logged, counting those before the call. Return the last of them.

        Raise `KafkaTimeout` after `timeout` seconds. A request is logged when it arrives; `answered=True` waits for its
        answer.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"count is {count!r}: it must be a whole number from 1")
        values = {**_filters(api, wanted), "count": count, "timeout": timeout}
        return _records(self._broker.call("GET", "/requests/wait", values, timeout=timeout))[count - 1]

    def _stop_late(self) -> None:
        if self._limit is None:
            self._broker.call("POST", "/requests/stop")

    def _after_start(self) -> None:
        if self._limit is not None:
            self.start(self._limit)


def _filters(api: str | int | None, wanted: Wanted) -> dict[str, Any]:
    values: dict[str, Any] = {"api": api, **wanted}
    if values.get("error") is not None:
        values["error"] = error_code(values["error"])
    RequestFilter(values)
    return {name: value for name, value in values.items() if value is not None}


def _records(answer: dict[str, Any]) -> list[RequestRecord]:
    try:
        return [RequestRecord(**each) for each in answer["requests"]]
    except TypeError as error:
        raise ClientError(f"the broker's request log is of another version: {error}") from error
