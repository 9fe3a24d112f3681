"""`send_many` with invalid or large rows, full memory and changing topics."""

from __future__ import annotations

import uuid

import pytest

from pyclient import Admin, NewTopic, errors
from pyclient.records import partition_for_key
from tests.producer.network import HOLD, PASS, PRODUCE


def test_invalid_records_between_valid_ones_end_no_batch(make, topic, log):
    client = make(batch_size=4000, linger_ms=10_000)
    values = [b"good %d" % number if number % 2 else number for number in range(100)]
    outcome = client.send_many(topic, values, partition=0)
    assert client.health()["batches_unconfirmed"] == 1
    assert sorted(outcome.failures) == list(range(0, 100, 2))
    client.flush()
    assert [record.value for record in log()[0]] == values[1::2]


def test_records_of_all_sizes_fill_batches_or_get_their_own(make, topic, log):
    client = make(batch_size=1000, max_request_size=20_000)
    values = [b"%05d" % number + b"x" * (number * 37 % 3000) for number in range(300)]
    outcome = client.send_many(topic, values, partition=1)
    client.result(outcome)
    assert outcome.offsets == list(range(300))
    assert [record.value for record in log()[1]] == values


def test_columns_larger_than_the_memory_continue_when_some_is_free(make, topic, log):
    client = make(batch_size=500, buffer_memory=1500)
    values = [b"%04d" % number for number in range(1000)]
    outcome = client.send_many(topic, values, partition=2)
    client.result(outcome)
    assert [record.value for record in log()[2]] == values


@pytest.mark.parametrize("columns", ["lists", "Arrow"])
def test_keys_choose_partitions_as_they_do_one_by_one(make, topic, log, columns):
    pa = pytest.importorskip("pyarrow")
    client = make(batch_size=700)
    keys = [None if number % 11 == 0 else b"key %d" % (number % 40) for number in range(500)]
    values = [b"%04d" % number for number in range(500)]
    arguments = (values, keys) if columns == "lists" else (pa.array(values), pa.array(keys))
    outcome = client.send_many(topic, *arguments, timestamps_ms=range(1000, 1500))
    metadata = client.result(outcome)
    expected = {partition: [] for partition in range(3)}
    for number, key in enumerate(keys):
        if key is not None:
            expected[partition_for_key(key, 3)].append((1000 + number, key, values[number]))
            assert metadata[number].partition == partition_for_key(key, 3)
            assert metadata[number].timestamp_ms == 1000 + number
    for partition, records in log().items():
        found = [(record.timestamp_ms, record.key, record.value) for record in records if record.key is not None]
        assert found == expected[partition]


@pytest.mark.parametrize("columns", ["lists", "Arrow"])
def test_rows_with_and_without_keys_keep_their_order_in_the_only_partition(make, cluster, columns):
    pa = pytest.importorskip("pyarrow")
    keys = [None if number % 3 else b"key %d" % number for number in range(200)]
    values = [b"%d" % number for number in range(200)]
    arguments = (values, keys) if columns == "lists" else (pa.array(values), pa.array(keys))
    name = f"only-{uuid.uuid4().hex[:8]}"
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
    outcome = make(batch_size=500).send_many(name, *arguments)
    outcome.to_concurrent().result(30)
    assert outcome.offsets == list(range(200))


def test_custom_partitioner_is_called_for_each_row(make, topic, log):
    client = make(partitioner=lambda topic, key, count: int(key) % count, batch_size=300)
    keys = [b"%d" % number for number in range(90)]
    outcome = client.send_many(topic, keys, keys=keys)
    client.result(outcome)
    assert outcome.partitions == [number % 3 for number in range(90)]
    assert [record.value for record in log()[1]] == keys[1::3]


def test_record_larger_than_a_request_is_refused_and_the_rest_is_sent(make, topic, log):
    pa = pytest.importorskip("pyarrow")
    client = make(batch_size=1000, max_request_size=2000)
    outcome = client.send_many(topic, pa.array([b"a", b"b" * 3000, b"c"]), partition=0)
    client.exception(outcome)
    assert {place: type(error) for place, error in outcome.failures.items()} == {1: errors.MessageTooLarge}
    assert [record.value for record in log()[0]] == [b"a", b"c"]


