"""Both APIs against the embedded broker: records arrive, and invalid input gets one clear error."""

from __future__ import annotations

import copy
import json
import pickle
import time

import pytest

from pyclient import errors, serialization
from pyclient.records import partition_for_key
from tests.patience import retry_until_error, retry_until_raised
from tests.producer.producer_clients import begin


def test_record_arrives_whole_and_its_future_has_its_offset(make, topic, log):
    client = make()
    future = client.send(topic, b"value", key=b"key", headers={"trace": b"1", "none": None}, timestamp_ms=1234)
    metadata = client.result(future)
    (record,) = log()[metadata.partition]
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("trace", b"1"), ("none", None)))
    assert (metadata.topic, metadata.offset, metadata.timestamp_ms) == (topic, 0, 1234)
    assert (record.timestamp_ms, metadata.partition) == (1234, partition_for_key(b"key", 3))
    assert future.done() and future.topic == topic and future.partition == metadata.partition


def test_a_record_without_anything_is_a_record(make, topic, log):
    client = make()
    before = int(time.time() * 1000)
    metadata = client.result(client.send(topic, partition=2))
    (record,) = log()[2]
    assert (record.key, record.value, record.headers) == (None, None, ())
    assert before <= metadata.timestamp_ms == record.timestamp_ms


def test_records_that_each_open_a_batch_are_sent_at_once_at_any_size(make, topic, log):
    client = make(batch_size=300, linger_ms=0)
    sizes = [0, 1, 200, 230, 231, 300, 5_000, 10]
    for number, size in enumerate(sizes):
        assert client.result(client.send(topic, b"x" * size, partition=1)).offset == number
    assert [len(record.value) for record in log()[1]] == sizes


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_arrives(make, topic, log, codec):
    client = make(compression_type=codec, linger_ms=20)
    values = [b"%d " % number * 20 for number in range(500)]
    for value in values:
        client.send(topic, value, partition=0)
    client.flush()
    assert [record.value for record in log()[0]] == values


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_each_kind_of_acks_delivers(make, topic, log, acks):
    client = make(acks=acks)
    futures = [client.send(topic, b"%d" % number, partition=1) for number in range(200)]
    offsets = [client.result(future).offset for future in futures]
    assert offsets == ([-1] * 200 if acks == 0 else list(range(200)))
    client.result(make().send(topic, b"end", partition=1))
    assert [record.value for record in log()[1]] == [b"%d" % number for number in range(200)] + [b"end"]


@pytest.mark.parametrize("option", ["key_serializer", "value_serializer"])
def test_serializer_that_returns_no_bytes_is_named(make, topic, option):
    client = make(**{option: lambda data: "a str"})
    with pytest.raises(errors.SerializationError, match=f"{option} gave str for topic '{topic}': it has to give bytes"):
        client.send(topic, b"v", key=b"k")


def test_serializers_make_bytes_and_leave_none_alone(make, topic, log):
    client = make(key_serializer=serialization.string, value_serializer=lambda value: json.dumps(value).encode())
    client.send(topic, {"a": 1}, key="ключ", partition=0)
    client.send(topic, None, key="gone", partition=0)
    outcome = client.send_many(topic, [1, None], keys=["a", "b"], partition=0)
    assert client.result(outcome)[1].offset == 3
    assert [(r.key.decode(), r.value) for r in log()[0]] == [
        ("ключ", b'{"a": 1}'),
        ("gone", None),
        ("a", b"1"),
        ("b", None),
    ]


def test_a_batch_size_of_nothing_sends_every_record_alone(make, topic):
    client = make(batch_size=0, linger_ms=1000)
    futures = [client.send(topic, b"", partition=0) for _ in range(5)]
    outcome = client.send_many(topic, [b""] * 5, partition=0)
    client.flush()
    batches = {id(future.batch) for future in [*futures, *(outcome[number] for number in range(5))]}
    assert len(batches) == 10 and client.result(outcome)[4].offset == 9


# -- bad input


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250, None, 5])
def test_a_topic_name_that_kafka_refuses_is_refused_at_once(make, name):
    with pytest.raises(errors.InvalidTopic, match="topic"):
        make(max_block_ms=60_000).send(name, b"")


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"value": "text"}, "the value for topic '{topic}' is str, not bytes: pass value_serializer"),
        ({"value": 5}, "the value for topic '{topic}' is int"),
        ({"value": b"", "key": "text"}, "the key for topic '{topic}' is str, not bytes: pass key_serializer"),
        ({"value": b"", "headers": [("h", "text")]}, "a header's value must be bytes"),
        ({"value": b"", "headers": [(b"h", b"")]}, "header"),
        ({"value": b"", "timestamp_ms": 2**63}, "cannot be written"),
        ({"value": b"", "timestamp_ms": "now"}, "cannot be written"),
    ],
)
@pytest.mark.parametrize("warm", [True, False], ids=["open batch", "no batch"])
def test_record_that_is_not_bytes_is_refused_and_no_other_lost(make, topic, log, record, text, warm):
    client = make(linger_ms=10_000, delivery_timeout_ms=60_000)
    before = [client.send(topic, b"before", partition=0)] if warm else []
    with pytest.raises(errors.SerializationError) as caught:
        client.send(topic, partition=0, **record)
    assert text.format(topic=topic) in str(caught.value)
    after = client.send(topic, b"after", partition=0)
    client.flush()
    assert [client.result(future).offset for future in [*before, after]] == list(range(len(before) + 1))


