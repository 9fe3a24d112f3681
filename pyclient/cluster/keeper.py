"""Keeps the picture of the cluster fresh: asks for metadata, one node after another, until somebody answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.link import Link
from pyclient.cluster.links import Links
from pyclient.cluster.metadata import EMPTY, ClusterMetadata, TopicInfo, snapshot
from pyclient.cluster.refresh import RefreshGate
from pyclient.cluster.retry import RetryPolicy
from pyclient.errors import (
    ClosedError,
    ClusterUnreachable,
    ConnectionFailed,
    InvalidTopic,
    KafkaError,
    KafkaTimeout,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    for_code,
    from_code,
)
from pyclient.net.connection import Connection
from pyclient.net.hedge import first_success
from pyclient.net.shared import shared
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

log = logging.getLogger(__name__)

PATIENCE: Final = 1.0
"""Seconds before another node is asked as well."""

_LOOKUPS_BEFORE_LISTING: Final = 32
"""New topics looked up by name, each in a request of its own, before one request lists all topics of the cluster.

A producer that sends to 1,000 new topics needs a round trip for each otherwise. At most one list per
`metadata_max_age_ms`.
"""

_ADVICE: Final[Mapping[int, str]] = {
    TopicAuthorizationFailed.code: "give the client's user an ACL for the topic (DESCRIBE, and WRITE or READ)",
    InvalidTopic.code: "give the topic a name that Kafka takes",
}


class MetadataKeeper:
    """The cluster's metadata: those of `topics`, or of all there are if that is None.

    `generation` grows with each answer; `listeners` are called with it.
    """

    def __init__(
        self,
        links: Links,
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
        """A new one from each round if no address ever answered, and each fails for a cause that waiting cannot mend"""
        self._links = links
        self._client_id = client_id
        self._clock = clock
        self._auto_create = allow_auto_topic_creation
        self._gate = RefreshGate(retry, max_age, clock, rng)
        self._refreshing = RetryPolicy(retry, rng, before_retry=self._round_failed)
        self._refusals: dict[str, KafkaError] = {}  # by address, why it gave no metadata when it was asked last
        self._missing_since: float | None = None  # the clock, from the first round that no address answered
        self._told_by = ""  # the address that gave the newest metadata
        self._updated: asyncio.Future[None] | None = None
        self._max_age = max_age
        self._asked_at = float("-inf")  # when all topics were asked for and answered
        self._all_wanted = True
        self._pending: set[str] = set()  # topics to ask for, if not all are
        self._unavailable: set[str] = set()  # topics that are not there yet, or have a partition without a leader
        self._doubted: set[str] = set()  # topics of which another broker may know more than the last one asked
        self.listed: frozenset[str] = frozenset()  # topics in the metadata though they were not asked for by name
        self._listed_at = float("-inf")
        self._lookups = 0  # of new topics, since all topics were listed or the time for that began

    def add_topics(self, names: Iterable[str]) -> None:
        """Asks for these topics, too; the next answer, fetched at once, has those that are new."""
        if self.topics is not None and (new := set(names) - self.topics):
            self.topics |= new
            self._pending |= new
            self._gate.request_at_once()

    def set_topics(self, names: Iterable[str] | None) -> None:
        """Asks for these topics and no others; None asks for all there are."""
        wanted = None if names is None else set(names)
        if wanted == self.topics:
            return
        if wanted is None or self.topics is None:
            self.topics, self._all_wanted = wanted, True
            self._gate.request_at_once()
            return
        new = wanted - self.topics
        self.topics = wanted
        for names in (self._pending, self._unavailable, self._doubted):
            names &= wanted
        if new:
            self._pending |= new
            self._gate.request_at_once()

    def request(self) -> None:
        """Asks for new metadata soon: calls are joined, and kept apart by `retry_backoff_ms` and more."""
        self._all_wanted = True
        self._gate.request()

    def request_topic(self, topic: str) -> None:
        """The same for one topic, of which another broker is asked if there is one."""
        if self.topics is not None:
            self.topics.add(topic)
            self._pending.add(topic)
            self._doubted.add(topic)
        self._gate.request()

    async def wait(
        self,
        predicate: Callable[[ClusterMetadata], bool],
        timeout: float,
        request: Callable[[], object] | None = None,
    ) -> ClusterMetadata:
        """The first snapshot that fulfils the predicate, asking by `request` (all topics by default) until then.

        `KafkaTimeout` after `timeout` seconds says what failed at each address; `ClosedError` if the client is closed,
        `ClusterUnreachable` as in `wait_for_ever`.
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
            raise KafkaTimeout(f"no metadata that would do within {round(timeout, 2):g} s{reason}{advice}") from None

    async def topic_partitions(self, topic: str, timeout: float, *, partitions: int = 1) -> TopicInfo:
        """A topic with its partitions, once it has as many as that.

        Raises what the broker says of the topic if waiting cannot help (`InvalidTopic`, `TopicAuthorizationFailed`),
        and `KafkaTimeout` after `timeout` seconds. A refusal that was known before the call is asked for again, as it
        may have been lifted, and so is a topic with too few partitions, at other brokers; with the pauses of `request`,
        so that calls in a loop are no storm of requests.
        """
        before = self.metadata.topics.get(topic)
        if not _is_refused(before) and not self.use_listed(topic):
            self._lookups += self.topics is not None and topic not in self.topics
            self.add_topics([topic])

        def decided(metadata: ClusterMetadata) -> bool:
            info = metadata.topics.get(topic)
            if _is_refused(info):
                return info is not before
            return info is not None and len(info.partitions) >= partitions

        def request() -> None:
            if topic not in self._pending:
                self.request_topic(topic)

        try:
            metadata = await self.wait(decided, timeout, request)
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
        """Keep a topic that a list of all topics contained; return False if none did, so that it must be asked for."""
        if topic not in self.listed or self.topics is None:
            return False
        self.topics.add(topic)
        return True

    def _not_found(self, topic: str, known: TopicInfo | None, error: KafkaTimeout) -> KafkaTimeout:
        """The error for a topic that had no partitions in time, with what to do."""
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
        """The error for a topic of which a broker says what waiting does not help against."""
        advice = _ADVICE.get(info.error_code, "")
        text = f"topic {info.name!r}: broker {self._told_by} refused to tell its partitions"
        return from_code(info.error_code, f"{text}; {advice}" if advice else text)

    async def wait_for_ever(
        self, predicate: Callable[[ClusterMetadata], bool], request: Callable[[], object] | None = None
    ) -> ClusterMetadata:
        """The first snapshot that fulfils the predicate; the caller limits the time.

        `ClusterUnreachable` if there was none yet and every address fails for a cause that waiting does not mend.
        """
        while not predicate(self.metadata):
            if self._links.closed:
                raise ClosedError("the client is closed")
            (request or self.request)()
            if self._updated is None or self._updated.done():
                self._updated = asyncio.get_running_loop().create_future()
            await shared(self._updated)
        return self.metadata

    async def keep_fresh(self) -> None:
        """Asks again and again, until it is cancelled."""
        while True:
            try:
                await self._refreshing.call(self._refresh, timeout=None, what="Metadata")
            except Exception:  # a bug must not end the loop that everything else hangs on
                log.exception("refreshing the metadata failed in a way it should not")
                self._gate.failed()
            await self._gate.wait_until_due()

    def close(self) -> None:
        """Who waits gets `ClosedError`."""
        if self._updated is not None and not self._updated.done():
            self._updated.set_exception(ClosedError("the client was closed"))
            self._updated.exception()  # whether or not somebody waits

    async def _refresh(self) -> None:
        self._gate.begin()
        overdue = self._clock.monotonic() - self._asked_at >= self._max_age
        asked, listing = None, False
        if self.topics is not None and self._pending and not (self._all_wanted or overdue):
            asked = frozenset(self._pending)
            now = self._clock.monotonic()
            if self._lookups >= _LOOKUPS_BEFORE_LISTING and now - self._listed_at >= self._max_age:
                asked, listing, self._listed_at, self._lookups = None, True, now, 0
        names = self.topics if asked is None else asked
        topics = None if names is None or listing else [MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._auto_create)

        def asking(link: Link) -> Callable[[], Any]:
            return lambda: self._ask_metadata(link, request)

        links = self._links.candidates()
        if self._doubted:
            links.sort(key=lambda link: link.node.address == self._told_by)
        self._told_by, response = await first_success(map(asking, links), PATIENCE)
        self._take(response, asked, frozenset(names or ()))

    async def _ask_metadata(self, link: Link, request: MetadataRequest) -> tuple[str, MetadataResponse]:
        """The answer, with the address that it came from."""
        address = link.node.address
        connection: Connection | None = None
        try:
            connection = await link.connection()
            response = await connection.request(request)
            if response.error_code:
                raise from_code(response.error_code, f"{address}: Metadata was refused")
            if not snapshot(EMPTY, response, 0.0).nodes:
                raise ConnectionFailed(f"{address}: its metadata names no broker that could be connected to")
        except KafkaError as failure:
            error = failure
            if connection is not None and connection.refused:
                error = await self._links.why_refused(link.node, failure)
            self._refusals[address] = error
            if isinstance(failure, ConnectionFailed):
                raise
            raise ConnectionFailed(str(error)) from failure  # another node, or another time
        self._refusals.pop(address, None)
        return address, response

    def _round_failed(self, error: BaseException) -> None:
        """No address gave metadata: say so once, and to those that wait if waiting does not help."""
        if self._missing_since is None:
            self._missing_since = self._clock.monotonic()
            known = "no address answers yet" if self.metadata is EMPTY else "the cluster is lost, no address answers"
            log.warning("client %r: %s, and it goes on trying: %s", self._client_id, known, self.describe_failures())
        self.unreachable = self._nothing_to_wait_for()
        if self.unreachable is not None and self._updated is not None and not self._updated.done():
            self._updated.set_exception(ClusterUnreachable(*self.unreachable.args, lasting=True))
            self._updated.exception()  # whether or not somebody waits

    def _nothing_to_wait_for(self) -> ClusterUnreachable | None:
        if self.metadata is not EMPTY:
            return None
        failures = {**self._refusals, **self._links.failures}
        errors = [failures.get(address) for address in self._links.addresses()]
        if not all(isinstance(error, ConnectionFailed) and error.lasting for error in errors):
            return None
        return ClusterUnreachable(f"no broker can be used: {self.describe_failures()}", lasting=True)

    def _take(self, response: MetadataResponse, asked: frozenset[str] | None, names: frozenset[str]) -> None:
        """An answer about `names`; `asked` is None if those are all that there is to ask for."""
        first, known = self.metadata is EMPTY, self.metadata.nodes
        self.metadata = snapshot(self.metadata, response, self._clock.monotonic(), asked)
        self._log_answer(first)
        self.generation += 1
        if asked is None:
            self._asked_at, self._all_wanted = self.metadata.fetched_at, False
            self._unavailable.clear()
            others = self.metadata.topics.keys() - names if names else ()
            self.listed = frozenset(name for name in others if not self._is_unavailable(name))
        elif not known.keys() <= self.metadata.nodes.keys():
            self._all_wanted = True  # a node has gone: what it led is led by others now
        self._pending -= names
        self._doubted -= names
        self._unavailable -= names
        self._unavailable |= {name for name in names & (self.topics or set()) if self._is_unavailable(name)}
        self._gate.end()
        self._links.fit(self.metadata)
        for address in self._refusals.keys() - self._links.addresses():
            del self._refusals[address]
        for listener in self.listeners:
            try:
                listener(self.metadata)
            except Exception:  # the others are told
                log.exception("a metadata listener failed")
        if self._updated is not None and not self._updated.done():
            self._updated.set_result(None)
        if self._unavailable:
            self._pending |= self._unavailable
        if self._pending or self._all_wanted:
            self._gate.request()

    def _log_answer(self, first: bool) -> None:
        since, self._missing_since, self.unreachable = self._missing_since, None, None
        count = len(self.metadata.nodes)
        brokers = f"{count} broker{'' if count == 1 else 's'}"
        where = f"cluster {self.metadata.cluster_id} with {brokers}, by {self._told_by}"
        if first:
            log.info("client %r: connected to %s", self._client_id, where)
        if since is not None:
            seconds = self._clock.monotonic() - since
            log.warning("client %r: after %.1f s an address answers: %s", self._client_id, seconds, where)

    def _is_unavailable(self, name: str) -> bool:
        """Whether a topic that is asked for is not there yet, or has a partition that nobody leads."""
        info = self.metadata.topics.get(name)
        return (
            info is None
            or (not info.partitions and _may_recover(info))
            or any(partition.leader < 0 for partition in info.partitions)
        )

    @property
    def last_failures(self) -> Mapping[str, str]:
        """Address -> why the last attempt to use it failed; addresses that work are not in it."""
        failures = {**self._refusals, **self._links.failures}
        return MappingProxyType({address: str(error) for address, error in failures.items()})

    def describe_failures(self) -> str:
        """The last failure of each address, and what else is waited for, in one line; empty if there is nothing."""
        return "; ".join([*self.last_failures.values(), *self._links.waits()])


def _is_refused(info: TopicInfo | None) -> bool:
    """Whether a broker has said of the topic what waiting does not help against."""
    return info is not None and not info.partitions and not _may_recover(info)


def _may_recover(info: TopicInfo) -> bool:
    return info.error_code == 0 or for_code(info.error_code).retriable
