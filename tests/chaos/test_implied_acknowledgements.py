"""Records that librdkafka takes for written are recognised; other lost ones are violations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos.checkers import lost_by_librdkafka, lost_writes
from tests.chaos.history import COMMITTED, IDEMPOTENT, OK, PLAIN, Batch, History, Place, Read, Send, Value
from tests.chaos.logs import batches_of
from tests.chaos.pipelined import TheirPipelined
from tests.chaos.workload import Notes, OurReader
from tests.waiting import until

A = Place("a", 0)


def test_librdkafka_takes_a_batch_for_written_that_no_broker_has(tmp_path: Path) -> None:
    """The first batch of a partition is refused for now, and the second one, on its way, is written: the broker does
    not know the producer there, and takes any first sequence number, as Kafka does.
    """
    notes, topic = Notes(), "busy"
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, 2)])
        producer = TheirPipelined(cluster.bootstrap_servers, notes, topic)
        held = cluster.faults.hold("Produce", topic=topic, partition=1)
        cluster.faults.fail("Produce", errors.NotEnoughReplicas, topic=topic, partition=0)
        producer.send(1)
        held.wait()  # what comes later on its connection waits, too
        producer.send(0)
        producer.send(0)
        until(lambda: producer.unanswered() == 3)
        held.release()
        producer.flush()
        OurReader("drain", notes, cluster.bootstrap_servers, {topic: 2}, COMMITTED).drain(60)
        node = cluster.brokers[0]
        directory = Path(node.data_dir)
    history = notes.history.add(*batches_of(directory, node.id, [topic]))
    assert [(str(send.value), send.offset) for send in sorted(history.sends, key=lambda each: each.value.number)] == [
        ("theirs/0", 0),
        ("theirs/1", None),
        ("theirs/2", 0),
    ]
    assert lost_by_librdkafka(history) == ["busy-0: theirs/1 was acknowledged without an answer"]
    assert [*lost_writes(history)] == []


def test_our_producer_has_one_batch_on_its_way_until_the_broker_knows_it() -> None:
    """So the next batch is not written before a first one that is refused for now."""
    topic = "busy"
    with EmbeddedCluster() as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, 2)])
        options = {"linger_ms": 0, "batch_size": 1, "max_connections_per_broker": 1}
        with Producer(cluster.bootstrap_servers, **options) as producer:
            held = cluster.faults.hold("Produce", topic=topic, partition=1)
            refused = cluster.faults.fail("Produce", errors.NotEnoughReplicas, topic=topic, partition=0)
            sent = [producer.send(topic, b"0", partition=1)]
            held.wait()  # what comes later on its connection waits, too
            sent += [producer.send(topic, value, partition=0) for value in (b"1", b"2", b"3")]
            until(lambda: producer.metrics()["requests_in_flight"] == 2)
            held.release()
            offsets = [each.result(60).offset for each in sent]
            assert refused.hits() == 1
        assert offsets == [0, 0, 1, 2]
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found: dict[int, bytes | None] = {}
            while len(found) < 3:
                found |= {each.offset: each.value for each in consumer.poll(60)}
    assert found == {0: b"1", 1: b"2", 2: b"3"}


@pytest.mark.parametrize(
    "planted",
    [
        {"offset": 5},
        {"kind": PLAIN},
        {"value": Value("theirs", 9)},
        {"value": Value("others", 1)},
    ],
    ids=["at an offset", "not idempotent", "after what is there", "another producer"],
)
def test_other_lost_records_are_violations(planted: dict[str, Any]) -> None:
    there = Send(Value("theirs", 2), A, IDEMPOTENT, OK, 0)
    history = History().add(there, replace(there, **{"value": Value("theirs", 1), "offset": None} | planted))
    history.add(Read("drain", 1, A, 0, there.value, A, COMMITTED))
    history.add(Batch(1, A, 0, 0, 7, producer_id=1000, producer_epoch=0, base_sequence=1))
    assert lost_by_librdkafka(history) == []
    assert len([*lost_writes(history)]) == 1


@pytest.mark.parametrize(
    ("epoch", "sequence"), [(0, 0), (1, 1)], ids=["nothing came before it", "the epoch is not the first one"]
)
def test_record_that_cannot_have_come_before_the_others_is_lost(epoch: int, sequence: int) -> None:
    there = Send(Value("theirs", 2), A, IDEMPOTENT, OK, 0)
    history = History().add(there, replace(there, value=Value("theirs", 1), offset=None))
    history.add(Read("drain", 1, A, 0, there.value, A, COMMITTED))
    history.add(Batch(1, A, 0, 0, 7, producer_id=1000, producer_epoch=epoch, base_sequence=sequence))
    assert lost_by_librdkafka(history) == []
    assert len([*lost_writes(history)]) == 1
