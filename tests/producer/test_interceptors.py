"""Interceptors see every record before it is sent and every outcome, and cannot break the producer."""

from __future__ import annotations

import dataclasses

import pytest

from pyclient import ProducerInterceptor, ProducerRecord, errors, serialization
from tests.patience import retry_until_raised
from tests.producer.network import DROP, PASS, PRODUCE
from tests.producer.parts import client_of
from tests.producer.producer_clients import begin


class Watcher(ProducerInterceptor):
    """Records its calls."""

    def __init__(self):
        self.records = []
        self.outcomes = []

    def on_send(self, record):
        self.records.append(record)

    def on_acknowledgement(self, metadata, error, headers):
        self.outcomes.append((metadata, error, headers))


def tag(name):
    return lambda record: record.replace(headers=(*record.headers, ("by", name)))


def test_record_passes_all_interceptors_in_order_before_serialization(make, topic, log):
    watcher = Watcher()

    def doubled(record):
        return record.replace(value=record.value * 2, timestamp_ms=77)

    client = make(interceptors=[tag(b"1"), doubled, tag(b"2"), watcher], value_serializer=serialization.string)
    metadata = client.result(client.send(topic, "ab", key=b"k", headers={"a": b"0"}, partition=1))
    client.flush()
    headers = (("a", b"0"), ("by", b"1"), ("by", b"2"))
    assert watcher.records == [ProducerRecord(topic, "abab", b"k", headers, 1, 77)]
    assert watcher.outcomes == [(metadata, None, headers)]
    assert (metadata.partition, metadata.offset, metadata.timestamp_ms) == (1, 0, 77)
    (record,) = log()[1]
    assert (record.value, record.key, record.headers) == (b"abab", b"k", headers)


def test_a_column_passes_record_by_record(make, topic, log):
    watcher = Watcher()
    client = make(interceptors=[tag(b"x"), watcher], batch_size=500)
    values = [b"%d" % number * 10 for number in range(200)]
    outcome = client.send_many(topic, values, headers=[{"n": value} for value in values], timestamps_ms=range(200))
    metadata = client.result(outcome)
    client.flush()
    assert [record.value for record in watcher.records] == values
    assert len(watcher.outcomes) == 200 and {one[0] for one in watcher.outcomes} == set(metadata)
    found = {record.timestamp_ms: record for records in log().values() for record in records}
    for number, value in enumerate(values):
        assert found[number].value == value and found[number].headers == (("n", value), ("by", b"x"))
        assert (metadata[number].partition, metadata[number].offset) == (found[number].partition, found[number].offset)


def test_an_interceptor_may_send_records_elsewhere(make, topic, log):
    def by_size(record):
        return record.replace(topic=topic if len(record.value) > 1 else f"{topic}-short", partition=0)

    client = make(interceptors=by_size)
    outcome = client.send_many("nowhere", [b"aa", b"b", b"cc"])
    client.result(outcome)
    assert [one.topic for one in client.result(outcome)] == [topic, f"{topic}-short", topic]
    assert [record.value for record in log()[0]] == [b"aa", b"cc"]


@pytest.mark.parametrize(
    "wrong", [lambda record: 1 / 0, lambda record: "no record", lambda record: record.replace(x=1)]
)
def test_interceptor_exception_is_logged_and_the_record_is_sent(make, topic, log, caplog, wrong):
    class Raises(Watcher):
        def on_acknowledgement(self, metadata, error, headers):
            raise RuntimeError("after")

    watcher = Watcher()
    client = make(interceptors=[tag(b"1"), wrong, Raises(), watcher])
    client.result(client.send(topic, b"x", partition=0))
    client.flush()
    assert log()[0][0].headers == (("by", b"1"),) == watcher.records[0].headers
    assert len(watcher.outcomes) == 1
    assert "the record for" in caplog.text and "RuntimeError: after" in caplog.text


