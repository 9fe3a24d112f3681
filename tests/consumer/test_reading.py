"""Reading assigned partitions, with both APIs, against the embedded broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyclient import Producer, errors, serialization
from pyclient.types import OffsetAndTimestamp, TopicPartition
from tests.consumer.consumer_factory import ConsumerFactory, partitions, poll_until, read, values

NewTopic = Callable[..., str]
Produce = Callable[..., None]


def numbers(*range_: int) -> list[bytes]:
    return [b"%d" % number for number in range(*range_)]


def test_every_record_comes_once_in_the_order_of_its_partition(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        produce(topic, *numbers(partition * 100, partition * 100 + 50), partition=partition)
    consumer = consumers()
    consumer.assign(partitions(topic, 0, 1, 2))
    records = read(consumer, 150)
    by_partition: dict[int, list[bytes]] = {}
    for record in records:
        by_partition.setdefault(record.partition, []).append(record.value)
    assert by_partition == {p: numbers(p * 100, p * 100 + 50) for p in range(3)}
    assert consumer.poll(0.05) == []


def test_poll_returns_at_most_max_records_and_positions_follow(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, *numbers(10))
    consumer = consumers(max_poll_records=4)
    (partition,) = partitions(topic, 0)
    consumer.assign([partition])
    assert values(consumer.poll(30)) == numbers(4)
    assert consumer.position(partition) == 4
    assert values(consumer.poll(30, max_records=1)) == [b"4"]
    assert consumer.position(partition) == 5
    assert values(consumer.poll(30, max_records=100)) == numbers(5, 10)
    with pytest.raises(ValueError, match="max_records=0"):
        consumer.poll(max_records=0)


def test_poll_waits_for_a_record_that_comes_later(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    consumer = consumers()
    consumer.assign(partitions(topic, 0))
    assert len(consumer.poll(0.05)) == 0
    produce(topic, b"late")
    assert values(consumer.poll(30)) == [b"late"]


def test_record_has_everything_it_was_sent_with(
    consumers: ConsumerFactory, new_topic: NewTopic, producer: Producer
) -> None:
    topic = new_topic()
    producer.send(topic, None, key=b"k", headers={"a": b"1", "b": None}, timestamp_ms=1_700_000_000_123).result(30)
    consumer = consumers()
    consumer.assign(partitions(topic, 0))
    (record,) = consumer.poll(30)
    assert (record.topic, record.partition, record.offset) == (topic, 0, 0)
    assert (record.key, record.value, record.headers) == (b"k", None, (("a", b"1"), ("b", None)))
    assert (record.timestamp_ms, record.timestamp_type) == (1_700_000_000_123, 0)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_read_the_same(consumers: ConsumerFactory, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    with Producer(consumers.bootstrap_servers, compression_type=codec, linger_ms=20) as producer:
        for value in numbers(100):
            producer.send(topic, value)
    consumer = consumers()
    consumer.assign(partitions(topic, 0))
    assert values(read(consumer, 100)) == numbers(100)


def test_iteration_continues_where_it_was_left(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, *numbers(10))
    consumer = consumers()
    (partition,) = partitions(topic, 0)
    consumer.assign([partition])
    seen = []
    for record in consumer:
        seen.append(record.value)
        assert consumer.position(partition) == record.offset + 1
        if len(seen) == 3:
            break
    assert values(consumer.poll(30, max_records=2)) == numbers(3, 5)
    for record in consumer:
        seen.append(record.value)
        if record.value == b"9":
            break
    assert seen == numbers(3) + numbers(5, 10)


def test_seek_inside_a_loop_takes_effect_at_once(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, *numbers(6))
    consumer = consumers()
    (partition,) = partitions(topic, 0)
    consumer.assign([partition])
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if seen == [0, 1]:
            consumer.seek(partition, offset=4)
        if record.offset == 5:
            break
    assert seen == [0, 1, 4, 5]


def test_seeking_reads_again_or_skips(consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(2)
    produce(topic, *numbers(5))
    produce(topic, *numbers(5, 8), partition=1)
    consumer = consumers()
    first, second = partitions(topic, 0, 1)
    consumer.assign([first, second])
    read(consumer, 8)
    consumer.seek((topic, 0), 3)
    assert values(read(consumer, 2)) == [b"3", b"4"]
    consumer.seek_to_beginning(second)
    assert values(read(consumer, 3)) == numbers(5, 8)
    consumer.seek_to_beginning()
    assert len(read(consumer, 8)) == 8
    consumer.seek_to_beginning()
    consumer.seek_to_end(second)
    assert consumer.position(second) == 3
    assert values(read(consumer, 5)) == numbers(5)
    with pytest.raises(ValueError, match="-1"):
        consumer.seek(first, -1)
    with pytest.raises(errors.NotAssigned, match="-7 is not assigned"):
        consumer.seek((topic, 7), 0)


def test_latest_starts_after_existing_records(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, b"old")
    consumer = consumers(auto_offset_reset="latest")
    consumer.assign(partitions(topic, 0))
    assert consumer.position((topic, 0)) == 1
    produce(topic, b"new")
    assert values(consumer.poll(30)) == [b"new"]


def test_by_duration_starts_that_long_ago(consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(2)
    produce(topic, b"old", timestamp_ms=1_000)
    produce(topic, b"young")
    produce(topic, b"only old", partition=1, timestamp_ms=1_000)
    consumer = consumers(auto_offset_reset="by_duration:PT1H")
    consumer.assign(partitions(topic, 0, 1))
    assert (consumer.position((topic, 0)), consumer.position((topic, 1))) == (1, 1)
    assert values(consumer.poll(30)) == [b"young"]


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_offset_out_of_the_log_applies_the_policy(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, policy: str
) -> None:
    topic = new_topic()
    produce(topic, *numbers(3))
    consumer = consumers(auto_offset_reset=policy)
    consumer.assign(partitions(topic, 0))
    consumer.seek((topic, 0), 100)
    if policy == "none":
        with pytest.raises(errors.OffsetOutOfRange, match="offset 100"):
            consumer.poll(30)
        consumer.seek((topic, 0), 2)
        assert values(consumer.poll(30)) == [b"2"]
    elif policy == "earliest":
        assert values(consumer.poll(30)) == numbers(3)
    else:
        assert poll_until([consumer], lambda: consumer.position((topic, 0)) == 3) == []


def test_pause_keeps_fetched_data_and_resume_returns_it(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, *numbers(4))
    produce(topic, b"x", partition=1)
    consumer = consumers()
    first, second = partitions(topic, 0, 1)
    consumer.assign([first, second])
    assert len(consumer.poll(30, max_records=1)) == 1
    consumer.pause(first)
    assert consumer.paused() == {first}
    rest = consumer.poll(0.5)
    assert {record.partition for record in rest} <= {1}
    consumer.resume(first)
    assert consumer.paused() == set()
    left = read(consumer, 4 - len(rest))
    assert [record.value for record in left if record.partition == 0][-3:] == numbers(1, 4)


def test_offsets_are_found_by_time_and_at_both_ends(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    for stamp in (1_000, 2_000, 3_000):
        produce(topic, b"v", timestamp_ms=stamp)
    consumer = consumers()
    first, second = partitions(topic, 0, 1)
    assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert consumer.end_offsets([first, second]) == {first: 3, second: 0}
    found = consumer.offsets_for_times({first: 1_500, second: 1_500})
    assert found[first][:2] == (1, 2_000)
    assert isinstance(found[first], OffsetAndTimestamp)
    assert found[second] is None
    assert consumer.offsets_for_times({first: 3_001}) == {first: None}
    assert consumer.partitions_for(topic) == [0, 1]
    with pytest.raises(errors.UnknownTopicOrPartition, match="no number 5"):
        consumer.end_offsets([TopicPartition(topic, 5)])


def test_lag_is_the_number_of_offsets_left_to_read(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, *numbers(10))
    consumer = consumers()
    (partition,) = partitions(topic, 0)
    consumer.assign([partition])
    assert consumer.lag() in ({partition: None}, {partition: 10})  # it fetches before it is polled
    consumer.poll(30, max_records=4)
    assert consumer.lag() == {partition: 6}


def test_lag_is_none_before_any_broker_has_answered(consumers: ConsumerFactory) -> None:
    consumer = consumers(bootstrap_servers="127.0.0.1:1")
    (partition,) = partitions("t", 0)
    consumer.assign([partition])
    assert consumer.lag() == {partition: None}


def test_assign_keeps_the_positions_of_kept_partitions(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic(2)
    produce(topic, *numbers(4))
    produce(topic, b"x", partition=1)
    consumer = consumers()
    consumer.assign(partitions(topic, 0))
    consumer.poll(30, max_records=2)
    consumer.assign(partitions(topic, 0, 1))
    assert consumer.assignment() == set(partitions(topic, 0, 1))
    assert sorted(values(read(consumer, 3))) == [b"2", b"3", b"x"]


def test_poll_ends_before_a_poison_record(consumers: ConsumerFactory, new_topic: NewTopic, producer: Producer) -> None:
    topic = new_topic()
    producer.send(topic, b'{"n":1}', key=b"k\xc3\xa9")
    producer.send(topic, b"nonsense")
    producer.flush()
    consumer = consumers(
        key_deserializer=serialization.string.deserialize, value_deserializer=serialization.json.deserialize
    )
    consumer.assign(partitions(topic, 0))
    records = read(consumer, 1)
    assert [(record.key, record.value) for record in records] == [("ké", {"n": 1})]
    for _ in range(2):
        with pytest.raises(errors.DeserializationError):
            consumer.poll(30)
        assert consumer.position((topic, 0)) == 1


def test_large_records_come_whole(consumers: ConsumerFactory, new_topic: NewTopic, producer: Producer) -> None:
    topic = new_topic(2)
    for partition in range(2):
        producer.send(topic, bytes(300_000), partition=partition)
        producer.send(topic, b"small", partition=partition)
    producer.flush()
    consumer = consumers(max_partition_fetch_bytes=1_000, fetch_max_bytes=2_000)
    consumer.assign(partitions(topic, 0, 1))
    assert sorted(len(record.value) for record in read(consumer, 4)) == [5, 5, 300_000, 300_000]


def test_several_topics_are_read_together(consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce) -> None:
    topics = [new_topic(), new_topic()]
    for topic in topics:
        produce(topic, topic.encode())
    consumer = consumers()
    consumer.assign([(topic, 0) for topic in topics])
    assert sorted(values(read(consumer, 2))) == sorted(topic.encode() for topic in topics)


def test_columns_come_straight_from_the_log(consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce) -> None:
    pytest.importorskip("pyarrow")
    topic = new_topic()
    produce(topic, *numbers(20))
    consumer = consumers(fetch_min_bytes=500, fetch_max_wait_ms=200)
    consumer.assign(partitions(topic, 0))
    rows: list[bytes] = []
    while len(rows) < 20:
        rows += consumer.poll(30).to_arrow()["value"].to_pylist()
    assert rows == numbers(20)
