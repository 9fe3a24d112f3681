"""The position never passes a record that was neither returned nor explicitly skipped."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import Producer, errors, serialization
from tests.consumer.consumer_factory import ConsumerFactory, consumers, partitions, poll_until, read

__all__ = ["consumers"]

NewTopic = Callable[..., str]
POISON = 3
GOOD = [n for n in range(10) if n != POISON]
Step = Callable[[Any], list[Any]]


@pytest.fixture
def topic(new_topic: NewTopic, producer: Producer) -> str:
    """Return a topic: ten records in two batches, of which the fourth is not JSON; five good ones in partition 1."""
    name = new_topic(2)
    values = [b"{not json" if n == POISON else b"%d" % n for n in range(10)]
    for batch in (values[:7], values[7:]):
        producer.send_many(name, batch, partition=0)
        producer.flush()
    producer.send_many(name, [b"%d" % n for n in range(100, 105)], partition=1)
    producer.flush()
    return name


def by_poll(consumer: Any) -> list[Any]:
    return [record.value for record in consumer.poll(0.1)]


def by_poll_of_two(consumer: Any) -> list[Any]:
    return [record.value for record in consumer.poll(0.1, max_records=2)]


def by_iteration(consumer: Any) -> list[Any]:
    for record in consumer:
        return [record.value]
    return []


STEPS = [by_poll, by_poll_of_two, by_iteration]


def loop(consumer: Any, step: Step, count: int, on_error: Callable[[errors.DeserializationError], Any]) -> list[Any]:
    """Run a user's loop until it has seen `count` records; return them."""
    seen: list[Any] = []
    while len(seen) < count:
        try:
            seen += step(consumer)
        except errors.DeserializationError as error:
            on_error(error)
    return seen


@pytest.mark.parametrize("step", STEPS)
def test_loop_that_only_logs_never_commits_over_the_record(
    step: Step, consumers: ConsumerFactory, topic: str, group: str
) -> None:
    caught: list[errors.DeserializationError] = []
    consumer = consumers(topic, group_id=group, value_deserializer=serialization.json, auto_commit_interval_ms=0)
    seen = loop(consumer, step, POISON + 5, caught.append)
    assert sorted(seen) == [*range(POISON), *range(100, 105)]  # the other partition is not held up
    while len(caught) < 3:
        with pytest.raises(errors.DeserializationError) as again:
            while True:
                assert step(consumer) == []
        caught.append(again.value)
    assert {error.offset for error in caught} == {POISON}
    assert consumer.position((topic, 0)) == POISON
    consumer.commit()
    consumer.close()
    at = consumers(group_id=group).committed(partitions(topic, 0, 1))
    assert [at[topic, number].offset for number in range(2)] == [POISON, 5]


@pytest.mark.parametrize("step", STEPS)
def test_seek_to_the_errors_next_offset_skips_exactly_one(
    step: Step, consumers: ConsumerFactory, topic: str, group: str
) -> None:
    consumer = consumers(topic, group_id=group, value_deserializer=serialization.json)
    caught: list[errors.DeserializationError] = []

    def skip(error: errors.DeserializationError) -> None:
        caught.append(error)
        consumer.seek((error.topic, error.partition), error.next_offset)

    seen = loop(consumer, step, 14, skip)
    assert [value for value in seen if value < 100] == GOOD
    assert [(error.offset, error.value, error.origin) for error in caught] == [(POISON, b"{not json", "value")]
    consumer.commit()
    assert consumer.committed(partitions(topic, 0))[topic, 0].offset == 10


@pytest.mark.parametrize("step", STEPS)
def test_skip_leaves_out_counts_and_logs_the_record(
    step: Step, consumers: ConsumerFactory, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = consumers(value_deserializer=serialization.json, on_deserialization_error="skip")
    consumer.assign(partitions(topic, 0))
    assert loop(consumer, step, 9, lambda error: pytest.fail(str(error))) == GOOD
    assert consumer.metrics()["records_skipped"] == 1
    [said] = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert f"{topic}-0: skipped 1 records" in said
    assert "offset 3" in said
    assert consumer.position((topic, 0)) == 10


@pytest.mark.parametrize("step", STEPS)
def test_function_that_returns_skips_and_one_that_raises_is_called_again(
    step: Step, consumers: ConsumerFactory, topic: str, new_topic: NewTopic, producer: Producer
) -> None:
    dead_letters, failures = new_topic(), [ConnectionError("once"), ConnectionError("twice")]

    def send(error: errors.DeserializationError) -> None:
        if failures:
            raise failures.pop(0)
        producer.send(dead_letters, error.value, key=error.key, headers=error.headers).result(30)

    async def send_in_time(error: errors.DeserializationError) -> None:
        send(error)

    decide = send if consumers.name == "sync" else send_in_time
    consumer = consumers(value_deserializer=serialization.json, on_deserialization_error=decide)
    consumer.assign(partitions(topic, 0))
    seen: list[Any] = []
    raised: list[str] = []
    while len(seen) < 9:
        try:
            seen += step(consumer)
        except ConnectionError as error:
            raised.append(str(error))
            assert consumer.position((topic, 0)) == POISON
    assert seen == GOOD
    assert set(raised) <= {"once", "twice"}
    assert failures == []
    letters = consumers()
    letters.assign(partitions(dead_letters, 0))
    assert [record.value for record in read(letters, 1)] == [b"{not json"]


def test_poll_with_all_records_skipped_keeps_waiting(
    consumers: ConsumerFactory, new_topic: NewTopic, producer: Producer
) -> None:
    name = new_topic()
    producer.send_many(name, [b"{", b"{", b"7"], partition=0)
    producer.flush()
    consumer = consumers(value_deserializer=serialization.json, on_deserialization_error="skip")
    consumer.assign(partitions(name, 0))
    assert [record.value for record in consumer.poll(40, max_records=1)] == [7]


def test_on_deserialization_error_may_not_use_the_consumer(consumers: ConsumerFactory, topic: str) -> None:
    caught: list[BaseException] = []

    def decide(error: errors.DeserializationError) -> None:
        try:
            consumer.raw.pause()
        except errors.ConcurrentUse as refusal:
            caught.append(refusal)

    consumer = consumers(value_deserializer=serialization.json, on_deserialization_error=decide)
    consumer.assign(partitions(topic, 0))
    read(consumer, 9)
    assert "on_deserialization_error" in str(caught[0])


def test_invalid_on_deserialization_error_is_refused(consumers: ConsumerFactory) -> None:
    with pytest.raises(errors.ConfigError, match=r"on_deserialization_error='ignore'.*'raise', 'skip'"):
        consumers(on_deserialization_error="ignore")


def test_poison_partitions_block_neither_each_other_nor_a_third(
    consumers: ConsumerFactory, new_topic: NewTopic, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    name = new_topic(3)
    for partition in range(3):
        values = [json.dumps([partition, n]).encode() for n in range(40)]
        if partition < 2:
            values[0] = b"{"
        producer.send_many(name, values, partition=partition)
    producer.flush()
    consumer = consumers(value_deserializer=serialization.json)
    consumer.assign(partitions(name, 0, 1, 2))
    seen: list[Any] = []
    stuck: set[int] = set()

    def step() -> bool:
        try:
            seen.extend(record.value for record in consumer.poll(0.1, max_records=1))
        except errors.DeserializationError as error:
            stuck.add(error.partition)
        return len(seen) == 40 and stuck == {0, 1}

    poll_until([], step)
    assert seen == [[2, n] for n in range(40)]
