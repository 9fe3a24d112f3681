"""`cluster.faults`: what a test makes go wrong, and what it learns from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pyclient.broker_embedded.faults_spec import DELAY, DISCONNECT, DROP, FAIL, FIELDS, HOLD, FaultSpec, error_code
from pyclient.broker_embedded.settings import nearest
from pyclient.errors import BrokerError, ClientError, ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from pyclient.broker_embedded.cluster_broker import Broker

Api = str | int | Iterable[str | int]
"""An API by Kafka's name or key, several of them, or `"*"` for all."""


class Limits(TypedDict, total=False):
    """Which requests meet a fault, and how many.

    `times`: how many (1 if not said; None: all until it is cancelled), `skip`: how many pass before. `when`: `"before"`
    the work is done (the default) or `"after"` it, when the answer alone is lost, late or wrong. `topic`, `partition`
    (one or several), `group`, `client` (the client id): only requests about these; in a text a `*` stands for any
    characters. `node`: only at the broker of this id.
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
        self._hits_before = 0  # at brokers that have ended
        self._cancelled = False
        self._past = False  # it was over when its broker ended: the new one does not know it

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
        """Whether no further request will meet it."""
        return bool(self._look()["over"]) or self._cancelled

    @property
    def held(self) -> int:
        """How many requests it holds now."""
        return int(self._look()["held"])

    def hits(self) -> int:
        """How many requests have met it; for one that is cancelled, until then."""
        return self._hits_before + int(self._look()["hits"])

    def wait(self, n: int = 1, timeout: float = 30.0) -> int:
        """Wait until `n` requests have met it; how many have. `KafkaTimeout` after `timeout` seconds."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ConfigError(f"n is {n!r}: it must be a whole number of requests from 0")
        over = bool(self._look()["over"]) or self._cancelled  # in one look with the hits, which may come at any time
        if (hits := self._hits_before + int(self._state["hits"])) >= n:
            return hits
        if over:
            raise ClientError(f"{self!r} is over after {hits} requests: there will not be {n}")
        values = {"hits": n - self._hits_before, "timeout": timeout}
        self._state = self._broker.call("GET", f"{self._path}/wait", values, timeout=timeout)
        return self._hits_before + int(self._state["hits"])

    def release(self) -> None:
        """End it, and let go of the requests that it holds. Its hits can still be asked for.

        While its broker is paused or down it is so as soon as the broker goes on.
        """
        if self._is_known:
            self._state = self._broker.call("POST", f"{self._path}/release")
        elif not self._cancelled:
            self._state = self._state | {"over": True}
            self._broker.later(self._let_go)

    def cancel(self) -> None:
        """End it; requests that it holds go on. May be called twice, and while the broker is paused or down."""
        if self._cancelled:
            return
        self._faults.forget(self)
        if self._is_known:
            self._state = self._broker.call("DELETE", self._path)
        else:
            self._broker.later(self._vanish)
        self._cancelled = True

    def before_end(self) -> None:
        """The broker is about to end or to pause: note what the fault has met there."""
        self._look()

    def after_start(self) -> None:
        """The broker has started again: go on there."""
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
        """Tell the broker; one that is down is told when it starts."""
        FaultSpec.build(self._values)
        if self._broker.state != "down" or self._broker.reachable:
            return self._broker.call("POST", "/faults", self._values)
        return {"id": None, "hits": 0, "seen": 0, "held": 0, "over": False}

    def _let_go(self) -> None:
        if self._is_known:
            self.release()

    def _vanish(self) -> None:
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
        """Whether there is a broker that knows it."""
        return not self._cancelled and not self._past and self._broker.reachable


class Faults:
    """Makes faults: the next requests that match are failed, delayed, dropped, cut off or held.

        with cluster.faults.fail("Produce", errors.NotLeaderOrFollower, times=2, topic="orders") as fault:
            producer.send("orders", b"...").result()
            assert fault.hits() == 2

    A request meets at most one fault that decides its outcome (fail, drop, disconnect) and one that decides its time
    (delay, hold), in each case the oldest that matches. Faults stay when a broker is stopped, killed and started; one
    that is made while its broker is down is there as soon as the broker is.
    What limits a fault is said in `Limits`; an unknown API, error or limit is a `ConfigError` with the nearest name.
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
        """Answer with a Kafka error, where that API has it: for the partition, topic or group, or at the top.

        What else is in the request is served. `error` is a class of `pyclient.errors`, its name (also as
        NOT_LEADER_OR_FOLLOWER) or a code. `whole` decides between the outermost (True) and the innermost error code of
        an answer that has several; if not said, it goes by the error and by what the fault is limited to.
        """
        return self._add(FAIL, api, limits, error=error_code(error), whole=whole)

    def delay(self, api: Api, seconds: float, **limits: Unpack[Limits]) -> Fault:
        """Let it take `seconds` (of the broker's time: `advance_time` ends it) longer."""
        return self._add(DELAY, api, limits, seconds=seconds)

    def drop(self, api: Api, **limits: Unpack[Limits]) -> Fault:
        """Never answer, and leave the connection open, as a network that swallows packets: the client has to notice.

        As a connection's answers keep the order of its requests, nothing behind it is answered either. When the fault
        is cancelled, connections that it has silenced are closed.
        """
        return self._add(DROP, api, limits)

    def disconnect(self, api: Api, **limits: Unpack[Limits]) -> Fault:
        """Close the connection instead of answering."""
        return self._add(DISCONNECT, api, limits)

    def hold(self, api: Api, **limits: Unpack[Limits]) -> Fault:
        """Keep it until `release()` (or `cancel()`); then it is served, even if its client has gone meanwhile."""
        return self._add(HOLD, api, limits)

    def clear(self) -> None:
        """Cancel all, those that were made by HTTP, too."""
        for fault in list(self._faults):
            fault.cancel()
        for broker in self._brokers:
            if broker.reachable:
                broker.call("DELETE", "/faults")

    def forget(self, fault: Fault) -> None:
        """The fault is cancelled."""
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
    """One or a list of them, as JSON has it."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
