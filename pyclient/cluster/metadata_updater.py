"""Keep the cluster's metadata up to date: request it from one node after another until one responds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.asked_nodes import AskedNodes
from pyclient.cluster.connection_pool import ConnectionPool
from pyclient.cluster.metadata import EMPTY, ClusterMetadata, TopicInfo, snapshot
from pyclient.cluster.node_connection import NodeConnection
from pyclient.cluster.retry import RetryPolicy
from pyclient.errors import (
    ClosedError,
    ClusterUnreachable,
    ConnectionFailed,
    InvalidTopic,
    KafkaError,
    KafkaTimeout,
    UnknownTopicOrPartition,
    for_code,
    from_code,
)
from pyclient.net.connection import Connection
from pyclient.net.tasks import first_success, shared
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

log = logging.getLogger(__name__)

NEXT_NODE_SECONDS: Final = 1.0
"""Seconds until a request is also sent to the next node."""

_LOOKUPS_BEFORE_LISTING: Final = 32
"""New topics looked up by name, each in a request of its own, before one request lists all topics of the cluster.

Otherwise a producer that sends to 1,000 new topics needs a round trip for each. At most one list per
`metadata_max_age_ms`.
"""

_ADVICE: Final[Mapping[int, str]] = {
    InvalidTopic.code: "give the topic a name that Kafka takes",
}


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, at most `seconds`; return True if it is set."""
    if seconds > 0 and not event.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
    return event.is_set()


class RefreshGate:
    """Merges requests for a refresh and spaces refreshes out.

    Refreshes in quick succession that change nothing are delayed by growing pauses (`backoff`), those of
    `request_at_once` are not. Without a request, a refresh is due when the last one is `max_age` seconds old.
    `wait(event, seconds)` waits for the event, at most for so long, and returns True if it is set.
    """

    def __init__(
        self,
        backoff: Backoff,
        max_age: float,
        clock: Clock,
        rng: Rng,
        wait: Callable[[asyncio.Event, float], Awaitable[bool]] = wait_for_event,
    ) -> None:
        self._backoff = backoff
        self._max_age = max_age
        self._clock = clock
        self._rng = rng
        self._wait = wait
        self._wanted = asyncio.Event()
        self._at_once = asyncio.Event()
        self._running = False
        self._urgent = False  # the last refresh was requested at once, which resets the backoff
        self._last = float("-inf")
        self._in_a_row = 0

    @property
    def without_change(self) -> bool:
        """True after refreshes in quick succession that changed nothing."""
        return self._in_a_row > 0

    def request(self) -> None:
        """Request a refresh, unless one is running."""
        if not self._running:
            self._wanted.set()

    def request_at_once(self) -> None:
        """Request a refresh that begins after this call, without a pause."""
        self._wanted.set()
        self._at_once.set()

    def begin(self) -> None:
        """Record that a refresh begins, which serves all requests until now."""
        self._running = True
        self._urgent = self._at_once.is_set()
        self._wanted.clear()
        self._at_once.clear()

    def end(self, *, changed: bool = False) -> None:
        """Record that a refresh has succeeded; if it `changed` the metadata, the next pause is the shortest."""
        self._running = False
        now = self._clock.monotonic()
        in_a_row = now - self._last < 2 * self._backoff.maximum and not self._urgent and not changed
        self._in_a_row = self._in_a_row + 1 if in_a_row else 0
        self._last = now

    def failed(self) -> None:
        """Record that a refresh has failed, and request another one after a pause, also if one is wanted at once."""
        self._running = False
        self._at_once.clear()
        self._last = self._clock.monotonic()
        self._wanted.set()

    async def wait_until_due(self) -> None:
        """Wait until the next refresh should begin."""
        if not await self._wait(self._wanted, self._max_age - (self._clock.monotonic() - self._last)):
            self._in_a_row = 0  # due by age, not requested
        pause = self._backoff.delay(self._in_a_row, self._rng)
        await self._wait(self._at_once, pause - (self._clock.monotonic() - self._last))


