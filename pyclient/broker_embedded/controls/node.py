"""The controls of the node itself: start and stop, pause, clock, and periodic tasks."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controller.broker_lifecycle import BrokerState
from pyclient.broker_embedded.controls import views
from pyclient.broker_embedded.controls.endpoint import (
    Endpoint,
    NotFound,
    Values,
    WrongState,
    flag_of,
    seconds_of,
    text_of,
)
from pyclient.config.addresses import parse_address
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.controller.image import BrokerImage
    from pyclient.broker_embedded.controls.control_state import ControlState

log = logging.getLogger("pyclient.broker_embedded")

SLICE_SECONDS: Final = 0.0005
"""Seconds for which the log files are checked before requests are served."""
PAUSE_SECONDS: Final = 0.001
"""Seconds for requests between two such slices."""


async def state(controls: ControlState, _name: str, _values: Values) -> Any:
    """`GET /broker`: the state of the broker."""
    return state_of(controls)


def state_of(controls: ControlState) -> dict[str, Any]:
    """Return the state of the broker, running or not."""
    node = controls.host.node
    return {
        "running": node is not None,
        "paused": node is not None and node.paused,
        "node_id": controls.host.config.integer("node.id"),
        "bootstrap_servers": controls.host.address,
        "data_dir": controls.host.config.data_dir,
        "control_url": controls.url,
        "controller_id": None if node is None else node.node_id if node.quorum is None else node.quorum.leader_id,
        "controller_epoch": -1 if node is None else node.metadata_epoch,
        "broker_epoch": None if node is None else _running_epoch(node),
        "refusal": None if node is None else _refusal(node),
        "brokers": [] if node is None else [[each.node_id, each.epoch] for each in _unfenced(node)],
        "connections": 0 if node is None else len(node.connections),
        "requests_in_slices": 0 if node is None else len(node.request_slices),
        "time_ms": None if node is None else node.clock.time_ms(),
        "advanced_seconds": None if node is None else node.clock.shift,
    }


def _unfenced(node: BrokerNode) -> list[BrokerImage]:
    return [each for each in node.image.brokers.values() if not each.fenced]


def _running_epoch(node: BrokerNode) -> int | None:
    """Return the epoch of the node's current registration as a broker; None until it is unfenced."""
    membership = node.membership
    if membership is None:
        return next((each.epoch for each in _unfenced(node) if each.node_id == node.node_id), None)
    lifecycle = None if membership.lifecycle is None else membership.lifecycle.lifecycle
    return lifecycle.epoch if lifecycle is not None and lifecycle.state is BrokerState.RUNNING else None


def _refusal(node: BrokerNode) -> dict[str, str] | None:
    """Return the error with which the controllers last refused the node, None if there is none."""
    refusal = None if node.membership is None else node.membership.refusal
    return None if refusal is None else {"error": type(refusal).__name__, "message": str(refusal)}


async def start(controls: ControlState, _name: str, _values: Values) -> Any:
    """`POST /broker/start`: start it again, on the same port and data."""
    await controls.host.start()
    return state_of(controls)


async def stop(controls: ControlState, _name: str, _values: Values) -> Any:
    """`POST /broker/stop`: stop it cleanly."""
    await controls.host.stop()
    return state_of(controls)


async def kill(controls: ControlState, _name: str, _values: Values) -> Any:
    """`POST /broker/kill`: end it as a crash would: nothing is flushed or marked."""
    await controls.host.stop(clean=False)
    return state_of(controls)


async def restart(controls: ControlState, _name: str, values: Values) -> Any:
    """`POST /broker/restart`: stop it, wait, start it."""
    clean, seconds = flag_of(values, "clean", default=True), seconds_of(values, "down_seconds", 0.0)
    await controls.host.stop(clean)
    await asyncio.sleep(seconds)
    await controls.host.start()
    return state_of(controls)


async def pause(controls: ControlState, _name: str, values: Values) -> Any:
    """`POST /broker/pause`: read and answer nothing until it is resumed, or for some seconds.

    Only clients are affected: timers run, and these controls are served.
    """
    seconds = None if values.get("seconds") is None else seconds_of(values, "seconds", None)
    node = controls.node
    node.pause()
    _set_resumption(controls, None if seconds is None else controls.host.loop.call_later(seconds, node.resume))
    return state_of(controls)


async def resume(controls: ControlState, _name: str, _values: Values) -> Any:
    """`POST /broker/resume`: end a pause; a no-op if it is not paused."""
    _set_resumption(controls, None)
    controls.node.resume()
    return state_of(controls)


async def links(controls: ControlState, _name: str, values: Values) -> Any:
    """`POST /links`: dial other addresses in place of other nodes' own ones."""
    addresses = values.get("addresses")
    if not isinstance(addresses, dict) or not all(isinstance(each, str) for each in addresses.values()):
        raise ConfigError(f"addresses is {addresses!r:.100}: it must map host:port to host:port")
    for address in (*addresses, *addresses.values()):
        try:
            parse_address(address)
        except ValueError as error:
            raise ConfigError(f"addresses: {error}") from None
    controls.host.set_addresses(addresses)
    return state_of(controls)


async def bootstrap(controls: ControlState, _name: str, values: Values) -> Any:
    """`POST /quorum/bootstrap`: look for other controllers from the next start on."""
    servers = text_of(values, "servers")
    if not servers:
        raise ConfigError("servers is missing: it must be a value of controller.quorum.bootstrap.servers")
    controls.host.set_controllers(servers)
    return state_of(controls)


