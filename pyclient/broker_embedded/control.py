"""The test user's controls of one node, as requests with JSON in and out: what HTTP and `EmbeddedCluster` both call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

from pyclient.broker_embedded import control_views as views
from pyclient.broker_embedded.dispatch import SERVED
from pyclient.broker_embedded.faults import Interceptor
from pyclient.broker_embedded.faults_shapes import roles_of
from pyclient.broker_embedded.faults_spec import FIELDS, KINDS, FaultSpec
from pyclient.broker_embedded.request_log import DEFAULT_LIMIT, FILTERS, RequestFilter, RequestLog, names_of
from pyclient.broker_embedded.settings import nearest
from pyclient.errors import ClientError, ConfigError, KafkaTimeout

if TYPE_CHECKING:
    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.faults import LiveFault
    from pyclient.broker_embedded.hosting import NodeHost

T = TypeVar("T")
Values = Mapping[str, Any]

_LONGEST: Final = 3600.0  # seconds that a request may wait
_WAIT: Final = 10.0
_LONGEST_LOG: Final = 1_000_000


class NotThere(ClientError, LookupError):
    """What the request is about does not exist."""


class NotNow(ClientError):
    """The node is not in a state for it."""


class Endpoint(NamedTuple):
    """One thing to ask for. `{}` in a path stands for a name or number; `fields` are what may be given."""

    method: str
    path: str
    doc: str
    fields: Mapping[str, str]
    call: Callable[[Controls, str, Values], Coroutine[Any, Any, Any]]


class Controls:
    """The controls of the node in a host; they outlive the node, and so do its faults. All of it runs on its loop."""

    def __init__(self, host: NodeHost) -> None:
        self._host = host
        self._interceptor: Interceptor | None = None
        self._resumption: asyncio.TimerHandle | None = None
        self.url: str | None = None
        host.on_start.append(self._attach)

    def __repr__(self) -> str:
        return f"<Controls of {self._host!r}>"

    @property
    def node(self) -> BrokerNode:
        """The node that runs; `NotNow` if none does."""
        if self._host.node is None:
            raise NotNow("the broker does not run: start it first")
        return self._host.node

    @property
    def interceptor(self) -> Interceptor:
        """The faults and the request log."""
        if self._interceptor is None:
            self._interceptor = Interceptor(self.node)
        return self._interceptor

    @property
    def log(self) -> RequestLog:
        """The request log; `NotNow` while it is off."""
        if self._interceptor is None or self._interceptor.log is None:
            raise NotNow("the request log is off: start it first")
        return self._interceptor.log

    async def handle(self, method: str, path: str, values: Values) -> Any:
        """Do what is asked for; what comes back is JSON.

        Raises `ConfigError` for what is wrong in the request, `NotThere`, `NotNow`, `KafkaTimeout`, `MethodNotAllowed`.
        """
        endpoint, name = find(method, path)
        for given in values:
            if given not in endpoint.fields:
                hint = nearest(given, endpoint.fields) or f": it takes {', '.join(endpoint.fields) or 'nothing'}"
                raise ConfigError(f"{given}: {method} {endpoint.path} has no such field{hint}")
        return await endpoint.call(self, name, values)

    def _attach(self, node: BrokerNode) -> None:
        if self._interceptor is not None:
            self._interceptor.move(node)

    # -- the broker

    async def describe(self, _name: str, _values: Values) -> Any:
        """`GET /`: what there is."""
        return {
            "broker": self._state(),
            "endpoints": [
                {"method": each.method, "path": each.path, "doc": each.doc, "fields": dict(each.fields)}
                for each in ENDPOINTS
            ],
            "kinds": dict(KINDS),
            "apis": {
                name: {"versions": [served.first, served.last], "limited_by": sorted(roles_of(name))}
                for name, served in SERVED.items()
            },
        }

    async def state(self, _name: str, _values: Values) -> Any:
        """`GET /broker`: how the broker is."""
        return self._state()

    def _state(self) -> Any:
        node = self._host.node
        return {
            "running": node is not None,
            "paused": node is not None and node.paused,
            "node_id": self._host.config.integer("node.id"),
            "bootstrap_servers": self._host.address,
            "data_dir": self._host.config.data_dir,
            "control_url": self.url,
            "connections": 0 if node is None else len(node.connections),
            "time_ms": None if node is None else node.clock.time_ms(),
            "advanced_seconds": None if node is None else node.clock.shift,
        }

    async def start(self, _name: str, _values: Values) -> Any:
        """`POST /broker/start`: start it again, on its port and data."""
        await self._host.start()
        return self._state()

    async def stop(self, _name: str, _values: Values) -> Any:
        """`POST /broker/stop`: stop it cleanly."""
        await self._host.stop()
        return self._state()

    async def kill(self, _name: str, _values: Values) -> Any:
        """`POST /broker/kill`: end it as a crash would: nothing is flushed or marked."""
        await self._host.stop(clean=False)
        return self._state()

    async def restart(self, _name: str, values: Values) -> Any:
        """`POST /broker/restart`: stop it, wait, start it."""
        clean = values.get("clean", True)
        if not isinstance(clean, bool):
            raise ConfigError(f"clean is {clean!r}: it must be true or false")
        await self._host.stop(clean)
        await asyncio.sleep(_seconds(values, "down_seconds", 0.0))
        await self._host.start()
        return self._state()

    async def pause(self, _name: str, values: Values) -> Any:
        """`POST /broker/pause`: it reads and answers nothing until it is resumed, or for some seconds.

        Only clients wait: its timers run, and these controls are served.
        """
        seconds = None if values.get("seconds") is None else _seconds(values, "seconds", None)
        node = self.node
        node.pause()
        self._set_resumption(None if seconds is None else self._host.loop.call_later(seconds, node.resume))
        return self._state()

    async def resume(self, _name: str, _values: Values) -> Any:
        """`POST /broker/resume`: let it go on where it was; nothing if it is not paused."""
        self._set_resumption(None)
        self.node.resume()
        return self._state()

    def _set_resumption(self, timer: asyncio.TimerHandle | None) -> None:
        """What was said last counts."""
        if self._resumption is not None:
            self._resumption.cancel()
        self._resumption = timer

    # -- faults

    async def faults(self, _name: str, _values: Values) -> Any:
        """`GET /faults`: the faults that were not cancelled."""
        found = [] if self._interceptor is None else self._interceptor.faults
        return {"faults": [fault.describe() for fault in found]}

    async def add_fault(self, _name: str, values: Values) -> Any:
        """`POST /faults`: the next requests that match are failed, delayed, ...."""
        return self.interceptor.add(FaultSpec.build(values)).describe()

    async def clear_faults(self, _name: str, _values: Values) -> Any:
        """`DELETE /faults`: cancel all."""
        return {"cancelled": 0 if self._interceptor is None else self._interceptor.clear()}

    async def fault(self, name: str, _values: Values) -> Any:
        """`GET /faults/{}`: a fault, with how many requests it has met."""
        return self._fault(name).describe()

    async def wait_fault(self, name: str, values: Values) -> Any:
        """`GET /faults/{}/wait`: the fault, as soon as it has met enough."""
        fault, count = self._fault(name), _count(values, "hits", 1)
        await _within(fault.reached(count), values, lambda: f"{count} hits are waited for: {fault!r}")
        return fault.describe()

    async def release_fault(self, name: str, _values: Values) -> Any:
        """`POST /faults/{}/release`: end it; what it holds goes on."""
        fault = self._fault(name)
        self.interceptor.end(fault)
        return fault.describe()

    async def cancel_fault(self, name: str, _values: Values) -> Any:
        """`DELETE /faults/{}`: end and forget it; what it holds goes on."""
        fault = self._fault(name)
        self.interceptor.cancel(fault)
        return fault.describe()

    def _fault(self, name: str) -> LiveFault:
        found = self._interceptor.get(int(name)) if self._interceptor is not None and name.isdecimal() else None
        if found is None:
            raise NotThere(f"there is no fault {name} (any more)")
        return found

    # -- the request log

    async def start_log(self, _name: str, values: Values) -> Any:
        """`POST /requests/start`: log requests from now on."""
        limit = _count(values, "limit", DEFAULT_LIMIT)
        if not 1 <= limit <= _LONGEST_LOG:
            raise ConfigError(f"limit is {limit}: it must be from 1 to {_LONGEST_LOG}")
        if self.interceptor.log is None or self.interceptor.log.limit != limit:
            self.interceptor.log = RequestLog(self.node, limit)
        self.interceptor.attach()
        return {"limit": limit}

    async def stop_log(self, _name: str, _values: Values) -> Any:
        """`POST /requests/stop`: log none any more."""
        if self._interceptor is not None:
            self._interceptor.log = None
            self._interceptor.attach()
        return {}

    async def requests(self, _name: str, values: Values) -> Any:
        """`GET /requests`: the requests that were logged, the oldest first."""
        return {"requests": names_of(self.log.find(RequestFilter(values)))}

    async def wait_request(self, _name: str, values: Values) -> Any:
        """`GET /requests/wait`: the same, as soon as there are enough."""
        wanted = RequestFilter({name: value for name, value in values.items() if name in FILTERS})
        log, count = self.log, _count(values, "count", 1)
        reached = log.reached(wanted, count)
        found = await _within(
            reached, values, lambda: f"{count} requests ({wanted}) are waited for, {len(log.find(wanted))} came"
        )
        return {"requests": names_of(found)}

    async def clear_log(self, _name: str, _values: Values) -> Any:
        """`DELETE /requests`: forget what was logged."""
        self.log.clear()
        return {}

    # -- time and upkeep

    async def advance(self, _name: str, values: Values) -> Any:
        """`POST /time/advance`: the broker's clock jumps: sessions expire, records age, waits end."""
        seconds = _seconds(values, "seconds", None)
        node = self.node
        node.clock.advance(seconds)
        due = node.timers.advance(seconds)
        for _turn in range(3):  # what is due runs in these
            await asyncio.sleep(0)
        return {"due": due, "time_ms": node.clock.time_ms(), "advanced_seconds": node.clock.shift}

    async def retention(self, _name: str, _values: Values) -> Any:
        """`POST /retention`: apply retention to all logs now."""
        return {"segments_removed": self.node.logs.retention_now()}

    async def compact(self, _name: str, values: Values) -> Any:
        """`POST /compact`: compact what may be compacted now."""
        topic = values.get("topic")
        if topic is not None and topic not in self.node.image.topics:
            raise NotThere(f"there is no topic {topic!r}")
        return {"rounds": self.node.logs.compact_now(topic)}

    # -- groups and topics

    async def groups(self, _name: str, _values: Values) -> Any:
        """`GET /groups`: the groups."""
        return {"groups": await views.groups(self.node)}

    async def group(self, name: str, _values: Values) -> Any:
        """`GET /groups/{}`: a group; one that does not exist is Dead."""
        return await views.group(self.node, name)

    async def wait_group(self, name: str, values: Values) -> Any:
        """`GET /groups/{}/wait`: the group, as soon as it is so."""
        fits = views.group_condition(values.get("state"), _optional_count(values, "members"))
        return await self._until(lambda: views.group(self.node, name), fits, values)

    async def topics(self, _name: str, _values: Values) -> Any:
        """`GET /topics`: the topics with their offsets."""
        return {"topics": [await views.topic(self.node, name) for name in sorted(self.node.image.topics)]}

    async def topic(self, name: str, _values: Values) -> Any:
        """`GET /topics/{}`: one topic."""
        if name not in self.node.image.topics:
            raise NotThere(f"there is no topic {name!r}")
        return await views.topic(self.node, name)

    async def wait_topic(self, name: str, values: Values) -> Any:
        """`GET /topics/{}/wait`: the topic, as soon as it is so."""
        fits = views.topic_condition(_optional_count(values, "partitions"), _optional_count(values, "records"))
        return await self._until(lambda: views.topic(self.node, name), fits, values)

    async def _until(
        self, look: Callable[[], Awaitable[dict[str, Any]]], fits: Callable[[dict[str, Any]], bool], values: Values
    ) -> Any:
        """Look again and again until what is seen fits."""
        seen: dict[str, Any] = {}

        async def looking() -> dict[str, Any]:
            nonlocal seen
            while not fits(seen := await look()):  # noqa: ASYNC110 - nothing tells of every change
                await asyncio.sleep(views.LOOK_AGAIN)
            return seen

        return await _within(looking(), values, lambda: f"it is {views.brief(seen)}")


