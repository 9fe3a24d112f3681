"""`cluster.requests`: the requests of clients to a broker, for tests to inspect and to wait for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pyclient.broker_embedded.cluster.broker import checked_timeout
from pyclient.broker_embedded.cluster.faults import POLL_SECONDS
from pyclient.broker_embedded.faults.request_log import DEFAULT_LIMIT, RequestFilter
from pyclient.broker_embedded.faults.spec import error_code
from pyclient.errors import BrokerError, ClientError, ConfigError, KafkaTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from pyclient.broker_embedded.cluster.broker import Broker


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request to the broker `node`.

    Times are in milliseconds; `duration_ms` is None until it was answered or lost.
    `number` counts the requests of that broker. `topics` maps the topics of the request to the partitions it names;
    `errors` are the error names in its answer.
    """

    node: int
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


class RequestQuery(TypedDict, total=False):
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

    As a context manager it stops at the end of the block. A restarted broker begins with an empty log, and brokers that
    are down or paused are left out.
    """

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self._brokers: list[Broker] = []
        self._limit: int | None = None
        for broker in brokers:
            self.add_broker(broker)

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
        for broker in self._reachable():
            broker.call("POST", "/requests/start", {"limit": limit})
        self._limit = limit
        return self

    def stop(self) -> None:
        """Stop logging and clear the log."""
        was_on, self._limit = self._limit is not None, None
        for broker in self._brokers if was_on else ():
            if broker.reachable:
                broker.call("POST", "/requests/stop")
            else:
                broker.later(partial(self._stop_late, broker))

    def clear(self) -> None:
        """Clear the log."""
        for broker in self._reachable():
            broker.call("DELETE", "/requests")

    def add_broker(self, broker: Broker) -> None:
        """Log the requests to this broker, too."""
        self._brokers.append(broker)
        broker.on_start.append(partial(self._after_start, broker))

    def remove_broker(self, broker: Broker) -> None:
        """Leave out a broker that leaves the cluster."""
        self._brokers.remove(broker)

    def query(self, api: str | int | None = None, **wanted: Unpack[RequestQuery]) -> list[RequestRecord]:
        """Return the logged requests, the oldest first: all, or those of one API that match the filters `wanted`.

        Requests of the same millisecond come in the order of the brokers.
        """
        filters = _filters(api, wanted)
        found = [each for broker in self._reachable() for each in _records(broker, "/requests", filters)]
        return sorted(found, key=lambda record: record.time_ms)

    def wait_request(
        self, api: str | int | None = None, *, count: int = 1, timeout: float = 30.0, **wanted: Unpack[RequestQuery]
    ) -> RequestRecord:
        """Wait until `count` matching requests were logged, counting those before the call. Return the last of them.

        Raise `KafkaTimeout` after `timeout` seconds. A request is logged when it arrives; `answered=True` waits for its
        answer.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"count is {count!r}: it must be a whole number from 1")
        if len(self._brokers) == 1:
            values = {**_filters(api, wanted), "count": count, "timeout": timeout}
            return _records(self._brokers[0], "/requests/wait", values, timeout)[count - 1]
        end = time.monotonic() + checked_timeout(timeout)
        while len(found := self.query(api, **wanted)) < count:
            if time.monotonic() >= end:
                raise KafkaTimeout(
                    f"timed out after {timeout:g} s: the brokers have {len(found)} of {count} such requests"
                )
            time.sleep(POLL_SECONDS)  # each broker has its own log, so that the sum is polled
        return found[count - 1]

    def _reachable(self) -> list[Broker]:
        """Return the brokers that can be asked; the first one if none can, to whose call belongs the error."""
        return [broker for broker in self._brokers if broker.reachable] or self._brokers[:1]

    def _stop_late(self, broker: Broker) -> None:
        if self._limit is None:
            broker.call("POST", "/requests/stop")

    def _after_start(self, broker: Broker) -> None:
        if self._limit is not None:
            broker.call("POST", "/requests/start", {"limit": self._limit})


def _filters(api: str | int | None, wanted: RequestQuery) -> dict[str, Any]:
    values: dict[str, Any] = {"api": api, **wanted}
    if values.get("error") is not None:
        values["error"] = error_code(values["error"])
    RequestFilter(values)
    return {name: value for name, value in values.items() if value is not None}


def _records(broker: Broker, path: str, values: dict[str, Any], timeout: float = 0.0) -> list[RequestRecord]:
    answer = broker.call("GET", path, values, timeout=timeout)
    try:
        return [RequestRecord(node=broker.id, **each) for each in answer["requests"]]
    except TypeError as error:
        raise ClientError(f"the broker's request log is of another version: {error}") from error
