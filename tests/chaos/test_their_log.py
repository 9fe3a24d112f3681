"""librdkafka's own faults are recognised in its log; the checkers do not report them as faults of the broker."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import pytest

from pyclient import Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos.checkers import skipping_polls
from tests.chaos.history import COMMITTED, History, Place, PositionReset, Read, Value
from tests.chaos.their_log import ConsumerLog
from tests.chaos.their_wide_workload import TheirMember
from tests.chaos.workload import Notes
from tests.waiting import until

TOPIC, PLACE, COUNT = "busy", Place("busy", 0), 20


def read(poll: int, offset: int, at: float) -> Read:
    return Read("theirs", poll, PLACE, offset, Value("p1", offset), PLACE, COMMITTED, at=at)


class TheirReading:
    """A consumer of confluent-kafka with one partition, whose reads and log are noted."""

    def __init__(self, servers: str) -> None:
        self.history = History()
        self._polls = 0
        self._lines: list[str] = []
        log = ConsumerLog("theirs", self.history.add).options()
        log["logger"].addFilter(lambda line: self._lines.append(line.getMessage()) is None)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **log,
            }
        )
        self._partition = confluent_kafka.TopicPartition(TOPIC, 0)
        self._consumer.assign([self._partition])

    def poll(self) -> None:
        self._polls += 1
        message = self._consumer.poll(0.05)
        if message is not None:
            assert message.error() is None
            self.history.add(read(self._polls, message.offset(), time.monotonic()))

    def offsets(self) -> list[int]:
        """Poll, and return the offsets of all records so far."""
        self.poll()
        return [read.offset for read in self.history.reads]

    def queries(self) -> int:
        """Poll, and return how many requests for the first offset the consumer has sent by its log."""
        self.poll()
        return sum(" ListOffsetsRequest " in line for line in self._lines)

    def has_logged_a_reset(self) -> bool:
        """Poll, and return True if the consumer has logged that it sets its position to the beginning."""
        self.poll()
        return self.history.position_resets != []

    def pause_and_resume(self) -> None:
        self._consumer.pause([self._partition])
        self._consumer.resume([self._partition])

    def __enter__(self) -> TheirReading:
        return self

    def __exit__(self, *_error: Any) -> None:
        self._consumer.close()


def test_librdkafka_goes_back_to_the_beginning_by_itself() -> None:
    """It is paused and resumed while it asks for its first offset, and asks again when it already reads."""
    with EmbeddedCluster() as cluster:
        with Producer(cluster.bootstrap_servers) as producer:
            for number in range(COUNT):
                producer.send(TOPIC, b"%d" % number, partition=0)
        first = cluster.faults.hold("ListOffsets")
        with TheirReading(cluster.bootstrap_servers) as reading:
            first.wait()
            again = cluster.faults.hold("ListOffsets", skip=1)
            reading.pause_and_resume()
            until(lambda: reading.queries() == 2)  # the answer to the first one is outdated
            first.release()
            until(lambda: reading.offsets() == [*range(COUNT)])
            until(reading.has_logged_a_reset)
            again.wait()
            reading.pause_and_resume()
            again.release()
            until(lambda: reading.offsets() == [*range(COUNT), *range(COUNT)])
            history = reading.history
    assert list(skipping_polls(history)) == []
    history.position_resets.clear()
    assert list(skipping_polls(history)) == ["busy-0: theirs read 0 after 19"]


@pytest.mark.parametrize(
    ("consumer", "at", "offset"),
    [("theirs", 9.0, 0), ("theirs", 2.0, 1), ("ours", 2.0, 0)],
    ids=["logged later", "not to the beginning", "another consumer"],
)
def test_going_back_without_a_logged_reset_is_a_violation(consumer: str, at: float, offset: int) -> None:
    history = History().add(*(read(number, number, number) for number in range(4)), read(4, offset, 4.0))
    history.add(PositionReset(consumer, PLACE, at))
    assert list(skipping_polls(history)) == [f"busy-0: theirs read {offset} after 3"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_member_of_librdkafka_that_is_stuck_is_replaced(protocol: str) -> None:
    """As a coordinator that has moved the broker answers OffsetFetch without partitions."""
    notes, group = Notes(), "readers"
    with EmbeddedCluster() as cluster:
        with Producer(cluster.bootstrap_servers) as producer:
            for number in range(COUNT):
                producer.send(TOPIC, b"%d" % number, partition=0)
        refused = cluster.faults.fail("OffsetFetch", errors.NotCoordinator, group=group)
        member = TheirMember("theirs", notes, cluster.bootstrap_servers, TOPIC, group, protocol)
        member.start()
        try:
            until(lambda: len(notes.history.reads) >= COUNT)
        finally:
            member.stop()
            member.join(60)
        assert refused.hits() == 1
    assert notes.failures == []
    assert [each.consumer for each in notes.history.stuck_members] == ["theirs"]
    assert [each.offset for each in notes.history.reads] == [*range(COUNT)]