async def freeze(controls: ControlState, _name: str, _values: Values) -> Any:
    """`POST /replication/freeze`: fetch nothing from other brokers, and serve as before."""
    replicas = controls.node.replicas
    if replicas is None:
        raise WrongState("the broker replicates nothing: it is alone, or has not found the active controller yet")
    replicas.fetchers.freeze()
    return state_of(controls)


async def thaw(controls: ControlState, _name: str, _values: Values) -> Any:
    """`POST /replication/thaw`: fetch again. Without effect on a broker that is not frozen."""
    replicas = controls.node.replicas
    if replicas is not None:
        replicas.fetchers.thaw()
    return state_of(controls)


def _set_resumption(controls: ControlState, timer: asyncio.TimerHandle | None) -> None:
    """Replace the timer that ends a pause."""
    if controls.resumption is not None:
        controls.resumption.cancel()
    controls.resumption = timer


async def advance(controls: ControlState, _name: str, values: Values) -> Any:
    """`POST /time/advance`: advance the broker's clock: sessions expire, records age, waits end."""
    seconds = seconds_of(values, "seconds", None)
    node = controls.node
    node.clock.advance(seconds)
    due = node.timers.advance(seconds)
    for _turn in range(3):  # runs the timers that are due
        await asyncio.sleep(0)
    return {"due": due, "time_ms": node.clock.time_ms(), "advanced_seconds": node.clock.shift}


async def retention(controls: ControlState, _name: str, _values: Values) -> Any:
    """`POST /retention`: apply retention to all logs now."""
    return {"segments_removed": controls.node.logs.retention_now()}


async def compact(controls: ControlState, _name: str, values: Values) -> Any:
    """`POST /compact`: compact the logs of compacted topics now."""
    return {"rounds": controls.node.logs.compact_now(_topic_of(controls, values))}


async def verify(controls: ControlState, _name: str, values: Values) -> Any:
    """`POST /verify`: check every batch against its checksum, in slices between requests. Return the damage found."""
    node, wanted = controls.node, _topic_of(controls, values)
    damaged = []
    for topic in sorted(node.image.topics) if wanted is None else [wanted]:
        for index in [each["partition"] for each in (await views.topic(node, topic))["partitions"]]:
            stored = node.partitions.existing(topic, index)
            end = perf_counter() + SLICE_SECONDS
            for damage in () if stored is None else stored.verify():
                if damage is not None:
                    log.error("%s-%d: %s", topic, index, damage)
                    place = {"path": damage.path, "position": damage.position, "error": str(damage)}
                    damaged.append({"topic": topic, "partition": index, **place})
                    if node.replicas is not None:
                        node.replicas.report_damage(topic, index, damage)
                if perf_counter() > end:
                    await asyncio.sleep(PAUSE_SECONDS)
                    end = perf_counter() + SLICE_SECONDS
                    if controls.host.node is not node:
                        raise WrongState("the broker was stopped before everything was checked")
    return {"damaged": damaged}


def _topic_of(controls: ControlState, values: Values) -> str | None:
    """Return the topic in the request, None for all. Raise `NotFound` if it does not exist."""
    topic = text_of(values, "topic")
    if topic is not None and topic not in controls.node.image.topics:
        raise NotFound(f"there is no topic {topic!r}")
    return topic


ENDPOINTS: Final = (
    Endpoint("GET", "/broker", "the state of the broker", {}, state),
    Endpoint("POST", "/broker/start", "start it again, on the same port and data", {}, start),
    Endpoint("POST", "/broker/stop", "stop it cleanly", {}, stop),
    Endpoint("POST", "/broker/kill", "end it as a crash would: nothing is flushed or marked", {}, kill),
    Endpoint(
        "POST",
        "/broker/restart",
        "stop it, wait, start it",
        {"clean": "false: as a crash would", "down_seconds": "seconds until the start; default 0"},
        restart,
    ),
    Endpoint(
        "POST",
        "/broker/pause",
        "it reads and answers nothing; clients stay connected",
        {"seconds": "how long; default: until it is resumed"},
        pause,
    ),
    Endpoint("POST", "/broker/resume", "end a pause", {}, resume),
    Endpoint("POST", "/replication/freeze", "fetch nothing from other brokers, and serve as before", {}, freeze),
    Endpoint("POST", "/replication/thaw", "fetch from other brokers again", {}, thaw),
    Endpoint(
        "POST",
        "/links",
        "dial other addresses in place of other nodes' own ones",
        {"addresses": "the addresses to dial by the nodes' own ones, both as host:port"},
        links,
    ),
    Endpoint(
        "POST",
        "/quorum/bootstrap",
        "look for other controllers from the next start on",
        {"servers": "controller.quorum.bootstrap.servers"},
        bootstrap,
    ),
    Endpoint(
        "POST",
        "/time/advance",
        "advance the broker's clock: sessions expire, records age, waits end",
        {"seconds": "by how many seconds"},
        advance,
    ),
    Endpoint("POST", "/retention", "apply retention to all logs now", {}, retention),
    Endpoint(
        "POST", "/compact", "compact the logs of compacted topics now", {"topic": "only this topic's logs"}, compact
    ),
    Endpoint(
        "POST", "/verify", "check all checksums and return the damage", {"topic": "only this topic's logs"}, verify
    ),
)
