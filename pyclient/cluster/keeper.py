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
    ConnectionFailed,
    InvalidTopic,
    KafkaError,
    KafkaTimeout,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    for_code,
    from_code,
)
from pyclient.net.hedge import first_success
from pyclient.net.shared import shared
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

log = logging.getLogger(__name__)

PATIENCE: Final = 1.0
"""Seconds before another node is asked as well."""

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
        max_age: float,
        clock: Clock,
        rng: Rng,
        allow_auto_topic_creation: bool,
    ) -> None:
        self.metadata: ClusterMetadata = EMPTY
        self.listeners: list[Callable[[ClusterMetadata], None]] = []
        self.topics: set[str] | None = set()
        self.generation = 0
        self._links = links
        self._clock = clock
        self._auto_create = allow_auto_topic_creation
        self._gate = RefreshGate(retry, max_age, clock, rng)
        self._refreshing = RetryPolicy(retry, rng)
        self._refusals: dict[str, str] = {}  # by address, why it gave no metadata when it was asked last
        self._told_by = ""  # the address that gave the newest metadata
        self._updated: asyncio.Future[None] | None = None

    def add_topics(self, names: Iterable[str]) -> None:
        """Asks for these topics, too; the next answer, fetched at once, has those that are new."""
        if self.topics is not None and not self.topics.issuperset(new := set(names)):
            self.topics |= new
            self._gate.request_at_once()

    def set_topics(self, names: Iterable[str] | None) -> None:
        """Asks for these topics and no others; None asks for all there are."""
        wanted = None if names is None else set(names)
        if wanted != self.topics:
            grows = wanted is None or self.topics is None or not wanted <= self.topics
            self.topics = wanted
            if grows:
                self._gate.request_at_once()

    def request(self) -> None:
        """Asks for new metadata soon: calls are joined, and kept apart by `retry_backoff_ms` and more."""
        self._gate.request()

    async def wait(self, predicate: Callable[[ClusterMetadata], bool], timeout: float) -> ClusterMetadata:
        """The first snapshot that fulfils the predicate, refreshing until then.

        `KafkaTimeout` after `timeout` seconds says what failed at each address; `ClosedError` if the client is closed.
        """
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self.wait_for_ever(predicate)
        except TimeoutError:
            if not limit.expired():
                raise
            failures = self.describe_failures()
            reason = f"; last failures: {failures}" if failures else ""
            advice = "" if self.metadata is not EMPTY else "; check bootstrap_servers, and that a broker runs there"
            raise KafkaTimeout(f"no metadata that would do within {round(timeout, 2):g} s{reason}{advice}") from None

    async def topic_partitions(self, topic: str, timeout: float) -> TopicInfo:
        """A topic with its partitions, once it has any.

        Raises what the broker says of the topic if waiting cannot help (`InvalidTopic`, `TopicAuthorizationFailed`),
        and `KafkaTimeout` after `timeout` seconds. A refusal that was known before the call is asked for again, as it
        may have been lifted; with the pauses of `request`, so that calls in a loop are no storm of requests.
        """
        before = self.generation if _is_refused(self.metadata.topics.get(topic)) else -1
        if before < 0:
            self.add_topics([topic])
        elif self.topics is not None:
            self.topics.add(topic)

        def decided(metadata: ClusterMetadata) -> bool:
            info = metadata.topics.get(topic)
            if _is_refused(info):
                return self.generation > before
            return info is not None and bool(info.partitions)

        try:
            metadata = await self.wait(decided, timeout)
        except KafkaTimeout as error:
            known = self.metadata.topics.get(topic)
            if known is None or not _is_refused(known):
                raise self._not_found(topic, known, error) from None
            raise self._refusal(known) from None
        info = metadata.topics[topic]
        if not info.partitions:
            raise self._refusal(info)
        return info

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

    async def wait_for_ever(self, predicate: Callable[[ClusterMetadata], bool]) -> ClusterMetadata:
        """The first snapshot that fulfils the predicate; the caller limits the time."""
        while not predicate(self.metadata):
            if self._links.closed:
                raise ClosedError("the client is closed")
            self.request()
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
        topics = None
        if self.topics is not None:
            topics = [MetadataRequestTopic(name=name) for name in sorted(self.topics)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._auto_create)

        def asking(link: Link) -> Callable[[], Any]:
            return lambda: self._ask_metadata(link, request)

        self._told_by, response = await first_success(map(asking, self._links.candidates()), PATIENCE)
        self._take(response)

    async def _ask_metadata(self, link: Link, request: MetadataRequest) -> tuple[str, MetadataResponse]:
        """The answer, with the address that it came from."""
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
        return address, response

    def _take(self, response: MetadataResponse) -> None:
        self.metadata = snapshot(self.metadata, response, self._clock.monotonic())
        self.generation += 1
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
        if self._waits_for_topics():
            self.request()

    def _waits_for_topics(self) -> bool:
        """Whether a topic that is asked for is not there yet, or has a partition that nobody leads."""
        known = [self.metadata.topics.get(name) for name in self.topics or ()]
        return any(
            info is None
            or (not info.partitions and _may_recover(info))
            or any(partition.leader < 0 for partition in info.partitions)
            for info in known
        )

    @property
    def last_failures(self) -> Mapping[str, str]:
        """Address -> why the last attempt to use it failed; addresses that work are not in it."""
        return MappingProxyType({**self._refusals, **self._links.failures})

    def describe_failures(self) -> str:
        """The last failure of each address in one line; empty if there is none."""
        return "; ".join(self.last_failures.values())


def _is_refused(info: TopicInfo | None) -> bool:
    """Whether a broker has said of the topic what waiting does not help against."""
    return info is not None and not info.partitions and not _may_recover(info)


def _may_recover(info: TopicInfo) -> bool:
    return info.error_code == 0 or for_code(info.error_code).retriable