def test_a_serializer_that_fails_is_named(make, topic):
    client = make(value_serializer=lambda value: value.missing)
    with pytest.raises(errors.SerializationError, match=f"value_serializer failed for topic '{topic}'.*missing"):
        client.send(topic, b"")


def test_a_record_above_max_request_size_is_refused_at_send(make, topic):
    client = make(max_request_size=10_000)
    with pytest.raises(errors.MessageTooLarge, match="max_request_size=10000"):
        client.send(topic, b"x" * 10_000)
    with pytest.raises(errors.MessageTooLarge, match="buffer_memory=2000"):
        make(buffer_memory=2000).send(topic, b"x" * 2_000)
    assert client.result(client.send(topic, b"x" * 9_000)).offset == 0


def test_an_unknown_topic_is_a_timeout_after_max_block_ms(make, cluster, topic, network):
    network.response = lambda api: "drop" if api == 3 else "pass"
    client = make(max_block_ms=200)
    with pytest.raises(errors.KafkaTimeout, match=f"topic '{topic}' cannot be looked up"):
        client.send(topic, b"")


def test_metadata_is_requested_only_for_topics_in_use(make, topic):
    client = make(max_block_ms=2000)
    begin(client, topic, partition=None)
    assert client.producer_client.cluster.topics == {topic}
    retry_until_raised(lambda: client.send(f"{topic}-other", b"", partition=99), errors.UnknownTopicOrPartition)
    assert client.producer_client.cluster.topics == {topic}
    client.producer_client.accumulator.topics[topic].last_used = -10_000
    client.producer_client.loop.idle_check_at = 0
    client.producer_client.loop.wake()
    begin(client, f"{topic}-new", partition=None)
    assert client.producer_client.cluster.topics == {f"{topic}-new"}
    begin(client, topic, partition=None)
    assert client.result(client.send(topic, b"")).topic == topic


def test_forgotten_topic_takes_records_like_its_first_ones(make, topic, log):
    """Its numbers are forgotten with it: restarted under the same epoch, they would be taken for duplicates."""
    client = make(linger_ms=0)
    for number in range(3):
        assert client.result(client.send(topic, b"%d" % number, partition=0)).offset == number
        client.producer_client.accumulator.topics[topic].last_used = -10_000
        client.producer_client.loop.idle_check_at = 0
        client.result(client.send(f"{topic}-new", b""))
        assert topic not in client.producer_client.accumulator.topics
    assert [record.value for record in log()[0]] == [b"0", b"1", b"2"]


def test_an_unreachable_cluster_is_named_in_the_error(make):
    client = make("127.0.0.1:1", max_block_ms=300)
    retry_until_error(lambda: client.send("t", b""), r"127\.0\.0\.1:1.*connection refused")


def test_closed_producer_raises_at_once(make, topic):
    client = make(max_block_ms=60_000)
    client.result(client.send(topic, b""))
    client.close()
    for use in (
        lambda: client.send(topic, b""),
        lambda: client.send("another", b""),
        lambda: client.send_many(topic, [b""]),
        lambda: client.partitions_for(topic),
        client.flush,
    ):
        with pytest.raises(errors.ClosedError, match="producer is closed"):
            use()
    client.close()


@pytest.mark.parametrize("linger_ms", [0, 20])
def test_headers_may_be_any_iterable_and_none_is_lost_when_a_batch_begins(make, topic, log, linger_ms):
    client = make(batch_size=200, linger_ms=linger_ms)
    for _ in range(50):
        client.send(topic, b"x", headers=((name, b"1") for name in ("a", "b")), partition=0)
    client.flush()
    assert [record.headers for record in log()[0]] == [(("a", b"1"), ("b", b"1"))] * 50
    with pytest.raises(errors.SerializationError, match=r"headers are a mapping or \(name, value\) pairs, not 5"):
        client.send(topic, b"x", headers=5)


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", 2**63, 2**70])
@pytest.mark.parametrize("warm", [False, True])
def test_invalid_timestamp_is_named_in_new_and_open_batches(make, topic, wrong, warm):
    client = make(linger_ms=60_000, delivery_timeout_ms=120_000)
    if warm:
        client.send(topic, b"before", partition=0)
    with pytest.raises(
        errors.SerializationError, match=f"a timestamp is a whole number of milliseconds .*, not {wrong!r}"
    ):
        client.send(topic, b"x", partition=0, timestamp_ms=wrong)
    client.purge()


@pytest.mark.parametrize("use", [copy.copy, copy.deepcopy, pickle.dumps])
def test_producer_refuses_to_be_copied(make, use):
    with pytest.raises(TypeError, match=r"Producer holds connections and cannot be copied or pickled: make one"):
        use(make().producer)
