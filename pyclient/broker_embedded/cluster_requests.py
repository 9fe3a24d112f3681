"""`cluster.requests`: what clients asked a broker, for tests to look at and to wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pyclient.broker_embedded.faults_spec import error_code
from pyclient.broker_embedded.request_log import DEFAULT_LIMIT, RequestFilter
from pyclient.errors import BrokerError, ClientError, ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from pyclient.broker_embedded.cluster_broker import Broker


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. Its times are in milliseconds; `duration_ms` is None until it was answered or lost.

    `topics` are those it is about, with the partitions that it names; `errors` the names of the errors in its answer.
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
    """Which requests are meant: those that fit all of it. In a text a `*` stands for any characters.

    `answered`: True for those that were, False for those that were not (yet); `error`: one that the answer has.
    """

    client: str
    topic: str
    partition: int
    group: str
    error: type[BrokerError] | str | int
    answered: bool


class Requests:
    """The request log of a cluster: off until `start()`, for it costs every request some ten microseconds.

        with cluster.requests.start() as requests:
            producer.send("orders", b"...").result()
            [produce] = requests.query("Produce", topic="orders")

    As a context manager it stops at the end of the block. It begins anew when the broker is started again.
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
        """Log requests from now on; of more than `limit` the oldest are forgotten."""
        self._broker.call("POST", "/requests/start", {"limit": limit})
        self._limit = limit
        return self

    def stop(self) -> None:
        """Log none any more, and forget those that were."""
        was_on, self._limit = self._limit is not None, None
        if was_on and self._broker.reachable:
            self._broker.call("POST", "/requests/stop")
        elif was_on:
            self._broker.later(self._stop_late)

    def clear(self) -> None:
        """Forget what was logged so far."""
        self._broker.call("DELETE", "/requests")

    def query(self, api: str | int | None = None, **wanted: Unpack[Wanted]) -> list[RequestRecord]:
        """The requests that were logged, the oldest first: all, or of one API and what `Wanted` says."""
        return _records(self._broker.call("GET", "/requests", _filters(api, wanted)))

    def wait_request(
        self, api: str | int | None = None, *, count: int = 1, timeout: float = 30.0, **wanted: Unpack[Wanted]
    ) -> RequestRecord:
        """Wait until `count` such requests were logged (those before the call count, too); the last of these.

        `KafkaTimeout` after `timeout` seconds. A request is logged when it comes; `answered=True` waits for its answer.
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
