"""The choice of partitions in both APIs, against the embedded broker."""

from __future__ import annotations

import itertools
import random

import pytest

from pyclient import Producer, errors
from pyclient.records import partition_for_key
from tests.patience import retry_until_raised
from tests.producer.producer_clients import begin


def test_keys_choose_the_partition_of_every_kafka_client(make, topic, log):
    client = make()
    keys = [b"key-%d" % number for number in range(100)]
    for key in keys:
        client.send(topic, key, key=key)
    client.flush()
    placed = {record.key: partition for partition, records in log().items() for record in records}
    assert placed == {key: partition_for_key(key, 3) for key in keys}


def test_keyless_records_stay_together_and_reach_every_partition(make, topic, log):
    client = make(batch_size=1000)
    for number in range(12_000):  # some 200 batches: chance alone leaves no partition with less than a tenth of them
        client.send(topic, b"%06d" % number)
    client.flush()
    records = log()
    assert sum(map(len, records.values())) == 12_000
    assert min(map(len, records.values())) > 1200
    steps = [int(b.value) - int(a.value) for part in records.values() for a, b in itertools.pairwise(part)]
    assert len(steps) == 11_997 and steps.count(1) > 10_800


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_keyless_records_may_move_to_a_partition_with_a_full_batch(make, topic, log, linger_ms):
    """Others have begun it, with keys or the partition's number; it is closed, and the record begins the next one."""
    client, rng = make(batch_size=1000, linger_ms=linger_ms), random.Random(5)
    for number in range(400):
        value = b"%06d" % number + bytes(rng.randrange(100, 700))
        client.send(topic, value, **rng.choice([{}, {"key": b"%d" % number}, {"partition": rng.randrange(3)}]))
    client.flush()
    placed = [[record.value[:6] for record in records] for records in log().values()]
    assert sorted(itertools.chain(*placed)) == [b"%06d" % number for number in range(400)]
    assert all(values == sorted(values) for values in placed)


def test_keys_may_be_ignored(make, topic, log):
    client = make(partitioner_ignore_keys=True, linger_ms=50, batch_size=1000)  # a hundred batches, each anywhere
    for _ in range(50):
        client.send(topic, b"", key=b"always the same")
    client.flush()
    for _ in range(3000):
        client.send(topic, b"0123456789", key=b"always the same")
    client.flush()
    assert sum(bool(records) for records in log().values()) > 1


def test_custom_partitioner_chooses_the_partition(make, topic, log):
    asked = []

    def partitioner(name, key, count):
        asked.append((name, key, count))
        return len(key) % count

    client = make(partitioner=partitioner)
    for key in (b"", b"a", b"bb", b"ccc"):
        client.send(topic, b"", key=key)
    client.flush()
    assert {p: [r.key for r in records] for p, records in log().items()} == {0: [b"", b"ccc"], 1: [b"a"], 2: [b"bb"]}
    assert asked[0] == (topic, b"", 3)


@pytest.mark.parametrize("chosen", [99, -1, "1", 1.0, None, True])
def test_partitioner_with_an_invalid_result_is_named(make, topic, chosen):
    def mine(name, key, count):
        return chosen

    with pytest.raises(errors.PartitionerError, match=rf"mine.* chose {chosen!r} for topic '{topic}', which has 3"):
        make(partitioner=mine).send(topic, b"")


def test_a_partitioner_that_raises_is_named_with_what_it_raised(make, topic, log):
    def mine(name, key, count):
        raise ZeroDivisionError("oh")

    client = make(partitioner=mine)
    with pytest.raises(errors.PartitionerError, match=rf"mine.* failed for topic '{topic}': ZeroDivision") as caught:
        client.send(topic, b"")
    assert isinstance(caught.value, ValueError) and isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(errors.PartitionerError, match=r"mine.* failed for topic"):
        client.send_many(topic, [b"a", b"b"])
    client.send(topic, b"x", partition=1)  # the partitioner is not asked
    client.flush()
    assert [record.value for record in log()[1]] == [b"x"]


def test_a_partitioner_may_choose_with_any_kind_of_whole_number(make, topic):
    class Number:
        def __index__(self):
            return 2

    client = make(partitioner=lambda name, key, count: Number())
    assert client.result(client.send(topic, b"")).partition == 2


def test_a_partition_may_be_any_kind_of_whole_number(make, topic):
    class Number:
        def __index__(self):
            return 2

    client = make()
    for _ in range(2):  # in a new batch, and in one that is open
        assert client.result(client.send(topic, b"x", partition=Number())).partition == 2
    for wrong in ("0", 1.0, -1, True, 2**31, 2**70):
        with pytest.raises(ValueError, match="a partition is a number from 0"):
            client.send(topic, b"x", partition=wrong)


def test_invalid_partition_of_a_topic_in_use_opens_no_batch(make, topic):
    client = make(linger_ms=0, max_block_ms=2000)
    begin(client, topic, partition=2)
    for wrong in (-1, True, "2", 2.0):
        with pytest.raises(ValueError, match="a partition is a number from 0"):
            client.result(client.send(topic, b"x", partition=wrong))
    retry_until_raised(lambda: client.result(client.send(topic, b"x", partition=3)), errors.UnknownTopicOrPartition)
    assert client.result(client.send(topic, b"second", partition=2)).offset == 1


def test_unknown_partition_is_refused(make, topic):
    client = make(max_block_ms=2000)
    error = retry_until_raised(lambda: client.send(topic, b"", partition=3), errors.UnknownTopicOrPartition)
    assert f"no partition 3 in topic '{topic}': it has 3" in str(error)
    for wrong in (-1, "0", 1.0, True):
        with pytest.raises((ValueError, errors.SerializationError), match=r"partition|written"):
            client.send(topic, b"", partition=wrong)
    begin(client, topic, partition=2)
    assert client.result(client.send(topic, b"", partition=2)).partition == 2


def test_partitions_for_returns_the_numbers(make, topic):
    assert make().partitions_for(topic) == [0, 1, 2]


def test_keyless_records_one_by_one_move_on_to_other_partitions(cluster, topic, log):
    with Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=1000) as producer:
        for number in range(60):
            producer.send(topic, b"%2d" % number * 50).result(60)
    found = log()
    assert sum(map(len, found.values())) == 60
    assert sum(bool(records) for records in found.values()) > 1
    for records in found.values():
        values = [record.value for record in records]
        assert values == sorted(values)
