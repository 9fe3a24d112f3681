"""A client's view of the cluster: its metadata kept fresh, and connections to its nodes."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from pyclient.backoff import Backoff
from pyclient.clock import SYSTEM_CLOCK, Clock, Rng
from pyclient.cluster.coordinators import Coordinators
from pyclient.cluster.keeper import PATIENCE, MetadataKeeper
from pyclient.cluster.link import Link
from pyclient.cluster.links import Links
from pyclient.cluster.metadata import EMPTY, ClusterMetadata, Node, TopicInfo
from pyclient.cluster.retry import RetryPolicy
from pyclient.config import ClientConfig
from pyclient.errors import ClusterUnreachable, ConnectionFailed, NotController
from pyclient.net.connect import Connector
from pyclient.net.connection import Connection
from pyclient.net.hedge import first_success
from pyclient.protocol.fields import Request, Response

R = TypeVar("R", bound=Response)
log = logging.getLogger(__name__)

_TIDY_SECONDS: Final = 10.0
_endings: Final[set[asyncio.Task[None]]] = set()


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """What a client knows about its cluster: `metadata_age` in seconds, `last_failures` by address."""

    cluster_id: str | None
    nodes: tuple[str, ...]
    connected: tuple[str, ...]
    metadata_age: float | None
    last_failures: Mapping[str, str]


class ClusterClient:
    """Finds the cluster from some addresses, keeps its metadata fresh, and connects to its nodes.

    Everything runs on the event loop that `start` was called on. TLS files that cannot be read are a `ConfigError` of
    the constructor, which does nothing else.
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
        rng = rng or random.Random()
        self._links = Links(
            config,
            clock=clock,
            rng=rng,
            connector=connector,
            on_failed=lambda address: self.request_refresh(),
            on_lost=self._on_lost,
        )
        retry = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._keeper = MetadataKeeper(
            self._links,
            retry,
            client_id=config.client_id,
            max_age=config.metadata_max_age_ms / 1000,
            clock=clock,
            rng=rng,
            allow_auto_topic_creation=allow_auto_topic_creation,
        )
        self._on_controller = RetryPolicy(retry, rng, before_retry=self._distrust)
        self._coordinators = Coordinators(self, RetryPolicy(retry, rng, before_retry=self.check_reachable))
        self._distrusted = 0  # the last generation of metadata whose controller was none
        self.outlives_tasks = False  # whoever sets this calls close() even when the loop ends and cancels all tasks
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begins to look for the cluster. It does not raise when nobody answers: it keeps trying until `close`."""
        self._tasks = [asyncio.create_task(self._keep_fresh()), asyncio.create_task(self._keep_tidy())]

    async def close(self) -> None:
        """Closes every connection; who waits for the cluster gets `ClosedError`."""
        self._links.closed = True
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:  # also when the loop ends meanwhile
            self._links.close()
            self._keeper.close()

    def abandon(self) -> None:
        """Closes it soon, for an owner that is gone; waits for nothing, and the garbage collector may call it."""
        if self._tasks:
            with suppress(RuntimeError):  # the loop is closed already
                self._tasks[0].get_loop().call_soon_threadsafe(self._close_in_background)

    def _close_in_background(self) -> None:
        task = asyncio.get_running_loop().create_task(self.close())
        _endings.add(task)
        task.add_done_callback(_endings.discard)

    # -- metadata

    @property
    def metadata(self) -> ClusterMetadata:
        """The newest picture of the cluster; `EMPTY` before the first."""
        return self._keeper.metadata

    @property
    def listeners(self) -> list[Callable[[ClusterMetadata], None]]:
        """Who is called with new metadata, on the loop."""
        return self._keeper.listeners

    @property
    def topics(self) -> Collection[str] | None:
        """What metadata are asked for; None: all there is."""
        return self._keeper.topics

    def add_topics(self, names: Iterable[str]) -> None:
        """Asks for these topics, too; the next answer, fetched at once, has those that are new."""
        self._keeper.add_topics(names)

    def listed_topic(self, topic: str) -> TopicInfo | None:
        """Return a topic that was listed with all others and has not been asked for by name; safe from any thread.

        The caller passes it to `use_listed` on the loop, so that its metadata are kept fresh.
        """
        return self.metadata.topics.get(topic) if topic in self._keeper.listed else None

    def use_listed(self, topics: Iterable[str]) -> None:
        """Keep topics fresh that `listed_topic` returned; those that are no longer listed are asked for."""
        self._keeper.add_topics([topic for topic in topics if not self._keeper.use_listed(topic)])

    def set_topics(self, names: Iterable[str] | None) -> None:
        """Asks for these topics and no others; None asks for all there are."""
        self._keeper.set_topics(names)

    def request_refresh(self) -> None:
        """Asks for new metadata soon: calls are joined, and kept apart by `retry_backoff_ms` and more."""
        self._keeper.request()

    async def wait_metadata(self, predicate: Callable[[ClusterMetadata], bool], timeout: float) -> ClusterMetadata:
        """The first snapshot that fulfils the predicate; see `MetadataKeeper.wait`."""
        return await self._keeper.wait(predicate, timeout)

    async def topic_partitions(self, topic: str, timeout: float, *, partitions: int = 1) -> TopicInfo:
        """A topic with its partitions, once it has as many as that; see `MetadataKeeper.topic_partitions`."""
        return await self._keeper.topic_partitions(topic, timeout, partitions=partitions)

    # -- nodes and connections

    async def optional_connection(self, node_id: int, purpose: str) -> Connection:
        """One more beside the first; `ConnectionFailed` says why there is none, and nothing follows from that.

        It is closed when it is idle for a while, however long others may be.
        """
        return await self._links.to(node_id, purpose, optional=True).connection()

    async def connection(self, node_id: int, *, purpose: str = "") -> Connection:
        """An open connection to a node, its own for each `purpose`; `ConnectionFailed` says why there is none.

        It waits as long as the reconnect backoff wants before it connects. Who coordinates what that node did is asked
        again then.
        """
        try:
            return await self._link(node_id, purpose).connection()
        except ConnectionFailed:
            self._coordinators.forget_node(node_id)
            raise

    def try_connection(self, node_id: int) -> Connection | None:
        """The connection to a node if it is open; else None, and it is being opened."""
        try:
            link = self._link(node_id)
        except ConnectionFailed:
            return None
        ready = link.ready
        if ready is None:
            link.wake()
        return ready

    async def any_connection(self) -> Connection:
        """An open connection to the node with the least to do, or to the first that can be reached."""
        links = self._links.candidates()
        ready = links[0].ready
        if ready is not None:
            return ready
        return await first_success([link.connection for link in links], PATIENCE)

    async def request(self, message: Request[R], *, node_id: int | None = None, timeout: float | None = None) -> R:
        """Sends one request, to any node or to this one, and gives its response. Errors as `Connection.request`."""
        connection = await (self.any_connection() if node_id is None else self.connection(node_id))
        return await connection.request(message, timeout=timeout)

    async def request_controller(self, message: Request[R], *, timeout: float, maximum: int | None = None) -> R:
        """Sends a request to the controller, tried again when it has moved or cannot be reached.

        `maximum` bounds the request's version. `KafkaTimeout` after `timeout` seconds, with the last failure.
        """

        async def attempt() -> R:
            metadata = await self._keeper.wait_for_ever(
                lambda metadata: metadata.controller_id >= 0 and self._keeper.generation > self._distrusted
            )
            connection = await self.connection(metadata.controller_id)
            version = connection.version_for(type(message), maximum)
            response = await connection.request(message, version=version)
            if any(code == NotController.code for code in _error_codes(response)):
                raise NotController(f"{connection.address} is not the controller (any more)")
            return response

        return await self._on_controller.call(
            attempt, timeout=timeout, what=f"{message.name} on the controller", details=self.describe_failures
        )

    async def find_coordinator(self, key: str, *, kind: int = 0, timeout: float) -> int:
        """The id of the node that coordinates a group (`kind` 0) or a transactional id (1); known ones are remembered.

        Tried again while the coordinator is not available; `KafkaTimeout` after `timeout` seconds, and at once what
        else the broker says (`GroupAuthorizationFailed`, `InvalidGroupId`, ...).
        """
        return await self._coordinators.find(key, kind, timeout)

    def forget_coordinator(self, key: str, kind: int = 0) -> None:
        """The coordinator said it is not, or is gone: the next `find_coordinator` asks again."""
        self._coordinators.forget(key, kind)

    def learn(self, node: Node) -> None:
        """Notes a node that some other response named; metadata has the last word."""
        self._links.learn(node)

    # -- what is going on

    @property
    def last_failures(self) -> Mapping[str, str]:
        """Address -> why the last attempt to use it failed; addresses that work are not in it."""
        return self._keeper.last_failures

    @property
    def unreachable(self) -> ClusterUnreachable | None:
        """An error, new after each round, while no address can ever be used without a change of options or brokers."""
        return self._keeper.unreachable

    def check_reachable(self, error: BaseException) -> None:
        """Raise `ClusterUnreachable` from `error`, before a call is tried again, if waiting cannot help."""
        if self._keeper.unreachable is not None:
            raise ClusterUnreachable(*self._keeper.unreachable.args, lasting=True) from error

    def describe_failures(self) -> str:
        """The last failure of each address, and what else is waited for, in one line; empty if there is nothing."""
        return self._keeper.describe_failures()

    def name_of(self, node_id: int) -> str:
        """A node for people: "node 1 (host:port)"."""
        node = self.metadata.nodes.get(node_id)
        return f"node {node_id}" if node is None else f"node {node_id} ({node.address})"

    def health(self) -> ClusterHealth:
        """The state of connections and metadata, for people and for checks."""
        known = self.metadata is not EMPTY
        return ClusterHealth(
            cluster_id=self.metadata.cluster_id,
            nodes=tuple(node.address for node in self.metadata.nodes.values()),
            connected=self._links.connected(),
            metadata_age=self._clock.monotonic() - self.metadata.fetched_at if known else None,
            last_failures=self.last_failures,
        )

    def __repr__(self) -> str:
        health = self.health()
        state = "closed" if self._links.closed else f"{len(health.connected)} of {len(health.nodes)} nodes connected"
        return f"<ClusterClient {','.join(self.config.bootstrap_servers)} {state}>"

    # -- inside

    def _link(self, node_id: int, purpose: str = "") -> Link:
        try:
            return self._links.to(node_id, purpose)
        except ConnectionFailed:
            self.request_refresh()
            raise

    def _on_lost(self, connection: Connection) -> None:
        log.debug("%s: %s", connection.address, connection.cause)
        self._coordinators.forget_node(connection.node_id)
        self.request_refresh()

    async def _keep_fresh(self) -> None:
        try:
            await self._keeper.keep_fresh()
        finally:
            if not self.outlives_tasks:
                self._links.close()  # also when the loop ends before anybody has called close()

    async def _keep_tidy(self) -> None:
        limit = self.config.connections_max_idle_ms
        idle = limit / 1000 if limit >= 0 else math.inf
        while True:
            await asyncio.sleep(max(0.01, min(_TIDY_SECONDS, idle / 2)))
            self._links.close_idle(idle)

    def _distrust(self, error: BaseException) -> None:
        """Nothing is asked of the controller again before newer metadata has named it."""
        self.check_reachable(error)
        self._distrusted = self._keeper.generation


def _error_codes(response: Response) -> Iterator[int]:
    """Every error code at the top of a response and one list below it."""
    yield getattr(response, "error_code", 0)
    for name in ("topics", "responses", "results"):
        for entry in getattr(response, name, ()):
            yield getattr(entry, "error_code", 0)
