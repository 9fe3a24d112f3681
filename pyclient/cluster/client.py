"""The cluster as a client sees it: up-to-date metadata, and connections to the nodes."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from pyclient.backoff import Backoff
from pyclient.clock import SYSTEM_CLOCK, Clock, Rng
from pyclient.cluster.connection_pool import ConnectionPool
from pyclient.cluster.coordinators import Coordinators
from pyclient.cluster.metadata import EMPTY, ClusterMetadata, TopicInfo
from pyclient.cluster.metadata_updater import NEXT_NODE_SECONDS, MetadataUpdater
from pyclient.cluster.node_connection import NodeConnection
from pyclient.cluster.retry import RetryPolicy
from pyclient.config import ClientConfig
from pyclient.errors import ClusterUnreachable, ConnectionFailed, NotController
from pyclient.net.connect import Connector
from pyclient.net.connection import Connection
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.net.tasks import first_success
from pyclient.protocol.fields import Request, Response

R = TypeVar("R", bound=Response)
log = logging.getLogger(__name__)

IDLE_CHECK_SECONDS: Final = 10.0
"""Most seconds between two checks for idle connections."""
_closing_tasks: Final[set[asyncio.Task[None]]] = set()


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The state of a client's connections and metadata: `metadata_age` in seconds, `last_failures` by address."""

    cluster_id: str | None
    nodes: tuple[str, ...]
    connected: tuple[str, ...]
    metadata_age: float | None
    last_failures: Mapping[str, str]