class MetadataUpdater:
    """Refreshes the metadata of `topics`, or of all topics if that is None.

    `generation` grows with each response, after which the `listeners` are called with the new metadata.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        retry: Backoff,
        *,
        client_id: str,
        max_age: float,
        clock: Clock,
        rng: Rng,
        allow_auto_topic_creation: bool,
    ) -> None:
        self.metadata: ClusterMetadata = EMPTY
        self.listeners: list[Callable[[ClusterMetadata], None]] = []
        self.topics: set[str] | None = set()
        self.generation = 0
        self.unreachable: ClusterUnreachable | None = None
        """A new error after each round, if no address ever responded and all of them fail with lasting causes"""
        self._pool = pool
        self._client_id = client_id
        self._clock = clock
        self._auto_create = allow_auto_topic_creation
        self._gate = RefreshGate(retry, max_age, clock, rng)
        self._refreshing = RetryPolicy(retry, rng, before_retry=self._round_failed)
        self._refusals: dict[str, KafkaError] = {}  # by address, the error of its last Metadata request
        self._unanswered_since: float | None = None  # the time of the first round in which no address responded
        self._source = ""  # the address that sent the newest metadata
        self._asked = AskedNodes()
        self._updated: asyncio.Future[None] | None = None
        self._max_age = max_age
        self._all_fetched_at = float("-inf")  # when the last response about all topics came
        self._all_wanted = True
        self._pending: set[str] = set()  # topics to request, unless all are
        self._unavailable: set[str] = set()  # topics that do not exist yet, or have a partition without a leader
        self._stale: set[str] = set()  # topics for which other brokers may have newer metadata than those asked last
        self.listed: frozenset[str] = frozenset()  # topics in the metadata that were not requested by name
        self._listed_at = float("-inf")
        self._lookups = 0  # of new topics, since the last list of all topics

    def add_topics(self, names: Iterable[str]) -> None:
        """Add topics; if some are new, their metadata is requested at once."""
        if self.topics is not None and (new := set(names) - self.topics):
            self.topics |= new
            self._pending |= new
            self._gate.request_at_once()

    def set_topics(self, names: Iterable[str] | None) -> None:
        """Replace the topics; None means all topics of the cluster."""
        wanted = None if names is None else set(names)
        if wanted == self.topics:
            return
        if wanted is None or self.topics is None:
            self.topics, self._all_wanted = wanted, True
            self._gate.request_at_once()
            return
        new = wanted - self.topics
        self.topics = wanted
        for names in (self._pending, self._unavailable, self._stale):
            names &= wanted
        if new:
            self._pending |= new
            self._gate.request_at_once()

    def request(self) -> None:
        """Request a refresh of all topics soon: calls are merged, and refreshes at least `retry_backoff_ms` apart."""
        self._all_wanted = True
        self._gate.request()

    def request_topic(self, topic: str) -> None:
        """Request a refresh of one topic soon, from another broker than the last time if there is one."""
        if self.topics is not None:
            self.topics.add(topic)
            self._pending.add(topic)
            self._stale.add(topic)
        self._gate.request()

    async def refresh_elsewhere(self, topics: Iterable[str], node_id: int) -> None:
        """Refresh topics out of turn, at any node but this one; see `ClusterClient.refresh_elsewhere`."""
        names = frozenset(topics)
        others = [broker for broker in self._pool.candidates() if 0 <= broker.node.node_id != node_id]
        if names and others:
            self._source, response = await self._ask_first(others, names)
            self._take(response, names, names)
            self._publish()

    async def wait(
        self,
        predicate: Callable[[ClusterMetadata], bool],
        timeout: float,
        request: Callable[[], object] | None = None,
    ) -> ClusterMetadata:
        """Return the first snapshot that satisfies the predicate, calling `request` (default: all topics) until then.

        Raise `KafkaTimeout` with the last failure of each address after `timeout` seconds, `ClosedError` if the client
        is closed, `ClusterUnreachable` as in `wait_for_ever`.
        """
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self.wait_for_ever(predicate, request)
        except TimeoutError:
            if not limit.expired():
                raise
            failures = self.describe_failures()
            reason = f"; last failures: {failures}" if failures else ""
            advice = "" if self.metadata is not EMPTY else "; check bootstrap_servers, and that a broker runs there"
            raise KafkaTimeout(f"no suitable metadata within {round(timeout, 2):g} s{reason}{advice}") from None

    async def topic_partitions(self, topic: str, timeout: float, *, partitions: int = 1) -> TopicInfo:
        """Return a topic once it has at least `partitions` partitions.

        Raise the broker's error for the topic if waiting cannot help (`InvalidTopic`, `TopicAuthorizationFailed`), and
        `KafkaTimeout` after `timeout` seconds. An error that was known before the call is checked again, since it may
        have been resolved, and a topic with too few partitions is requested from other brokers; both with the pauses
        of `request`, so that calls in a loop do not flood the brokers.
        """
        before = self.metadata.topics.get(topic)
        if not _is_refused(before) and not self.use_listed(topic):
            self._lookups += self.topics is not None and topic not in self.topics
            self.add_topics([topic])

        def is_decided(metadata: ClusterMetadata) -> bool:
            info = metadata.topics.get(topic)
            if _is_refused(info):
                return info is not before
            return info is not None and len(info.partitions) >= partitions

        def request() -> None:
            if topic not in self._pending:
                self.request_topic(topic)

        try:
            metadata = await self.wait(is_decided, timeout, request)
        except KafkaTimeout as error:
            known = self.metadata.topics.get(topic)
            if known is None or not _is_refused(known):
                raise self._not_found(topic, known, error) from None
            raise self._refusal(known) from None
        info = metadata.topics[topic]
        if not info.partitions:
            raise self._refusal(info)
        return info

    def use_listed(self, topic: str) -> bool:
        """Add a topic that a list of all topics contained; return False if none did, so that it must be requested."""
        if topic not in self.listed or self.topics is None:
            return False
        self.topics.add(topic)
        return True

    def _not_found(self, topic: str, known: TopicInfo | None, error: KafkaTimeout) -> KafkaTimeout:
        """Return the error, with advice, for a topic that had no partitions in time."""
        if self.metadata is EMPTY:
            return KafkaTimeout(f"topic {topic!r} cannot be looked up, as no broker has answered yet: {error}")
        state, code = "is not known to the cluster yet", UnknownTopicOrPartition.code
        if known is not None and known.error_code:
            code = known.error_code
            state = f"is not available ({from_code(code, for_code(code).__name__)})"
        advice = "check its partitions' brokers"
        if code == UnknownTopicOrPartition.code:
            advice = "check its name, or create it"
            if self._auto_create:
                advice += ", or let the brokers do so (auto.create.topics.enable=true)"
        return KafkaTimeout(f"topic {topic!r} {state}: {error}; {advice}")

    def _refusal(self, info: TopicInfo) -> KafkaError:
        """Return the error for a topic that a broker answered with a code that is not retriable."""
        advice = _ADVICE.get(info.error_code, "")
        text = f"topic {info.name!r}: broker {self._source} refused its metadata"
        return from_code(info.error_code, f"{text}; {advice}" if advice else text, "Metadata")

    async def wait_for_ever(
        self, predicate: Callable[[ClusterMetadata], bool], request: Callable[[], object] | None = None
    ) -> ClusterMetadata:
        """Return the first snapshot that satisfies the predicate; the caller limits the time.

        Raise `ClusterUnreachable` if there was no snapshot yet and every address fails with a lasting cause.
        """
        while not predicate(self.metadata):
            if self._pool.closed:
                raise ClosedError("the client is closed")
            (request or self.request)()
            if self._updated is None or self._updated.done():
                self._updated = asyncio.get_running_loop().create_future()
            await shared(self._updated)
        return self.metadata

    async def keep_fresh(self) -> None:
        """Refresh the metadata whenever it is due, until cancelled."""
        while True:
            try:
                await self._refreshing.call(self._refresh, timeout=None, what="Metadata")
            except Exception:  # a bug must not end this task, which the whole client depends on
                log.exception("unexpected error while refreshing the metadata")
                self._gate.failed()
            await self._gate.wait_until_due()

    def close(self) -> None:
        """Fail all waiting calls with `ClosedError`."""
        if self._updated is not None and not self._updated.done():
            self._updated.set_exception(ClosedError("the client was closed"))
            self._updated.exception()  # marks it as retrieved, since there may be no waiter

    async def _refresh(self) -> None:
        self._gate.begin()
        overdue = self._clock.monotonic() - self._all_fetched_at >= self._max_age
        asked, listing = None, False  # asked: the names if only some topics are requested
        if self.topics is not None and self._pending and not (self._all_wanted or overdue):
            asked = frozenset(self._pending)
            now = self._clock.monotonic()
            if self._lookups >= _LOOKUPS_BEFORE_LISTING and now - self._listed_at >= self._max_age:
                asked, listing, self._listed_at, self._lookups = None, True, now, 0
        names = self.topics if asked is None else asked
        brokers = self._pool.candidates(self._asked if self._stale or self._gate.without_change else None)
        self._source, response = await self._ask_first(brokers, None if listing else names)
        self._gate.end(changed=self._take(response, asked, frozenset(names or ())))
        self._publish()

    async def _ask_first(
        self, brokers: Iterable[NodeConnection], names: Iterable[str] | None
    ) -> tuple[str, MetadataResponse]:
        """Request these topics, or all, and return the address and the response of the first broker that answers."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._auto_create)
        attempts = [partial(self._fetch, broker, request) for broker in brokers]
        return await first_success(attempts, NEXT_NODE_SECONDS)

    async def _fetch(self, broker: NodeConnection, request: MetadataRequest) -> tuple[str, MetadataResponse]:
        """Return a broker's address and its response."""
        address = broker.node.address
        self._asked.note(address)
        connection: Connection | None = None
        try:
            connection = await broker.connection()
            response = await connection.request(request)
            if response.error_code:
                name = for_code(response.error_code).__name__
                raise from_code(response.error_code, f"{address}: Metadata was refused ({name})")
            if not snapshot(EMPTY, response, 0.0).nodes:
                raise ConnectionFailed(f"{address}: its metadata names no broker that could be connected to")
        except KafkaError as failure:
            self._refusals[address] = error = failure  # calls that time out during the explanation report this one
            if connection is not None and connection.refused:
                self._refusals[address] = error = await self._pool.explain_refusal(broker.node, failure)
            if isinstance(failure, ConnectionFailed):
                raise
            raise ConnectionFailed(str(error)) from failure  # retriable: the next node may respond
        self._refusals.pop(address, None)
        self._asked.note(address)
        return address, response

    def _round_failed(self, error: BaseException) -> None:
        """Log the first round in which no address responded; fail waiting calls if no retry can help."""
        if self._unanswered_since is None:
            self._unanswered_since = self._clock.monotonic()
            state = "no broker answers yet" if self.metadata is EMPTY else "lost the cluster, no broker answers"
            log.warning("client %r: %s, retrying: %s", self._client_id, state, self.describe_failures())
        self.unreachable = self._lasting_failure()
        if self.unreachable is not None and self._updated is not None and not self._updated.done():
            self._updated.set_exception(ClusterUnreachable(*self.unreachable.args, lasting=True))
            self._updated.exception()  # marks it as retrieved, since there may be no waiter

    def _lasting_failure(self) -> ClusterUnreachable | None:
        if self.metadata is not EMPTY:
            return None
        failures = {**self._refusals, **self._pool.failures}
        errors = [failures.get(address) for address in self._pool.addresses()]
        if not all(isinstance(error, ConnectionFailed) and error.lasting for error in errors):
            return None
        return ClusterUnreachable(f"no broker can be used: {self.describe_failures()}", lasting=True)

    def _take(self, response: MetadataResponse, asked: frozenset[str] | None, names: frozenset[str]) -> bool:
        """Apply a response to a request for `names`; `asked` is None if it was for all topics of this client.

        Return True if that changed a topic. `_publish` follows.
        """
        first, known, topics = self.metadata is EMPTY, self.metadata.nodes, self.metadata.topics
        self.metadata = snapshot(self.metadata, response, self._clock.monotonic(), asked)
        self._log_connected(first)
        self.generation += 1
        if asked is None:
            self._all_fetched_at, self._all_wanted = self.metadata.fetched_at, False
            self._unavailable.clear()
            others = self.metadata.topics.keys() - names if names else ()
            self.listed = frozenset(name for name in others if not self._is_unavailable(name))
        elif not known.keys() <= self.metadata.nodes.keys():
            self._all_wanted = True  # a node was removed: its partitions have other leaders now
        self._pending -= names
        self._stale -= names
        self._unavailable -= names
        self._unavailable |= {name for name in names & (self.topics or set()) if self._is_unavailable(name)}
        return topics != self.metadata.topics

    def _publish(self) -> None:
        """Pass the new metadata to the pool, the listeners and the waiting calls."""
        self._pool.update(self.metadata)
        for address in self._refusals.keys() - self._pool.addresses():
            del self._refusals[address]
        for listener in self.listeners:
            try:
                listener(self.metadata)
            except Exception:  # the other listeners are still called
                log.exception("a metadata listener failed")
        if self._updated is not None and not self._updated.done():
            self._updated.set_result(None)
        if self._unavailable:
            self._pending |= self._unavailable
        if self._pending or self._all_wanted:
            self._gate.request()

    def _log_connected(self, first: bool) -> None:
        since, self._unanswered_since, self.unreachable = self._unanswered_since, None, None
        count = len(self.metadata.nodes)
        brokers = f"{count} broker{'' if count == 1 else 's'}"
        cluster = f"cluster {self.metadata.cluster_id} with {brokers}, by {self._source}"
        if first:
            log.info("client %r: connected to %s", self._client_id, cluster)
        if since is not None:
            seconds = self._clock.monotonic() - since
            log.warning("client %r: a broker answers after %.1f s: %s", self._client_id, seconds, cluster)

    def _is_unavailable(self, name: str) -> bool:
        """Return True if a requested topic does not exist yet, or has a partition without a leader."""
        info = self.metadata.topics.get(name)
        return (
            info is None
            or (not info.partitions and _may_recover(info))
            or any(partition.leader < 0 for partition in info.partitions)
        )

    @property
    def last_failures(self) -> Mapping[str, str]:
        """The error text of the last attempt by address; addresses that work are missing."""
        failures = {**self._refusals, **self._pool.failures}
        return MappingProxyType({address: str(error) for address, error in failures.items()})

    def describe_failures(self) -> str:
        """Return, in one line, the last failure of each address and the attempts in progress; "" if there are none."""
        return "; ".join([*self.last_failures.values(), *self._pool.pending_attempts()])


def _is_refused(info: TopicInfo | None) -> bool:
    """Return True if a broker answered the topic with a code that is not retriable."""
    return info is not None and not info.partitions and not _may_recover(info)


def _may_recover(info: TopicInfo) -> bool:
    return info.error_code == 0 or for_code(info.error_code).retriable
