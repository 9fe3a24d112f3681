"""A consumer without a group keeps its positions while metadata is temporarily incomplete."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import PATIENCE, ConsumerFactory, EventLog, consumers, poll_until, read, values
from tests.consumer.parts import updater_of

__all__ = ["consumers"]

NewTopic = Callable[..., str]
Produce = Callable[..., None]


def refreshes(consumer: Any, count: int) -> Callable[[], bool]:
    """Return a condition: so many metadata answers came since."""
    updater = updater_of(consumer)
    wanted = updater.generation + count
    return lambda: updater.generation >= wanted


PASSING = [errors.UnknownTopicOrPartition, errors.LeaderNotAvailable, errors.TopicAuthorizationFailed]


def poll_through(consumer: Any, condition: Callable[[], bool]) -> list[Any]:
    """Poll until the condition holds, and ignore what polls raise meanwhile; return the records."""
    return read_through(consumer, lambda records: condition())


def read_through(consumer: Any, enough: Callable[[list[Any]], bool]) -> list[Any]:
    """Poll until the records so far are enough, and ignore what polls raise meanwhile; return them."""
    records: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while not enough(records):
        assert time.monotonic() < deadline, consumer.health()
        with contextlib.suppress(errors.TopicAuthorizationFailed):
            records += consumer.poll(0.02)
    return records


@pytest.mark.parametrize(("pattern", "reset"), [(False, "latest"), (True, "earliest")], ids=["topics", "pattern"])
@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.__name__)
def test_records_around_a_transient_topic_error_come_once(
    error: type[errors.BrokerError],
    pattern: bool,
    reset: str,
    consumers: ConsumerFactory,
    cluster: EmbeddedCluster,
    new_topic: NewTopic,
    produce: Produce,
) -> None:
    topic = new_topic(2)
    consumer = consumers(auto_offset_reset=reset, metadata_max_age_ms=50, client_id="passing")
    changes = EventLog()
    consumer.subscribe(re.compile(topic) if pattern else topic, listener=changes)
    poll_until([consumer], lambda: len(consumer.assignment()) == 2)
    for partition in range(2):
        consumer.position((topic, partition))
    produce(topic, b"1", partition=0)
    produce(topic, b"2", partition=1)
    seen = sorted(values(read(consumer, 2)))
    about = None if pattern else topic
    with cluster.faults.fail("Metadata", error, times=None, topic=about, client="passing"):  # the producer is shared
        seen += values(poll_through(consumer, refreshes(consumer, 2)))
        produce(topic, b"3", partition=0)
    produce(topic, b"4", partition=1)
    missing = 4 - len(seen)  # an error may still be raised by the polls that read them
    seen += sorted(values(read_through(consumer, lambda records: len(records) >= missing)))
    seen += values(poll_through(consumer, refreshes(consumer, 2)))
    assert seen == [b"1", b"2", b"3", b"4"]
    assert changes.lines == ["+0 1"]
