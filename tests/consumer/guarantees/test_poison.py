"""An unreadable batch raises with its offset, the position is known, and reading continues after a seek."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crc32c
import pytest

from pyclient import Admin, NewTopic, Producer, TopicPartition, errors, serialization
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory, consumers, read, values

__all__ = ["consumers"]

Damage = Callable[[bytearray], None]
CRC_AT, CHECKED_AT, FIRST_LENGTH_AT = 17, 21, 61


@pytest.fixture
def log(admin: Admin, producer: Producer) -> TopicPartition:
    """Return a partition with three batches: offsets 0 and 1, 2 and 3, 4."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, partitions=1)])
    for batch in ([b'"good-0"', b'"good-1"'], [b'"fine-2"', b"{not json"], [b'"good-4"']):
        producer.send_many(topic, batch)
        producer.flush()
    return TopicPartition(topic, 0)


def wrong_crc(batch: bytearray) -> None:
    batch[-2] ^= 0x20


def undecodable(batch: bytearray) -> None:
    """Change the length of the first record, and correct the checksum."""
    batch[FIRST_LENGTH_AT] ^= 0x7E
    batch[CRC_AT:CHECKED_AT] = crc32c.crc32c(bytes(batch[CHECKED_AT:])).to_bytes(4, "big")


def damage(cluster: EmbeddedCluster, log: TopicPartition, how: Damage) -> None:
    """Change the second batch in the log file, unnoticed by the broker."""
    (path,) = Path(cluster.data_dir).glob(f"{log}/*.log")
    content = bytearray(path.read_bytes())
    start = 12 + int.from_bytes(content[8:12], "big")
    end = start + 12 + int.from_bytes(content[start + 8 : start + 12], "big")
    batch = content[start:end]
    how(batch)
    content[start:end] = batch
    path.write_bytes(content)


def poll(consumer: Any) -> Any:
    records = consumer.poll(30)
    assert records, "nothing came"
    return records


@pytest.mark.parametrize("how", [wrong_crc, undecodable])
def test_unreadable_batch_names_its_offset_and_can_be_skipped_by_seek(
    consumers: ConsumerFactory, cluster: EmbeddedCluster, log: TopicPartition, how: Damage
) -> None:
    damage(cluster, log, how)
    consumer = consumers()
    consumer.assign([log])
    assert values(read(consumer, 2)) == [b'"good-0"', b'"good-1"']
    for _ in range(2):
        with pytest.raises(errors.CorruptBatch, match="CRC" if how is wrong_crc else None) as caught:
            consumer.poll(30)
        error = caught.value
        assert (error.topic, error.partition, error.offset, error.next_offset) == (*log, 2, 4)
        assert consumer.position(log) == 2
    consumer.seek(log, error.next_offset)
    assert values(read(consumer, 1)) == [b'"good-4"']


@pytest.mark.parametrize("how", [wrong_crc, undecodable])
def test_iteration_stops_before_an_unreadable_batch(
    consumers: ConsumerFactory, cluster: EmbeddedCluster, log: TopicPartition, how: Damage
) -> None:
    damage(cluster, log, how)
    consumer = consumers()
    consumer.assign([log])
    iterator = iter(consumer)
    assert [next(iterator).offset, next(iterator).offset] == [0, 1]
    with pytest.raises(errors.CorruptBatch) as caught:
        next(iterator)
    assert consumer.position(log) == caught.value.offset == 2
    consumer.seek(log, caught.value.next_offset)
    assert next(iter(consumer)).value == b'"good-4"'


def test_columns_have_the_rows_of_the_records_with_their_bytes(consumers: ConsumerFactory, log: TopicPartition) -> None:
    consumer = consumers(value_deserializer=serialization.json, on_deserialization_error="skip")
    consumer.assign([log])
    seen: list[bytes] = []
    while len(seen) < 4:
        records = poll(consumer)
        column = records.to_arrow().column("value").to_pylist()
        assert [json.loads(value) for value in column] == values(records)
        assert {partition: len(mine) for partition, mine in records.by_partition().items()} == {log: len(records)}
        seen += column
    assert seen == [b'"good-0"', b'"good-1"', b'"fine-2"', b'"good-4"']


def test_no_record_is_poison_without_a_deserializer(consumers: ConsumerFactory, log: TopicPartition) -> None:
    consumer = consumers()
    consumer.assign([log])
    seen: list[bytes] = []
    while len(seen) < 5:
        seen += values(poll(consumer))
    assert seen[3] == b"{not json"
