"""The nodes of a cluster, with the faults, logged requests, links and clock advances of each."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

from pyclient.broker_embedded.cluster.broker import Broker
from pyclient.broker_embedded.cluster.faults import Faults
from pyclient.broker_embedded.cluster.layout import BROKER, CONTROLLER
from pyclient.broker_embedded.cluster.node_links import NodeLinks
from pyclient.broker_embedded.cluster.requests import Requests
from pyclient.broker_embedded.cluster.views import Views
from pyclient.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyclient.broker_embedded.cluster.hosting import NewHttpServer
    from pyclient.broker_embedded.config.broker_config import BrokerConfig


class Members:
    """The nodes of a cluster; `brokers` are those that serve clients, and `views` asks them.

    `guard` raises an error when the cluster must not be used. `controller_address` returns the `host:port` of a node's
    controller listener by its id, None if it has none. `new_server` is an argument of each `Broker`.
    """

    def __init__(
        self,
        guard: Callable[[], None],
        controller_address: Callable[[int], str | None],
        new_server: NewHttpServer,
        *,
        processes: bool,
    ) -> None:
        self.nodes: list[Broker] = []
        self.brokers: list[Broker] = []
        self.views = Views(self.brokers)
        self.faults = Faults(())
        self.requests = Requests(())
        self.links = NodeLinks(self.nodes, self._listeners)
        self._guard = guard
        self._controller_address = controller_address
        self._new_server = new_server
        self._processes = processes
        self._advanced = 0.0

    def __repr__(self) -> str:
        return f"<Members {self.nodes}>"

    def node(self, node_id: int) -> Broker:
        """Return the node with an id. Raise `ConfigError` if there is none."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        known = ", ".join(str(each.id) for each in self.nodes)
        hint = " (leader_of and controller_id are None while there is none)" if node_id is None else ""
        raise ConfigError(f"there is no node {node_id!r}: the cluster has {known}{hint}")

    def is_down(self, node_id: int | None) -> bool:
        """Return True for a node of the cluster that does not run, even if other nodes have not noticed it yet."""
        return any(node.id == node_id and not node.alive for node in self.nodes)

    def add(self, config: BrokerConfig, *, is_broker: bool, control_port: int | None) -> Broker:
        """Add a node that has not started."""
        node = Broker(
            config,
            processes=self._processes,
            control_port=control_port,
            guard=self._guard,
            new_server=self._new_server,
        )
        node.links = partial(self.links.addresses, node.id)
        node.on_start.append(partial(self._advance_again, node))
        node.on_end.append(partial(self._note_time, node))
        self.nodes.append(node)
        if is_broker:
            self.brokers.append(node)
        self.faults.add_broker(node)
        self.requests.add_broker(node)
        return node

    def forget(self, node: Broker) -> None:
        """Remove a node that has left the cluster."""
        self.nodes.remove(node)
        if node in self.brokers:
            self.brokers.remove(node)
        self.faults.remove_broker(node)
        self.requests.remove_broker(node)

    @property
    def addresses(self) -> str:
        """Return `host:port` of all brokers that were started, with commas. Raise `ClosedError` if none was."""
        started = [broker for broker in self.brokers if broker.state != "new"]
        return ",".join(broker.address for broker in started or self.brokers)

    def racks(self, without: int) -> dict[int, str | None]:
        """Return the rack of each broker but one, by its id."""
        return {each.id: each.config.text("broker.rack") for each in self.brokers if each.id != without}

    def running_config(self) -> BrokerConfig:
        """Return the configuration of a broker that runs. Raise `ClientError` if none does."""
        for broker in self.brokers:
            if broker.reachable:
                return broker.config
        raise ClientError(f"{self!r}: no broker runs; start() one first")

    def _listeners(self, node: Broker) -> dict[str, str]:
        """Return the addresses at which other nodes reach a node."""
        found = {BROKER: node.address} if node in self.brokers else {}
        controller = self._controller_address(node.id)
        return found if controller is None else found | {CONTROLLER: controller}

    def _note_time(self, node: Broker) -> None:
        """Note the advance of a node's clock before the node ends; its next start repeats it."""
        self._advanced = max(self._advanced, node.call("GET", "/broker")["advanced_seconds"] or 0.0)

    def _advance_again(self, node: Broker) -> None:
        if self._advanced:
            node.call("POST", "/time/advance", {"seconds": self._advanced})


def in_parallel(functions: Sequence[Callable[[], object]]) -> None:
    """Call several nodes at the same time, each in a thread of its own; one alone in this thread.

    When all have returned, raise the first error; it has a note about each further one.
    """
    if len(functions) == 1:
        functions[0]()
        return
    calls = [_Call(function) for function in functions]
    for call in calls:
        call.thread.start()
    for call in calls:
        call.thread.join()
    failures = [call.error for call in calls if call.error is not None]
    if failures:
        for further in failures[1:]:
            failures[0].add_note(f"another call failed, too: {further!r}")
        raise failures[0]


def close_in_finalizer(close: Callable[[], object]) -> None:
    """Call `close`, or in a thread with a running event loop begin it: a node's own thread cannot wait for the node."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        close()
    else:
        threading.Thread(target=close, name="pyclient-cluster-close").start()


class _Call:
    """A call in a thread, and its error."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="pyclient-cluster-call", daemon=True)

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # raised by `in_parallel` in the caller's thread
            self.error = error
