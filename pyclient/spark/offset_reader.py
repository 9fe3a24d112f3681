"""The requests of the driver: the partitions that a query reads, and the offsets at their ends and at times."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from pyclient.admin import Admin
from pyclient.consumer import Consumer
from pyclient.errors import (
    BrokerError,
    ClientError,
    ConnectionFailed,
    KafkaTimeout,
    UnknownTopicOrPartition,
)
from pyclient.spark.clients import admin_options, resolved
from pyclient.spark.offsets import EARLIEST, LATEST, Bound, Offsets
from pyclient.spark.reading import consumer_options
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.spark.options import SourceOptions, TopicChoice

T = TypeVar("T")
log = logging.getLogger("pyclient.spark")


class OffsetsUnknown(ClientError):
    """Offsets of a query could not be found: a time without records, or partitions that do not exist."""


class OffsetReader:
    """Finds partitions and offsets with a consumer of its own, made on first use; retries transient errors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer: Consumer[Any, Any] | None = None
        self._uncommitted: Consumer[Any, Any] | None = None
        self._admin: Admin | None = None

    def close(self) -> None:
        """Close the connections."""
        consumers = self._consumer, self._uncommitted
        self._consumer = self._uncommitted = None
        admin, self._admin = self._admin, None
        for consumer in consumers:
            if consumer is not None:
                consumer.close(timeout=0)
        if admin is not None:
            admin.close()

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that the query reads, in order."""
        choice = self._options.topics
        if choice.partitions:
            known = self._of_topics({partition.topic for partition in choice.partitions})
            missing = sorted(set(choice.partitions) - set(known))
            if missing:
                raise OffsetsUnknown(f"assign names partitions that do not exist: {', '.join(map(str, missing))}")
            return sorted(choice.partitions)
        return self._of_topics(self._topics_of(choice))

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the first offset of each partition."""
        wanted = list(partitions)
        return self._retried("the first offsets", lambda: self._client.beginning_offsets(wanted)) if wanted else {}

    def latest(self, partitions: Iterable[TopicPartition], timeout: float | None = None) -> Offsets:
        """Return the offset after the last readable record of each partition.

        With a `timeout` in seconds raise `KafkaTimeout` if they are not known by then, without trying again.
        """
        wanted = list(partitions)
        if timeout is not None:
            return self._client.end_offsets(wanted, timeout=timeout) if wanted else {}
        return self._retried("the last offsets", lambda: self._client.end_offsets(wanted)) if wanted else {}

    def ends_of_logs(self, partitions: list[TopicPartition]) -> Offsets:
        """Return the offset after the last record of each partition, in an open transaction or not."""
        if self._uncommitted is None:
            client = {**self._options.client, "isolation.level": "read_uncommitted"}
            self._uncommitted = Consumer(config=consumer_options(resolved(client)))
        ends = self._uncommitted.end_offsets
        return self._retried("the last offsets", lambda: ends(partitions))

    def at(self, bound: Bound, partitions: list[TopicPartition], *, ending: bool) -> Offsets:
        """Return the offsets where a query begins, or ends.

        Raise `OffsetsUnknown` if offsets are given for other partitions than the query reads, or if no record is as
        late as a starting time and startingOffsetsByTimestampStrategy is "error".
        """
        match bound.kind:
            case "earliest":
                return self.earliest(partitions)
            case "latest":
                return self.latest(partitions)
            case "offsets":
                return self._given(bound.values or {}, partitions)
            case "time":
                return self._at_times(dict.fromkeys(partitions, bound.time_ms), ending=ending)
        self._check_same(bound.values or {}, partitions)
        return self._at_times(bound.values or {}, ending=ending)

    def _given(self, values: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> Offsets:
        self._check_same(values, partitions)
        found = dict(values)
        for named, look_up in ((EARLIEST, self.earliest), (LATEST, self.latest)):
            found |= look_up([partition for partition, offset in values.items() if offset == named])
        return found

    def _check_same(self, values: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> None:
        odd = sorted(set(values) ^ set(partitions))
        if odd:
            raise OffsetsUnknown(
                "the offsets of a query must name exactly the partitions that it reads; these are only in one of both: "
                + ", ".join(map(str, odd))
            )

    def _at_times(self, times: Mapping[TopicPartition, int], *, ending: bool) -> Offsets:
        found = self._retried("the offsets of times", lambda: self._client.offsets_for_times(times))
        missing = sorted(partition for partition, offset in found.items() if offset is None)
        if missing and not ending and not self._options.no_match_is_latest:
            names = ", ".join(f"{partition} (from {times[partition]} ms)" for partition in missing)
            raise OffsetsUnknown(
                f"no record is that late in {names}; with startingOffsetsByTimestampStrategy=latest the query would "
                "start at the end there"
            )
        ends = self.latest(missing)
        return {partition: ends[partition] if offset is None else offset.offset for partition, offset in found.items()}

    def _topics_of(self, choice: TopicChoice) -> Iterable[str]:
        if choice.pattern is None:
            return choice.names
        pattern = re.compile(choice.pattern)
        if self._admin is None:
            self._admin = Admin(config=admin_options(self._options.client))
        admin = self._admin
        return [name for name in self._retried("the topics", admin.list_topics) if pattern.fullmatch(name)]

    def _of_topics(self, topics: Iterable[str]) -> list[TopicPartition]:
        found = []
        for topic in sorted(topics):
            numbers = self._retried(f"the partitions of topic {topic}", partial(self._of_topic, topic))
            found += [TopicPartition(topic, number) for number in sorted(numbers)]
        return found

    def _of_topic(self, topic: str) -> list[int]:
        try:
            return self._client.partitions_for(topic, timeout=self._options.poll_timeout)
        except KafkaTimeout as error:
            raise OffsetsUnknown(f"topic {topic} does not exist, or no broker answers: {error}") from error

    @property
    def _client(self) -> Consumer[Any, Any]:
        if self._consumer is None:
            self._consumer = Consumer(config=consumer_options(resolved(self._options.client)))
        return self._consumer

    def _retried(self, what: str, call: Callable[[], T]) -> T:
        for attempt in range(self._options.retries + 1):
            try:
                return call()
            except (ConnectionFailed, KafkaTimeout, BrokerError) as error:
                passes = not isinstance(error, BrokerError) or error.retriable
                if attempt == self._options.retries or not passes or isinstance(error, UnknownTopicOrPartition):
                    raise
                log.warning("finding %s: %s; trying again", what, error)
                sleep(self._options.retry_interval)
        raise AssertionError("the loop returns or raises")