class MethodNotAllowed(ClientError):
    """The path exists, with other methods."""


def find(method: str, path: str) -> tuple[Endpoint, str]:
    """The endpoint of a path (percent-encoded), and what stands for the `{}` in it.

    Raises `NotThere` or `MethodNotAllowed`.
    """
    wanted = [unquote(part) for part in path.split("/") if part]
    others = []
    for endpoint in ENDPOINTS:
        parts = [part for part in endpoint.path.split("/") if part]
        if len(parts) != len(wanted) or any(a not in ("{}", b) for a, b in zip(parts, wanted, strict=True)):
            continue
        if endpoint.method == method:
            return endpoint, next((b for a, b in zip(parts, wanted, strict=True) if a == "{}"), "")
        others.append(endpoint.method)
    if others:
        raise MethodNotAllowed(f"{method} {path}: only {', '.join(others)}")
    close = nearest(path, [endpoint.path for endpoint in ENDPOINTS])
    raise NotThere(f"{path}: there is nothing{close}; GET / lists what there is")


async def _within(waiting: Coroutine[Any, Any, T], values: Values, state: Callable[[], str]) -> T:
    try:
        seconds = _seconds(values, "timeout", _WAIT)
    except ConfigError:
        waiting.close()
        raise
    try:
        return await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        raise KafkaTimeout(f"not within {seconds:g} s: {state()}") from None


