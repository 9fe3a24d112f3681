"""Transactional producers and consumers, by both generations of the protocol; tests/kafka has a real Kafka."""

from __future__ import annotations

import itertools

import pytest

from pyclient import Consumer, ErrorAction, TopicPartition, errors
from tests.producer.transactional_clients import (
    PARTITIONS,
    PATIENCE,
    Transactional,
    committed_offset,
    make,
    release,
    values_of,
)

__all__ = ["make", "release"]

_numbers = itertools.count()


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


def test_only_committed_transactions_are_read(make: Transactional, topic: str) -> None:
    producer = make()
    for number in range(3):
        with producer.transaction():
            for partition in range(PARTITIONS):
                producer.send(topic, b"%d in %d" % (number, partition), partition=partition)
            producer.send_many(topic, [b"%d of many" % number] * 100)
    with pytest.raises(ValueError, match="no more"), producer.transaction():
        producer.send(topic, b"aborted").result(PATIENCE)
        producer.send(topic, b"never sent")
        raise ValueError("no more")
    with producer.transaction():
        last = producer.send(topic, b"last", partition=0)
    assert last.result(0).offset >= 0
    committed = values_of(make.servers, topic, "read_committed")
    expected = [b"%d in %d" % (number, partition) for number in range(3) for partition in range(PARTITIONS)]
    expected += [b"%d of many" % number for number in range(3)] * 100
    assert sorted(committed) == sorted([*expected, b"last"])
    assert b"aborted" in values_of(make.servers, topic, "read_uncommitted")


def test_offsets_are_committed_with_the_records_or_not_at_all(make: Transactional, topic: str, group: str) -> None:
    producer = make()
    place = TopicPartition(topic, 1)
    with producer.transaction():
        producer.send(topic, b"in", partition=1)
    options = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(topic, bootstrap_servers=make.servers, config=options) as consumer:
        while not consumer.poll(1.0):
            pass
        member = consumer.group_metadata()
        assert (member.group_id, member.generation_id > 0, bool(member.member_id)) == (group, True, True)
        producer.begin_transaction()
        producer.send(topic, b"out", partition=2)
        producer.send_offsets_to_transaction({place: 1}, member)
        producer.abort_transaction()
        assert committed_offset(make.servers, group, place) is None
        with producer.transaction():
            producer.send_offsets_to_transaction({place: 1}, member)
        assert committed_offset(make.servers, group, place) == 1
        producer.begin_transaction()
        with pytest.raises(errors.CommitFailed, match="given its partitions away") as refused:
            producer.send_offsets_to_transaction({place: 2}, member._replace(generation_id=member.generation_id + 7))
        assert refused.value.action is ErrorAction.ABORT
        with pytest.raises(errors.CommitFailed):
            producer.commit_transaction()
        producer.abort_transaction()
    assert committed_offset(make.servers, group, place) == 1


def test_newer_producer_with_the_same_id_shuts_out_the_older(make: Transactional, topic: str) -> None:
    old = make()
    old.begin_transaction()
    old.send(topic, b"of the old one", partition=0).result(PATIENCE)
    new = make()
    old.send(topic, b"too late", partition=0)
    with pytest.raises(errors.KafkaError):
        old.commit_transaction()
    with pytest.raises(errors.ProducerFenced) as fenced:
        old.abort_transaction()
    assert fenced.value.action is ErrorAction.RESTART
    with pytest.raises(errors.ProducerFenced):
        old.send(topic, b"never")
    with new.transaction():
        new.send(topic, b"of the new one", partition=0)
    assert values_of(make.servers, topic, "read_committed") == [b"of the new one"]


def test_epochs_rise_as_the_generation_of_the_protocol_demands(make: Transactional, topic: str) -> None:
    producer = make()
    epochs = []
    for _ in range(3):
        with producer.transaction():
            producer.send(topic, b"x", partition=0)
        epochs.append(make.epoch_of(producer))
    per_transaction = make.version >= "4"
    assert [each - epochs[0] for each in epochs] == ([0, 1, 2] if per_transaction else [0, 0, 0])


def test_producer_that_closes_aborts_its_transaction(make: Transactional, topic: str) -> None:
    producer = make()
    producer.begin_transaction()
    producer.send(topic, b"open", partition=0).result(PATIENCE)
    producer.close(PATIENCE)
    with make().transaction() as producer:
        producer.send(topic, b"next", partition=0)
    assert values_of(make.servers, topic, "read_committed") == [b"next"]
