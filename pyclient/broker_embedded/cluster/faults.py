"""`cluster.faults`: fault injection for tests, and the number of requests that each fault has met."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from pyclient.broker_embedded.cluster.broker import checked_timeout
from pyclient.broker_embedded.cluster.fault_at_broker import FaultAtBroker
from pyclient.broker_embedded.faults.spec import DELAY, DISCONNECT, DROP, FAIL, FIELDS, HOLD, error_code
from pyclient.config.options import nearest
from pyclient.errors import BrokerError, ClientError, ConfigError, KafkaTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from pyclient.broker_embedded.cluster.broker import Broker

POLL_SECONDS: Final = 0.01
"""Seconds between two polls of several brokers."""

Api = str | int | Iterable[str | int]
"""An API by Kafka's name or key, several of them, or `"*"` for all."""


class Limits(TypedDict, total=False):
    """Limits of a fault: which requests meet it, and how many.

    `times`: how many (default 1; None: all until it is cancelled), `skip`: how many pass before. `when`: `"before"` the
    work is done (the default) or `"after"` it, when only the answer is lost, late or wrong. `topic`, `partition` (one
    or several), `group`, `client` (the client id): only requests about these; `*` in a text matches any characters.
    `node`: only at the broker with this id; without it at every broker, of which each counts for itself.
    """

    times: int | None
    skip: int
    when: str
    topic: str
    partition: int | Iterable[int]
    group: str
    client: str
    node: int