def test_producer_record_is_immutable():
    record = ProducerRecord("t", b"x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.value = b"y"
    assert record.replace(value=b"y") == ProducerRecord("t", b"y") != record


def test_interceptor_call_does_not_count_as_observing_a_failure(make, topic, network):
    watcher = Watcher()
    client = make(interceptors=[watcher])
    begin(client, topic)
    network.request = lambda api: DROP if api == PRODUCE else PASS
    seen = network.requests.count(PRODUCE)
    kept = client.send(topic, b"lost", partition=0, headers={"a": b"1"})
    network.wait_for(PRODUCE, seen + 1)
    with client.producer_client.lock:
        for batch in client.producer_client.accumulator.incomplete:
            batch.deadline = 0.0  # the delivery timeout is over while the request is under way
    client.producer_client.loop.wake()
    with pytest.raises(errors.DeliveryFailed, match="1 record was not delivered"):
        client.flush()
    metadata, error, headers = watcher.outcomes[-1]
    assert isinstance(error, errors.DeliveryTimeout) and error.maybe_persisted and headers == (("a", b"1"),)
    assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, -1)
    assert isinstance(client.exception(kept), errors.DeliveryTimeout)


def test_interceptor_is_called_for_a_record_that_send_refuses(make, topic):
    watcher = Watcher()
    client = make(interceptors=[watcher], max_request_size=2000, max_block_ms=2000)
    for record, error in (
        ({"value": "text"}, errors.SerializationError),
        ({"value": b"x" * 3000}, errors.MessageTooLarge),
        ({"value": b"x", "partition": 9}, errors.UnknownTopicOrPartition),
        ({"value": b"x", "timestamp_ms": -1}, errors.SerializationError),
    ):
        retry_until_raised(lambda record=record: client.send(topic, **record), error)
        metadata, reported, _ = watcher.outcomes[-1]
        assert type(reported) is error and metadata.partition == record.get("partition", -1) and metadata.offset == -1
    begin(client, topic, partition=1)  # no later record waits for the topic's metadata
    client.flush()
    outcome = client.send_many(topic, [b"a", "b", b"c"], partition=0)
    assert isinstance(client.exception(outcome), errors.DeliveryFailed)
    client.flush()
    assert list(outcome.failures) == [1] and outcome.offsets == [0, -1, 1]
    assert [error is None for _, error, _ in watcher.outcomes[-3:]].count(False) == 1
    with pytest.raises(errors.SerializationError):
        client.send_many(topic, ["a", "b"])
    with pytest.raises(ValueError, match="columns of one length"):
        client.send_many(topic, [b"a"], keys=[b"a", b"b"])


def test_rows_share_one_max_block_ms(make, topic, network):
    client = make(interceptors=[tag(b"1")], batch_size=1024, buffer_memory=2048, max_block_ms=300, linger_ms=0)
    begin(client, topic)
    network.request = lambda api: DROP if api == PRODUCE else PASS
    outcome = client.send_many(topic, [b"x" * 800] * 50, partition=0)
    assert outcome.failed == 48
    assert all(isinstance(error, errors.BufferExhausted) for error in outcome.failures.values())


def test_an_interceptor_sees_the_outcome_before_the_callback_of_the_record(make, topic):
    seen = []

    class Watch:
        def on_acknowledgement(self, metadata, error, headers):
            seen.append("interceptor")

    client = make(interceptors=Watch())
    client.send(topic, b"x", on_delivery=lambda future: seen.append("callback"))
    client.flush()
    assert seen == ["interceptor", "callback"]


@pytest.mark.parametrize("wrong", ["name.of.a.Class", [5], [Watcher], [object()]])
def test_invalid_interceptor_is_refused(make, wrong):
    with pytest.raises(errors.ConfigError, match=r"interceptors=.*on_acknowledgement"):
        make(interceptors=wrong)


def test_interceptor_classes_option_is_refused_with_advice(make):
    with pytest.raises(errors.ConfigError, match=r"interceptors=\[\.\.\.\]"):
        make(config={"interceptor.classes": "a.b.C"})


def test_records_without_interceptors_take_the_fast_path(make):
    plain, watched = (client_of(client.producer).config.plain for client in (make(), make(interceptors=[Watcher()])))
    assert plain and not watched
