"""A client's view of the cluster: its metadata kept fresh, and connections to its nodes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pyclient.backoff import Backoff
from pyclient.clock import SYSTEM_CLOCK, Clock, Rng
from pyclient.cluster.coordinators import Coordinators
from pyclient.cluster.link import Link
from pyclient.cluster.links import Links
from pyclient.cluster.metadata import EMPTY, ClusterMetadata, Node, TopicInfo, snapshot
from pyclient.cluster.refresh import RefreshGate
from pyclient.cluster.retry import RetryPolicy
from pyclient.config import ClientConfig
from pyclient.errors import ClosedError, ConnectionFailed, KafkaError, KafkaTimeout, NotController, for_code, from_code
from pyclient.net.connect import Connector
from pyclient.net.connection import Connection
from pyclient.net.hedge import first_success
from pyclient.protocol.fields import Request, Response
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

R = TypeVar("R", bound=Response)
log = logging.getLogger(__name__)

_PATIENCE: Final = 1.0  # seconds before another node is asked as well
_TIDY_SECONDS: Final = 10.0


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
        self.metadata: ClusterMetadata = EMPTY
        self.listeners: list[Callable[[ClusterMetadata], None]] = []
        self._clock = clock
        self._rng = rng or random.Random()
        self._auto_create = allow_auto_topic_creation
        self._topics: set[str] | None = set()
        self._links = Links(
            config,
            clock=clock,
            rng=self._rng,
            connector=connector,
            on_failed=lambda address: self.request_refresh(),
            on_lost=self._on_lost,
        )
        self._refusals: dict[str, str] = {}  # by address, why it gave no metadata when it was asked last
        retry = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._gate = RefreshGate(retry, config.metadata_max_age_ms / 1000, clock, self._rng)
        self._refreshing = RetryPolicy(retry, self._rng)
        self._on_controller = RetryPolicy(retry, self._rng, before_retry=self._distrust)
        self._coordinators = Coordinators(self, RetryPolicy(retry, self._rng))
        self._generation = 0  # of the metadata: grows with each answer
        self._distrusted = 0
        self.outlives_tasks = False  # whoever sets this calls close() even when the loop ends and cancels all tasks
        self._tasks: list[asyncio.Task[None]] = []
        self._updated: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Begins to look for the cluster. It does not raise when nobody answers: it keeps trying until `close`."""
        self._tasks = [asyncio.create_task(self._keep_fresh()), asyncio.create_task(self._keep_tidy())]

    async def close(self) -> None:
        """Closes every connection; who waits for the cluster gets `ClosedError`."""
        self._links.closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._links.close()
        if self._updated is not None and not self._updated.done():
            self._updated.set_exception(ClosedError("the client was closed"))
            self._updated.exception()  # whether or not somebody waits

    # -- metadata

    def add_topics(self, names: Iterable[str]) -> None:
        """Asks for these topics, too; the next answer, fetched at once, has those that are new."""
        if self._topics is not None and not self._topics.issuperset(new := set(names)):
            self._topics |= new
            self._gate.request_at_once()

    def set_topics(self, names: Iterable[str] | None) -> None:
        """Asks for these topics and no others; None asks for all there are."""
        wanted = None if names is None else set(names)
        if wanted != self._topics:
            grows = wanted is None or self._topics is None or not wanted <= self._topics
            self._topics = wanted
            if grows:
                self._gate.request_at_once()

    def request_refresh(self) -> None:
        """Asks for new metadata soon: calls are joined, and kept apart by `retry_backoff_ms` and more."""
        self._gate.request()

    async def wait_metadata(self, predicate: Callable[[ClusterMetadata], bool], timeout: float) -> ClusterMetadata:
        """The first snapshot that fulfils the predicate, refreshing until then.

        `KafkaTimeout` after `timeout` seconds says what failed at each address; `ClosedError` if the client is closed.
        """
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._wait_metadata(predicate)
        except TimeoutError:
            if not limit.expired():
                raise
            failures = self.describe_failures()
            reason = f"; last failures: {failures}" if failures else ""
            raise KafkaTimeout(f"no metadata that would do within {round(timeout, 2):g} s{reason}") from None

    async def topic_partitions(self, topic: str, timeout: float) -> TopicInfo:
        """A topic with its partitions, once it has any.

        Raises what the broker says of the topic if waiting cannot help (`InvalidTopic`, `TopicAuthorizationFailed`),
        and `KafkaTimeout` after `timeout` seconds.
        """
        self.add_topics([topic])

        def decided(metadata: ClusterMetadata) -> bool:
            info = metadata.topics.get(topic)
            return info is not None and (bool(info.partitions) or not _may_recover(info))

        try:
            metadata = await self.wait_metadata(decided, timeout)
        except KafkaTimeout as error:
            known = self.metadata.topics.get(topic)
            state = "is not known to the cluster yet"
            if known is not None and known.error_code:
                state = f"is not available ({from_code(known.error_code, for_code(known.error_code).__name__)})"
            raise KafkaTimeout(f"topic {topic!r} {state}: {error}") from None
        info = metadata.topics[topic]
        if not info.partitions:
            raise from_code(info.error_code, f"topic {topic!r}: the broker refused to tell its partitions")
        return info

    async def _wait_metadata(self, predicate: Callable[[ClusterMetadata], bool]) -> ClusterMetadata:
        while not predicate(self.metadata):
            if self._links.closed:
                raise ClosedError("the client is closed")
            self.request_refresh()
            if self._updated is None or self._updated.done():
                self._updated = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._updated)
        return self.metadata

    async def _keep_fresh(self) -> None:
        try:
            while True:
                try:
                    await self._refreshing.call(self._refresh, timeout=None, what="Metadata")
                except Exception:
                    log.exception("refreshing the metadata failed in a way it should not")
                    self._gate.failed()
                await self._gate.wait_until_due()
        finally:
            if not self.outlives_tasks:
                self._links.close()  # also when the loop ends before anybody has called close()

    async def _refresh(self) -> None:
        self._gate.begin()
        topics = None
        if self._topics is not None:
            topics = [MetadataRequestTopic(name=name) for name in sorted(self._topics)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._auto_create)

        def asking(link: Link) -> Callable[[], Any]:
            return lambda: self._ask_metadata(link, request)

        response = await first_success(map(asking, self._links.candidates()), _PATIENCE)
        self._take(response)

    async def _ask_metadata(self, link: Link, request: MetadataRequest) -> MetadataResponse:
        address = link.node.address
        try:
            connection = await link.connection()
            response = await connection.request(request)
            if response.error_code:
                raise from_code(response.error_code, f"{address}: Metadata was refused")
            if not snapshot(EMPTY, response, 0.0).nodes:
                raise ConnectionFailed(f"{address}: its metadata names no broker that could be connected to")
        except KafkaError as error:
            self._refusals[address] = str(error)
            if isinstance(error, ConnectionFailed):
                raise
            raise ConnectionFailed(str(error)) from error  # another node, or another time
        self._refusals.pop(address, None)
        return response

    def _take(self, response: MetadataResponse) -> None:
        self.metadata = snapshot(self.metadata, response, self._clock.monotonic())
        self._generation += 1
        self._gate.end()
        self._links.fit(self.metadata)
        for address in self._refusals.keys() - self._links.addresses():
            del self._refusals[address]
        for listener in self.listeners:
            try:
                listener(self.metadata)
            except Exception:
                log.exception("a metadata listener failed")
        if self._updated is not None and not self._updated.done():
            self._updated.set_result(None)
        if self._waits_for_topics():
            self.request_refresh()

    def _waits_for_topics(self) -> bool:
        """Whether a topic that is asked for is not there yet, or has a partition that nobody leads."""
        known = [self.metadata.topics.get(name) for name in self._topics or ()]
        return any(
            info is None
            or (not info.partitions and _may_recover(info))
            or any(partition.leader < 0 for partition in info.partitions)
            for info in known
        )

    # -- nodes and connections

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
        return await first_success([link.connection for link in links], _PATIENCE)

    async def request(self, message: Request[R], *, node_id: int | None = None, timeout: float | None = None) -> R:
        """Sends one request, to any node or to this one, and gives its response. Errors as `Connection.request`."""
        connection = await (self.any_connection() if node_id is None else self.connection(node_id))
        return await connection.request(message, timeout=timeout)

    async def request_controller(self, message: Request[R], *, timeout: float, maximum: int | None = None) -> R:
        """Sends a request to the controller, tried again when it has moved or cannot be reached.

        `maximum` bounds the request's version. `KafkaTimeout` after `timeout` seconds, with the last failure.
        """

        async def attempt() -> R:
            metadata = await self._wait_metadata(
                lambda metadata: metadata.controller_id >= 0 and self._generation > self._distrusted
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
        return MappingProxyType({**self._refusals, **self._links.failures})

    def describe_failures(self) -> str:
        """The last failure of each address in one line; empty if there is none."""
        return "; ".join(self.last_failures.values())

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

    async def _keep_tidy(self) -> None:
        idle = self.config.connections_max_idle_ms / 1000
        while idle >= 0:
            await asyncio.sleep(max(0.01, min(_TIDY_SECONDS, idle / 2)))
            self._links.close_idle(idle)

    def _distrust(self, error: BaseException) -> None:
        """Nothing is asked of the controller again before newer metadata has named it."""
        self._distrusted = self._generation


def _may_recover(info: TopicInfo) -> bool:
    return info.error_code == 0 or for_code(info.error_code).retriable


def _error_codes(response: Response) -> Iterator[int]:
    """Every error code at the top of a response and one list below it."""
    yield getattr(response, "error_code", 0)
    for name in ("topics", "responses", "results"):
        for entry in getattr(response, name, ()):
            yield getattr(entry, "error_code", 0)
