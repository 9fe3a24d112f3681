"""`cluster.faults`: fault injection for tests, and the number of requests that each fault has met."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pyclient.broker_embedded.faults.spec import DELAY, DISCONNECT, DROP, FAIL, FIELDS, HOLD, FaultSpec, error_code
from pyclient.config.options import nearest
from pyclient.errors import BrokerError, ClientError, ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from pyclient.broker_embedded.cluster.broker import Broker

Api = str | int | Iterable[str | int]
"""An API by Kafka's name or key, several of them, or `"*"` for all."""


class Limits(TypedDict, total=False):
    """Limits of a fault: which requests meet it, and how many.

    `times`: how many (default 1; None: all until it is cancelled), `skip`: how many pass before. `when`: `"before"` the
    work is done (the default) or `"after"` it, when only the answer is lost, late or wrong. `topic`, `partition` (one
    or several), `group`, `client` (the client id): only requests about these; `*` in a text matches any characters.
    `node`: only at the broker with this id.
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
    """A fault; as a context manager it is cancelled at the end of the block."""

    def __init__(self, faults: Faults, broker: Broker, values: dict[str, Any]) -> None:
        self._faults = faults
        self._broker = broker
        self._values = values
        self._state = self._make()
        self._hits_before = 0  # hits at earlier runs of the broker
        self._cancelled = False
        self._past = False  # it was over when its broker ended: the restarted one does not have it

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
        return bool(self._look()["over"]) or self._cancelled

    @property
    def held(self) -> int:
        """Return how many requests it holds now."""
        return int(self._look()["held"])

    def hits(self) -> int:
        """Return how many requests have met it; of a cancelled one, until then."""
        return self._hits_before + int(self._look()["hits"])

    def wait(self, n: int = 1, timeout: float = 30.0) -> int:
        """Wait until `n` requests have met it. Return how many have. Raise `KafkaTimeout` after `timeout` seconds."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ConfigError(f"n is {n!r}: it must be a whole number of requests from 0")
        over = bool(self._look()["over"]) or self._cancelled  # from the same reply as the hits
        if (hits := self._hits_before + int(self._state["hits"])) >= n:
            return hits
        if over:
            raise ClientError(f"{self!r} is over after {hits} requests: there will not be {n}")
        values = {"hits": n - self._hits_before, "timeout": timeout}
        self._state = self._broker.call("GET", f"{self._path}/wait", values, timeout=timeout)
        return self._hits_before + int(self._state["hits"])

    def release(self) -> None:
        """End it and release the requests that it holds. Its hits can still be read.

        If its broker is paused or down, this takes effect when the broker runs again.
        """
        if self._is_known:
            self._state = self._broker.call("POST", f"{self._path}/release")
        elif not self._cancelled:
            self._state = self._state | {"over": True}
            self._broker.later(self._release_late)

    def cancel(self) -> None:
        """End it and release the requests that it holds. Idempotent; allowed while the broker is paused or down."""
        if self._cancelled:
            return
        self._faults.forget(self)
        if self._is_known:
            self._state = self._broker.call("DELETE", self._path)
        else:
            self._broker.later(self._cancel_late)
        self._cancelled = True

    def before_end(self) -> None:
        """Note the hits before the broker ends or pauses."""
        self._look()

    def after_start(self) -> None:
        """Continue the fault at the restarted broker."""
        state = self._state
        self._hits_before += state["hits"]
        values = dict(self._values)
        if values.get("times", 1) is not None:
            values["times"] = values.get("times", 1) - self._hits_before
        values["skip"] = max(0, values.get("skip", 0) - state["seen"])
        self._values = self._values | {"skip": values["skip"]}
        if state["over"]:
            self._past = True
            self._state = state | {"hits": 0, "held": 0}
        else:
            self._state = self._broker.call("POST", "/faults", values)

    def _make(self) -> dict[str, Any]:
        """Create the fault at the broker; at one that is down, `after_start` does it."""
        FaultSpec.build(self._values)
        if self._broker.state != "down" or self._broker.reachable:
            return self._broker.call("POST", "/faults", self._values)
        return {"id": None, "hits": 0, "seen": 0, "held": 0, "over": False}

    def _release_late(self) -> None:
        if self._is_known:
            self.release()

    def _cancel_late(self) -> None:
        if not self._past and self._state["id"] is not None:
            self._broker.call("DELETE", self._path)

    @property
    def _path(self) -> str:
        return f"/faults/{self._state['id']}"

    def _look(self) -> dict[str, Any]:
        if self._is_known:
            self._state = self._broker.call("GET", self._path)
        return self._state

    @property
    def _is_known(self) -> bool:
        """True if a broker that has the fault can be reached."""
        return not self._cancelled and not self._past and self._broker.reachable


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

    def __init__(self, brokers: list[Broker]) -> None:
        self._brokers = brokers
        self._faults: list[Fault] = []
        for broker in brokers:
            broker.on_end.append(self._before_end)
            broker.on_start.append(self._after_start)

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
        broker = self._broker(values.pop("node", None))
        fault = Fault(self, broker, {name: values[name] for name in FIELDS if name in values})
        self._faults.append(fault)
        return fault

    def _broker(self, node: int | None) -> Broker:
        for broker in self._brokers:
            if node in (None, broker.id):
                return broker
        raise ConfigError(f"node is {node!r}: the cluster has {', '.join(str(each.id) for each in self._brokers)}")

    def _before_end(self) -> None:
        for fault in self._faults:
            fault.before_end()

    def _after_start(self) -> None:
        for fault in self._faults:
            fault.after_start()


def _plain(value: Any) -> Any:
    """Return a value, or a list of an iterable's values, for JSON."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