def test_silent_broker_does_not_block_columns_that_fit_the_memory(make, topic, network):
    client = make(batch_size=100_000, linger_ms=0)
    client.result(client.send(topic, b"first", partition=0))
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    outcome = client.send_many(topic, [b"x" * 50_000] * 300, partition=0)
    assert not outcome.done()
    network.release()
    client.result(outcome)
    assert outcome.offsets == list(range(1, 301))


@pytest.mark.parametrize("columns", ["lists", "Arrow"])
def test_rows_with_and_without_keys_keep_their_order_in_each_partition(make, topic, log, columns):
    pa = pytest.importorskip("pyarrow")
    client = make(batch_size=700)
    keys = [b"key %d" % (number % 40) if number % 3 else None for number in range(2000)]
    values = [b"%04d" % number for number in range(2000)]
    arguments = (values, keys) if columns == "lists" else (pa.array(values), pa.array(keys))
    outcome = client.send_many(topic, *arguments)
    client.result(outcome)
    found = log()
    for partition, records in found.items():
        assert [record.value for record in records] == sorted(record.value for record in records)
        assert all(partition_for_key(record.key, 3) == partition for record in records if record.key is not None)
    assert sum(len(records) for records in found.values()) == 2000
    keyless = [any(record.key is None for record in records) for records in found.values()]
    assert sum(keyless) > 1  # they went round; not necessarily to a partition that is sent more slowly than the others
    for number, (partition, offset) in enumerate(zip(outcome.partitions, outcome.offsets, strict=True)):
        assert found[partition][offset].value == values[number]


def test_invalid_row_without_a_key_is_refused_and_the_others_keep_order(make, topic, log):
    client = make(batch_size=300)
    keys = [None, b"a", None, b"b", None, b"c"] * 50
    values = [b"%03d" % number if number % 10 else number for number in range(300)]
    outcome = client.send_many(topic, values, keys)
    client.exception(outcome)
    assert sorted(outcome.failures) == list(range(0, 300, 10))
    for records in log().values():
        assert [record.value for record in records] == sorted(record.value for record in records)


def test_columns_may_be_any_iterables(make, topic, log):
    client = make()
    outcome = client.send_many(
        topic,
        (b"%d" % number for number in range(5)),
        keys=map(b"k%d".__mod__, range(5)),
        headers=iter([[("a", b"1")]] * 5),
        timestamps_ms=(1000 + number for number in range(5)),
        partition=1,
    )
    client.result(outcome)
    found = [(record.value, record.key, record.headers, record.timestamp_ms) for record in log()[1]]
    assert found == [(b"%d" % n, b"k%d" % n, (("a", b"1"),), 1000 + n) for n in range(5)]


@pytest.mark.parametrize("wrong", [5, b"one value", "text", {b"a": b"b"}])
@pytest.mark.parametrize("name", ["values", "keys", "headers"])
def test_send_many_names_an_argument_that_is_no_column(make, topic, log, name, wrong):
    client = make()
    arguments = {"values": [b"a"], name: wrong}
    with pytest.raises(TypeError, match=f"{name}=.* is not possible"):
        client.send_many(topic, **arguments)
    client.flush()
    assert not any(log().values())


def test_values_must_be_given(make, topic):
    with pytest.raises(TypeError, match="values=None is not possible"):
        make().send_many(topic, None)


def test_topic_forgotten_between_two_steps_is_fetched_again(make, topic, log):
    def forget(*_):
        with client.producer_client.lock:
            client.producer_client.sender.forget_idle(float("inf"))
        return 0

    client = make(partitioner=forget, linger_ms=0)
    outcome = client.send_many(topic, [b"%d" % number for number in range(3)], [b"key"] * 3)
    assert client.exception(outcome) is None
    assert [record.value for record in log()[0]] == [b"0", b"1", b"2"]