def _seconds(values: Values, name: str, default: float | None) -> float:
    given = values.get(name, default)
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = -1.0
    if isinstance(given, bool) or not 0 <= seconds <= (_LONGEST if name != "seconds" else 1e9):
        raise ConfigError(f"{name} is {given!r}: it must be a number of seconds from 0")
    return seconds


def _count(values: Values, name: str, default: int) -> int:
    given = values.get(name, default)
    try:
        count = int(given)
    except (TypeError, ValueError):
        count = -1
    if isinstance(given, (bool, float)) or count < 0:
        raise ConfigError(f"{name} is {given!r}: it must be a whole number from 0")
    return count


def _optional_count(values: Values, name: str) -> int | None:
    return None if values.get(name) is None else _count(values, name, 0)


_TIMEOUT: Final = {"timeout": "how many seconds to wait; 10 if not said"}
_GROUP_STATE: Final = {"state": "a state, or several with commas between them", "members": "how many members"}
_TOPIC_STATE: Final = {"partitions": "at least so many", "records": "at least so many in all partitions together"}

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint("GET", "/", "what there is", {}, Controls.describe),
    Endpoint("GET", "/broker", "how the broker is", {}, Controls.state),
    Endpoint("POST", "/broker/start", "start it again, on its port and data", {}, Controls.start),
    Endpoint("POST", "/broker/stop", "stop it cleanly", {}, Controls.stop),
    Endpoint("POST", "/broker/kill", "end it as a crash would: nothing is flushed or marked", {}, Controls.kill),
    Endpoint(
        "POST",
        "/broker/restart",
        "stop it, wait, start it",
        {"clean": "false: as a crash would", "down_seconds": "how long it is away; 0 if not said"},
        Controls.restart,
    ),
    Endpoint(
        "POST",
        "/broker/pause",
        "it reads and answers nothing; clients stay connected",
        {"seconds": "how long; until it is resumed if not said"},
        Controls.pause,
    ),
    Endpoint("POST", "/broker/resume", "let it go on after a pause", {}, Controls.resume),
    Endpoint("GET", "/faults", "the faults that were not cancelled", {}, Controls.faults),
    Endpoint("POST", "/faults", "the next requests that match are failed, delayed, ...", FIELDS, Controls.add_fault),
    Endpoint("DELETE", "/faults", "cancel all", {}, Controls.clear_faults),
    Endpoint("GET", "/faults/{}", "a fault, with how many requests it has met", {}, Controls.fault),
    Endpoint(
        "GET",
        "/faults/{}/wait",
        "the fault, as soon as it has met enough",
        {"hits": "1", **_TIMEOUT},
        Controls.wait_fault,
    ),
    Endpoint("POST", "/faults/{}/release", "end it; what it holds goes on", {}, Controls.release_fault),
    Endpoint("DELETE", "/faults/{}", "end and forget it; what it holds goes on", {}, Controls.cancel_fault),
    Endpoint("POST", "/requests/start", "log requests from now on", {"limit": "how many are kept"}, Controls.start_log),
    Endpoint("POST", "/requests/stop", "log none any more", {}, Controls.stop_log),
    Endpoint("GET", "/requests", "the requests that were logged, the oldest first", FILTERS, Controls.requests),
    Endpoint(
        "GET",
        "/requests/wait",
        "the same, as soon as there are enough",
        {**FILTERS, "count": "how many; 1 if not said", **_TIMEOUT},
        Controls.wait_request,
    ),
    Endpoint("DELETE", "/requests", "forget what was logged", {}, Controls.clear_log),
    Endpoint(
        "POST",
        "/time/advance",
        "the broker's clock jumps: sessions expire, records age, waits end",
        {"seconds": "how far"},
        Controls.advance,
    ),
    Endpoint("POST", "/retention", "apply retention to all logs now", {}, Controls.retention),
    Endpoint(
        "POST", "/compact", "compact what may be compacted now", {"topic": "only this topic's logs"}, Controls.compact
    ),
    Endpoint("GET", "/groups", "the groups", {}, Controls.groups),
    Endpoint("GET", "/groups/{}", "a group; one that does not exist is Dead", {}, Controls.group),
    Endpoint(
        "GET", "/groups/{}/wait", "the group, as soon as it is so", {**_GROUP_STATE, **_TIMEOUT}, Controls.wait_group
    ),
    Endpoint("GET", "/topics", "the topics with their offsets", {}, Controls.topics),
    Endpoint("GET", "/topics/{}", "one topic", {}, Controls.topic),
    Endpoint(
        "GET", "/topics/{}/wait", "the topic, as soon as it is so", {**_TOPIC_STATE, **_TIMEOUT}, Controls.wait_topic
    ),
)
"""Everything that can be asked for."""