class ClusterClient:
    """Discovers the cluster from bootstrap addresses, keeps its metadata up to date, and connects to its nodes.

    Everything runs on the event loop that `start` was called on. The constructor raises `ConfigError` for TLS files
    that cannot be read, and has no other effect.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: Rng | None = None,
        connector: Connector | None = None,
        allow_auto_topic_creation: bool = True,
    ) -> None:
        self.config = config
        self._clock = clock
        rng = rng or SURROUNDINGS.get().new_rng()
        self._pool = ConnectionPool(
            config,
            clock=clock,
            rng=rng,
            connector=connector,
            on_failed=lambda address: self.request_refresh(),
            on_lost=self._on_lost,
        )
        retry = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._updater = MetadataUpdater(
            self._pool,
            retry,
            client_id=config.client_id,
            max_age=config.metadata_max_age_ms / 1000,
            clock=clock,
            rng=rng,
            allow_auto_topic_creation=allow_auto_topic_creation,
        )
        self._controller_retry = RetryPolicy(retry, rng, before_retry=self._invalidate_controller)
        self._coordinators = Coordinators(
            self._pool, RetryPolicy(retry, rng, before_retry=self.check_reachable), self.describe_failures
        )
        self._invalid_generation = 0  # the last generation of metadata whose controller turned out to be wrong
        self.outlives_tasks = False  # set by an owner that calls close() even when the loop's tasks are cancelled
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start to connect to the cluster, in the background, until `close`; an unreachable cluster raises nothing."""
        self._tasks = [asyncio.create_task(self._keep_fresh()), asyncio.create_task(self._close_idle_connections())]

    async def close(self) -> None:
        """Close every connection; calls that wait for metadata fail with `ClosedError`."""
        self._pool.closed = True
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:  # even if the loop ends and cancels this task
            self._pool.close()
            self._updater.close()

    def abandon(self) -> None:
        """Close in the background, for a discarded client; does not wait, and is safe in a finalizer."""
        if self._tasks:
            with suppress(RuntimeError):  # the loop is closed already
                self._tasks[0].get_loop().call_soon_threadsafe(self._close_in_background)

    def _close_in_background(self) -> None:
        task = asyncio.get_running_loop().create_task(self.close())
        _closing_tasks.add(task)
        task.add_done_callback(_closing_tasks.discard)

    # -- metadata

    @property
    def metadata(self) -> ClusterMetadata:
        """The newest snapshot of the metadata; `EMPTY` before the first response."""
        return self._updater.metadata

    @property
    def listeners(self) -> list[Callable[[ClusterMetadata], None]]:
        """Functions that are called with each new snapshot, on the loop."""
        return self._updater.listeners

    @property
    def topics(self) -> Collection[str] | None:
        """The topics whose metadata is requested; None means all."""
        return self._updater.topics

    def add_topics(self, names: Iterable[str]) -> None:
        """Add topics; if some are new, their metadata is requested at once."""
        self._updater.add_topics(names)

    def listed_topic(self, topic: str) -> TopicInfo | None:
        """Return a topic from a list of all topics that was not requested by name, or None; safe from any thread.

        The caller passes its name to `use_listed` on the loop, so that its metadata is refreshed.
        """
        return self.metadata.topics.get(topic) if topic in self._updater.listed else None

    def use_listed(self, topics: Iterable[str]) -> None:
        """Refresh topics that `listed_topic` returned from now on; request those that are no longer listed."""
        self._updater.add_topics([topic for topic in topics if not self._updater.use_listed(topic)])

    def set_topics(self, names: Iterable[str] | None) -> None:
        """Replace the topics; None means all topics of the cluster."""
        self._updater.set_topics(names)

    def request_refresh(self) -> None:
        """Request new metadata soon: calls are merged, and refreshes at least `retry_backoff_ms` apart."""
        self._updater.request()

    def request_topic(self, topic: str) -> None:
        """Request new metadata of one topic soon, from another broker than the last time if there is one."""
        self._updater.request_topic(topic)

    async def refresh_elsewhere(self, topics: Iterable[str], node_id: int) -> None:
        """Refresh the metadata of topics at another node than this one; do nothing if no other one is known.

        Raise `ConnectionFailed` if no other node answers.
        """
        await self._updater.refresh_elsewhere(topics, node_id)

    async def wait_metadata(
        self,
        predicate: Callable[[ClusterMetadata], bool],
        timeout: float,
        request: Callable[[], object] | None = None,
    ) -> ClusterMetadata:
        """Return the first snapshot that satisfies the predicate; see `MetadataUpdater.wait`."""
        return await self._updater.wait(predicate, timeout, request)

    async def topic_partitions(self, topic: str, timeout: float, *, partitions: int = 1) -> TopicInfo:
        """Return a topic once it has at least `partitions` partitions; see `MetadataUpdater.topic_partitions`."""
        return await self._updater.topic_partitions(topic, timeout, partitions=partitions)

    # -- nodes and connections

    async def optional_connection(self, node_id: int, purpose: str) -> Connection:
        """Return an additional connection to a node; raise `ConnectionFailed`, with no further effects, if it fails.

        It is closed after a short idle time, whatever `connections_max_idle_ms` is.
        """
        return await self._pool.get(node_id, purpose, optional=True).connection()

    async def connection(self, node_id: int, *, purpose: str = "") -> Connection:
        """Return an open connection to a node, one for each `purpose`; raise `ConnectionFailed` if it cannot be opened.

        Waits for the reconnect backoff before it connects. If it fails, the coordinators on that node are looked up
        again.
        """
        try:
            return await self._broker(node_id, purpose).connection()
        except ConnectionFailed:
            self._coordinators.forget_node(node_id)
            raise

    def try_connection(self, node_id: int) -> Connection | None:
        """Return the connection to a node if it is open; else return None and start to open it."""
        try:
            broker = self._broker(node_id)
        except ConnectionFailed:
            return None
        ready = broker.ready
        if ready is None:
            broker.wake()
        return ready

    async def any_connection(self) -> Connection:
        """Return the open connection with the fewest requests in flight, or one to the first reachable node."""
        brokers = self._pool.candidates()
        ready = brokers[0].ready
        if ready is not None:
            return ready
        return await first_success([broker.connection for broker in brokers], NEXT_NODE_SECONDS)

    async def request(self, message: Request[R], *, node_id: int | None = None, timeout: float | None = None) -> R:
        """Send one request, to any node or to `node_id`, and return its response. Errors as `Connection.request`."""
        connection = await (self.any_connection() if node_id is None else self.connection(node_id))
        return await connection.request(message, timeout=timeout)

    async def request_controller(self, message: Request[R], *, timeout: float, maximum: int | None = None) -> R:
        """Send a request to the controller, with retries if it has moved or cannot be reached.

        `maximum` limits the request's version. Raise `KafkaTimeout` with the last failure after `timeout` seconds.
        """

        async def attempt() -> R:
            metadata = await self._updater.wait_for_ever(
                lambda metadata: metadata.controller_id >= 0 and self._updater.generation > self._invalid_generation
            )
            connection = await self.connection(metadata.controller_id)
            version = connection.version_for(type(message), maximum)
            response = await connection.request(message, version=version)
            if any(code == NotController.code for code in _error_codes(response)):
                raise NotController(f"{connection.address} is not the controller (any more)")
            return response

        return await self._controller_retry.call(
            attempt, timeout=timeout, what=f"{message.name} on the controller", details=self.describe_failures
        )

    async def find_coordinator(self, key: str, *, kind: int = 0, timeout: float) -> int:
        """Return the node id of the coordinator of a group (`kind` 0) or a transactional id (1), from a cache if known.

        Retried while the coordinator is not available. Raise `KafkaTimeout` after `timeout` seconds, and other errors
        of the broker at once (`GroupAuthorizationFailed`, `InvalidGroupId`, ...).
        """
        return await self._coordinators.find(key, kind, timeout)

    def try_coordinator(self, key: str, kind: int = 0) -> Connection | None:
        """Return the connection to a coordinator if both are known and it is open, else None."""
        node_id = self._coordinators.known(key, kind)
        return None if node_id is None else self.try_connection(node_id)

    def forget_coordinator(self, key: str, kind: int = 0) -> None:
        """Remove a coordinator that has moved or is unavailable: the next `find_coordinator` looks it up again.

        That one asks another node than the last time if there is one, since the one that named it may be out of date.
        """
        self._coordinators.forget(key, kind)

    # -- state

    @property
    def last_failures(self) -> Mapping[str, str]:
        """The error text of the last attempt by address; addresses that work are missing."""
        return self._updater.last_failures

    @property
    def unreachable(self) -> ClusterUnreachable | None:
        """The error, new after each round, while no address can be used without a change of options or brokers."""
        return self._updater.unreachable

    def check_reachable(self, error: BaseException) -> None:
        """Raise `ClusterUnreachable` from `error` if a retry cannot help; called before retries."""
        if self._updater.unreachable is not None:
            raise ClusterUnreachable(*self._updater.unreachable.args, lasting=True) from error

    def describe_failures(self) -> str:
        """Return, in one line, the last failure of each address and the attempts in progress; "" if there are none."""
        return self._updater.describe_failures()

    def name_of(self, node_id: int) -> str:
        """Return a node's name for messages: "node 1 (host:port)"."""
        node = self.metadata.nodes.get(node_id)
        return f"node {node_id}" if node is None else f"node {node_id} ({node.address})"

    def health(self) -> ClusterHealth:
        """Return the state of connections and metadata, for health checks."""
        known = self.metadata is not EMPTY
        return ClusterHealth(
            cluster_id=self.metadata.cluster_id,
            nodes=tuple(node.address for node in self.metadata.nodes.values()),
            connected=self._pool.connected(),
            metadata_age=self._clock.monotonic() - self.metadata.fetched_at if known else None,
            last_failures=self.last_failures,
        )

    def __repr__(self) -> str:
        health = self.health()
        state = "closed" if self._pool.closed else f"{len(health.connected)} of {len(health.nodes)} nodes connected"
        return f"<ClusterClient {','.join(self.config.bootstrap_servers)} {state}>"

    # -- internals

    def _broker(self, node_id: int, purpose: str = "") -> NodeConnection:
        try:
            return self._pool.get(node_id, purpose)
        except ConnectionFailed:
            self.request_refresh()
            raise

    def _on_lost(self, connection: Connection) -> None:
        log.debug("%s: %s", connection.address, connection.cause)
        self._coordinators.forget_node(connection.node_id)
        self.request_refresh()

    async def _keep_fresh(self) -> None:
        try:
            await self._updater.keep_fresh()
        finally:
            if not self.outlives_tasks:
                self._pool.close()  # the loop ends without a call of close()

    async def _close_idle_connections(self) -> None:
        limit = self.config.connections_max_idle_ms
        idle = limit / 1000 if limit >= 0 else math.inf
        while True:
            await asyncio.sleep(max(0.01, min(IDLE_CHECK_SECONDS, idle / 2)))
            self._pool.close_idle(idle)

    def _invalidate_controller(self, error: BaseException) -> None:
        """Make the next attempt wait for newer metadata, which may name another controller."""
        self.check_reachable(error)
        self._invalid_generation = self._updater.generation


def _error_codes(response: Response) -> Iterator[int]:
    """Yield the error codes at the top level of a response and one list below it."""
    yield getattr(response, "error_code", 0)
    for name in ("topics", "responses", "results"):
        for entry in getattr(response, name, ()):
            yield getattr(entry, "error_code", 0)
