"""Finding offsets in logs: by time, or at their ends, one request to each leader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
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
"""An offset (-1: there is none), or why it was not found."""

_CONSUMER: Final = -1


class OffsetFinder:
    """ListOffsets, once or until it works."""

    def __init__(self, cluster: ClusterClient, config: ConsumerConfig, *, clock: Clock, rng: Rng) -> None:
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self._rng = rng
        self._backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)

    async def once(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Found]:
        """What one round of requests finds for each partition's timestamp (epoch ms, -1 latest, -2 earliest)."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        found: dict[TopicPartition, Found] = {}
        for partition, timestamp in wanted.items():
            leader = self._cluster.metadata.leader(*partition)
            if leader < 0:
                found[partition] = LeaderNotAvailable(f"{partition} has no leader that is known")
            else:
                by_leader.setdefault(leader, {})[partition] = timestamp
        answers = await asyncio.gather(*(self._ask(leader, mine) for leader, mine in by_leader.items()))
        for answer in answers:
            found.update(answer)
        if any(isinstance(result, KafkaError) and result.retriable for result in found.values()):
            self._cluster.request_refresh()
        return found

    async def all(
        self, wanted: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Every offset, retried until `timeout` seconds are over; raises what cannot be retried, or `KafkaTimeout`."""
        done: dict[TopicPartition, OffsetAndTimestamp] = {}
        left, last, attempt = dict(wanted), None, 0
        deadline = self._clock.monotonic() + timeout
        await self._know(wanted, timeout)
        while left:
            for partition, result in (await self.once(left)).items():
                if isinstance(result, OffsetAndTimestamp):
                    done[partition] = result
                    del left[partition]
                elif result.retriable:
                    last = result
                else:
                    raise result
            if left:
                pause = self._backoff.delay(attempt, self._rng)
                attempt += 1
                if self._clock.monotonic() + pause >= deadline:
                    names = ", ".join(map(str, list(left)[:5]))
                    raise KafkaTimeout(f"offsets of {names}: not found within {timeout:g} s: {last}") from last
                await asyncio.sleep(pause)
        return {partition: done[partition] for partition in wanted}

    async def _know(self, partitions: Iterable[TopicPartition], timeout: float) -> None:
        """Waits for the topics' metadata; `UnknownTopicOrPartition` for a number a topic does not have."""
        for topic, numbers in split_by_topic(partitions).items():
            count = len((await self._cluster.topic_partitions(topic, timeout)).partitions)
            for number in numbers:
                if not 0 <= number < count:
                    raise UnknownTopicOrPartition(f"topic {topic!r} has {count} partitions and no number {number}")

    async def _ask(self, leader: int, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Found]:
        try:
            response = await self._cluster.request(self._request(wanted), node_id=leader)
            return _read(leader, wanted, response)
        except KafkaError as error:
            return dict.fromkeys(wanted, error)

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
        odd = ", ".join(map(str, sorted(found.keys() ^ wanted.keys())[:5]))
        raise MalformedMessage(f"node {leader}: ListOffsets answered about other partitions than it was asked: {odd}")
    return found
