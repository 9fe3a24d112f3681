"""Find offsets in logs, by time or at their ends, with one ListOffsets request to each leader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.subscription import split_by_topic
from pyclient.errors import (
    KafkaError,
    KafkaTimeout,
    LeaderNotAvailable,
    MalformedMessage,
    UnknownTopicOrPartition,
    from_code,
)
from pyclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pyclient.types import OffsetAndTimestamp, TopicPartition

Found = OffsetAndTimestamp | KafkaError
"""An offset (-1: there is none), or the error of the search."""

_CONSUMER: Final = -1
_NAMED_PARTITIONS: Final = 5


@dataclass(slots=True)
class _Search:
    """The state of a search: partitions `left` and `done`, requests in flight by leader, and the last error."""

    left: dict[TopicPartition, int]
    done: dict[TopicPartition, OffsetAndTimestamp] = field(default_factory=dict)
    asking: dict[int, Mapping[TopicPartition, int]] = field(default_factory=dict)
    last: KafkaError | None = None

    def take(self, found: Mapping[TopicPartition, Found]) -> None:
        """Add the results of a round; raise an error that cannot be retried."""
        for partition, result in found.items():
            if isinstance(result, OffsetAndTimestamp):
                self.done[partition] = result
                del self.left[partition]
            elif result.retriable:
                self.last = result
            else:
                raise result


class OffsetFinder:
    """ListOffsets, once or with retries."""

    def __init__(self, cluster: ClusterClient, config: ConsumerConfig, *, clock: Clock, rng: Rng) -> None:
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self._rng = rng
        self._backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)

    async def once(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Found]:
        """Return each partition's result of one round, by timestamp (epoch ms, -1 latest, -2 earliest)."""
        return await self._round(wanted, {})

    async def all(
        self, wanted: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return every offset, retrying for `timeout` seconds; raise a permanent error, or `KafkaTimeout`.

        The latter names the missing partitions, the nodes that have not responded, and the last error.
        """
        search, deadline = _Search(dict(wanted)), self._clock.monotonic() + timeout
        await self._wait_for_topics(wanted, deadline)
        try:
            async with asyncio.timeout(deadline - self._clock.monotonic()) as limit:
                await self._search(search)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._not_found(search, timeout) from search.last
        return {partition: search.done[partition] for partition in wanted}

    async def _search(self, search: _Search) -> None:
        attempt = 0
        while search.left:
            search.take(await self._round(search.left, search.asking))
            if search.left:
                await asyncio.sleep(self._backoff.delay(attempt, self._rng))
                attempt += 1

    async def _round(
        self, wanted: Mapping[TopicPartition, int], asking: dict[int, Mapping[TopicPartition, int]]
    ) -> dict[TopicPartition, Found]:
        """Send a request to every leader; `asking` holds those in flight."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        found: dict[TopicPartition, Found] = {}
        for partition, timestamp in wanted.items():
            leader = self._cluster.metadata.leader(*partition)
            if leader < 0:
                found[partition] = LeaderNotAvailable(f"{partition} has no known leader")
            else:
                by_leader.setdefault(leader, {})[partition] = timestamp
        answers = await asyncio.gather(*(self._ask(leader, mine, asking) for leader, mine in by_leader.items()))
        for answer in answers:
            found.update(answer)
        if any(isinstance(result, KafkaError) and result.retriable for result in found.values()):
            self._cluster.request_refresh()
        return found

    async def _wait_for_topics(self, partitions: Iterable[TopicPartition], deadline: float) -> None:
        """Wait for the topics' metadata; raise `UnknownTopicOrPartition` for a partition number that does not exist."""
        for topic, numbers in split_by_topic(partitions).items():
            left = max(0.0, deadline - self._clock.monotonic())
            count = len((await self._cluster.topic_partitions(topic, left)).partitions)
            for number in numbers:
                if not 0 <= number < count:
                    raise UnknownTopicOrPartition(f"topic {topic!r} has {count} partitions and no number {number}")

    def _not_found(self, search: _Search, timeout: float) -> KafkaTimeout:
        reasons = [
            f"{self._cluster.name_of(leader)} has not responded to ListOffsets for {_names(mine)}"
            for leader, mine in search.asking.items()
        ]
        failures, last = self._cluster.describe_failures(), str(search.last or "")
        reasons += [failures] if last in failures else [f"last failure: {last}", failures]
        why = "; ".join(filter(None, reasons))
        return KafkaTimeout(f"offsets of {_names(search.left)}: not found within {timeout:g} s: {why}")

    async def _ask(
        self,
        leader: int,
        wanted: Mapping[TopicPartition, int],
        asking: dict[int, Mapping[TopicPartition, int]],
    ) -> Mapping[TopicPartition, Found]:
        asking[leader] = wanted
        try:
            response = await self._cluster.request(self._request(wanted), node_id=leader)
            found: Mapping[TopicPartition, Found] = _read(leader, wanted, response)
        except KafkaError as error:
            found = dict.fromkeys(wanted, error)
        del asking[leader]
        return found

    def _request(self, wanted: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    self._entry(TopicPartition(topic, number), wanted[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in split_by_topic(wanted).items()
        ]
        return ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=int(self._config.read_committed),
            topics=topics,
            timeout_ms=self._config.request_timeout_ms,
        )

    def _entry(self, partition: TopicPartition, timestamp: int) -> ListOffsetsPartition:
        known = self._cluster.metadata.partition(*partition)
        epoch = known.leader_epoch if known is not None else -1
        return ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=epoch, timestamp=timestamp
        )


def _read(
    leader: int, wanted: Mapping[TopicPartition, int], response: ListOffsetsResponse
) -> dict[TopicPartition, Found]:
    found: dict[TopicPartition, Found] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                found[partition] = from_code(answer.error_code, f"finding an offset of {partition}")
            else:
                found[partition] = OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
    if found.keys() != wanted.keys():
        differing = ", ".join(map(str, sorted(found.keys() ^ wanted.keys())[:5]))
        raise MalformedMessage(f"node {leader}: ListOffsets response partitions do not match the request: {differing}")
    return found


def _names(partitions: Iterable[TopicPartition]) -> str:
    names = [str(partition) for partition in partitions]
    more = f" and {len(names) - _NAMED_PARTITIONS} more" if len(names) > _NAMED_PARTITIONS else ""
    return ", ".join(names[:_NAMED_PARTITIONS]) + more