class Fault:
    """A fault at one or several brokers; as a context manager it is cancelled at the end of the block.

    At several brokers each counts for itself: `times=1` is one request of each of them. What is read here (`hits`,
    `held`) is the sum.
    """

    def __init__(
        self, faults: Faults, brokers: Sequence[Broker], values: dict[str, Any], *, everywhere: bool = True
    ) -> None:
        self.everywhere = everywhere
        self._faults = faults
        self._values = values
        self._parts: list[FaultAtBroker] = []
        self._cancelled = False
        try:
            for broker in brokers:
                self._parts.append(FaultAtBroker(broker, values))
        except BaseException:
            for part in self._parts:
                part.cancel()
            raise

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self._values.items() if value is not None)
        return f"<Fault {said}{', cancelled' if self._cancelled else ''}>"

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    @property
    def over(self) -> bool:
        """Return True if no further request will meet it."""
        return self._count()[1]

    @property
    def held(self) -> int:
        """Return how many requests it holds now."""
        return sum(part.held for part in self._parts)

    def hits(self) -> int:
        """Return how many requests have met it; of a cancelled one, until then."""
        return self._count()[0]

    def wait(self, n: int = 1, timeout: float = 30.0) -> int:
        """Wait until `n` requests have met it. Return how many have. Raise `KafkaTimeout` after `timeout` seconds."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ConfigError(f"n is {n!r}: it must be a whole number of requests from 0")
        end = time.monotonic() + checked_timeout(timeout)
        while True:
            hits, over = self._count()
            if hits >= n:
                return hits
            if over:
                raise ClientError(f"{self!r} is over after {hits} requests: there will not be {n}")
            if len(self._parts) == 1:
                return self._parts[0].wait(n, timeout)
            if time.monotonic() >= end:
                raise KafkaTimeout(f"timed out after {timeout:g} s: {hits} of {n} requests have met {self!r}")
            time.sleep(POLL_SECONDS)  # each broker counts its own requests, so that the sum is polled

    def release(self) -> None:
        """End it and release the requests that it holds. Its hits can still be read.

        If its broker is paused or down, this takes effect when the broker runs again.
        """
        for part in self._parts:
            part.release()

    def cancel(self) -> None:
        """End it and release the requests that it holds. Idempotent; allowed while the broker is paused or down."""
        if self._cancelled:
            return
        self._faults.forget(self)
        for part in self._parts:
            part.cancel()
        self._cancelled = True

    def join(self, broker: Broker) -> None:
        """Put the fault at another broker, too, which has not started yet."""
        self._parts.append(FaultAtBroker(broker, self._values, joins=True))

    def at(self, broker: Broker) -> Iterator[FaultAtBroker]:
        """Yield what the fault is at a broker, if it is there."""
        return (part for part in self._parts if part.broker is broker)

    def _count(self) -> tuple[int, bool]:
        counts = [part.count() for part in self._parts]
        return sum(hits for hits, _over in counts), all(over for _hits, over in counts)


class Faults:
    """Creates faults: the next requests that match fail, are delayed, dropped, disconnected or held.

        with cluster.faults.fail("Produce", errors.NotLeaderOrFollower, times=2, topic="orders") as fault:
            producer.send("orders", b"...").result()
            assert fault.hits() == 2

    A request meets at most one fault that decides its outcome (fail, drop, disconnect) and one that decides its time
    (delay, hold), in each case the oldest that matches. Faults stay when a broker is stopped, killed and started; one
    that is created while its broker is down takes effect when the broker starts.
    For the limits of a fault see `Limits`; an unknown API, error or limit is a `ConfigError` with the nearest name.
    """

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self._brokers: list[Broker] = []
        self._faults: list[Fault] = []
        for broker in brokers:
            self.add_broker(broker)

    def __repr__(self) -> str:
        return f"<Faults {self._faults!r}>"

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._faults))

    def __len__(self) -> int:
        return len(self._faults)

    def fail(
        self,
        api: Api,
        error: type[BrokerError] | BrokerError | str | int,
        *,
        whole: bool | None = None,
        **limits: Unpack[Limits],
    ) -> Fault:
        """Answer with a Kafka error where that API has one: for the partition, topic or group, or at the top level.

        The rest of the request is served. `error` is a class of `pyclient.errors`, its name (also as
        NOT_LEADER_OR_FOLLOWER) or a code. `whole` decides between the outermost (True) and the innermost error code of
        an answer that has several; by default the error and the limits of the fault decide.
        """
        return self._add(FAIL, api, limits, error=error_code(error), whole=whole)

    def delay(self, api: Api, seconds: float, **limits: Unpack[Limits]) -> Fault:
        """Delay the answer by `seconds` of the broker's time (`advance_time` ends the delay)."""
        return self._add(DELAY, api, limits, seconds=seconds)

    def drop(self, api: Api, **limits: Unpack[Limits]) -> Fault:
        """Never answer, and leave the connection open, as a network that loses packets: the client has to time out.

        As a connection's answers keep the order of its requests, later requests are not answered either. When the fault
        is cancelled, the connections of dropped requests are closed.
        """
        return self._add(DROP, api, limits)

    def disconnect(self, api: Api, **limits: Unpack[Limits]) -> Fault:
        """Close the connection instead of answering."""
        return self._add(DISCONNECT, api, limits)

    def hold(self, api: Api, **limits: Unpack[Limits]) -> Fault:
        """Hold the request until `release()` or `cancel()`; then serve it, even if its client has disconnected."""
        return self._add(HOLD, api, limits)

    def clear(self) -> None:
        """Cancel all faults, also those created by HTTP."""
        for fault in list(self._faults):
            fault.cancel()
        for broker in self._brokers:
            if broker.reachable:
                broker.call("DELETE", "/faults")

    def add_broker(self, broker: Broker) -> None:
        """Have the faults of every broker at this one, too, which has not started yet."""
        self._brokers.append(broker)
        broker.on_end.append(partial(self._before_end, broker))
        broker.on_start.append(partial(self._after_start, broker))
        for fault in self._faults:
            if fault.everywhere:
                fault.join(broker)

    def remove_broker(self, broker: Broker) -> None:
        """Put no further fault at a broker that leaves the cluster."""
        self._brokers.remove(broker)

    def forget(self, fault: Fault) -> None:
        """Remove a cancelled fault."""
        if fault in self._faults:
            self._faults.remove(fault)

    def _add(self, kind: str, api: Api, limits: Limits, **own: Any) -> Fault:
        for name in limits:
            if name not in Limits.__annotations__:
                raise ConfigError(f"{name}: a fault is not limited by that{nearest(name, Limits.__annotations__)}")
        values: dict[str, Any] = {"kind": kind, "api": _plain(api), **limits, **own}
        values["partition"] = _plain(values.get("partition"))
        node = values.pop("node", None)
        taken = {name: values[name] for name in FIELDS if name in values}
        fault = Fault(self, self._at(node), taken, everywhere=node is None)
        self._faults.append(fault)
        return fault

    def _at(self, node: int | None) -> list[Broker]:
        found = [broker for broker in self._brokers if node in (None, broker.id)]
        if not found:
            raise ConfigError(f"node is {node!r}: the cluster has {', '.join(str(each.id) for each in self._brokers)}")
        return found

    def _before_end(self, broker: Broker) -> None:
        for fault in self._faults:
            for part in fault.at(broker):
                part.before_end()

    def _after_start(self, broker: Broker) -> None:
        for fault in self._faults:
            for part in fault.at(broker):
                part.after_start()


def _plain(value: Any) -> Any:
    """Return a value, or a list of an iterable's values, for JSON."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
