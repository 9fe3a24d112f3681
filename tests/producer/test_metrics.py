"""A producer's metrics."""

from __future__ import annotations

import json
import threading

import pytest

from pyclient import AsyncProducer, errors
from pyclient.producer.metrics import ProducerMetrics
from tests.producer.producer_clients import begin
from tests.waiting import PATIENCE, until

RATES = ("records_per_second", "bytes_per_second", "records_per_batch", "bytes_per_batch")


def test_counts_rates_and_latencies_are_plain_numbers():
    metrics = ProducerMetrics()
    assert metrics.snapshot(100.0)["latency_ms"]["p50"] == 0.0
    for number in range(100):
        metrics.delivered(10, 1000, 0.004 if number < 90 else 0.3, 100.0 + number / 10)
    found = metrics.snapshot(110.0)
    assert (found["records_delivered"], found["bytes_delivered"], found["batches_delivered"]) == (1000, 100_000, 100)
    assert (found["records_per_batch"], found["bytes_per_batch"]) == (10.0, 1000.0)
    assert (found["records_per_second"], found["bytes_per_second"]) == (1000 / 30, 100_000 / 30)
    assert (found["latency_ms"]["p50"], found["latency_ms"]["p99"]) == (5.0, 300.0)  # no more than the longest
    assert found["latency_ms"]["buckets"]["5"] == 90 and sum(found["latency_ms"]["buckets"].values()) == 100
    assert metrics.snapshot(200.0)["records_per_second"] == 0 and metrics.snapshot(200.0)["records_delivered"] == 1000


def test_producer_counts_records_batches_and_requests(make, topic):
    client = make()
    for _ in range(10):
        client.send(topic, b"0123456789", partition=0)
    client.flush()
    found = client.metrics()
    assert (found["records_delivered"], found["records_failed"], found["buffer_bytes_used"]) == (10, 0, 0)
    assert found["requests"] >= found["batches_delivered"] >= 1 and found["requests_in_flight"] == 0


def test_records_that_a_broker_refuses_are_counted_as_failed(make, cluster, topic):
    client = make()
    begin(client, topic)
    before = client.metrics()["records_delivered"]
    with cluster.faults.fail("Produce", errors.InvalidRecord, topic=topic):
        outcome = client.send_many(topic, [b"refused"] * 7, partition=0)
        assert isinstance(client.exception(outcome), errors.DeliveryFailed)
    assert len(outcome.failures) == 7
    begin(client, topic)
    found = client.metrics()
    assert (found["records_failed"], found["records_delivered"]) == (7, before + 1)


def test_aborted_records_are_counted_as_failed_in_any_state(make, cluster, topic):
    client = make(linger_ms=0, max_in_flight_requests_per_connection=1)
    begin(client, topic)
    with cluster.faults.hold("Produce", topic=topic, times=None) as held:
        client.send_many(topic, [b"on their way"] * 3, partition=0)
        held.wait()
        client.send_many(topic, [b"waiting"] * 4, partition=0)
        assert client.metrics()["records_failed"] == 0
        with pytest.raises(errors.DeliveryFailed, match="7 records were not delivered"):
            client.close(0)
    assert client.metrics()["records_failed"] == 7


def test_split_batches_are_counted(make, cluster, topic):
    client = make()
    begin(client, topic)
    assert client.metrics()["batches_split"] == 0
    before = client.metrics()["batches_delivered"]
    with cluster.faults.fail("Produce", errors.MessageTooLarge, topic=topic, times=2) as refused:
        outcome = client.send_many(topic, [b"x"] * 8, partition=0)
        assert client.exception(outcome) is None and refused.hits() == 2
    found = client.metrics()
    assert (found["batches_split"], found["batches_delivered"] - before, found["records_failed"]) == (2, 3, 0)


def test_requests_in_flight_are_counted_until_they_end(make, cluster, topic):
    """Two batches fill the buffer, one of them is in a request, and a third waits for memory."""
    client = make(batch_size=1024, buffer_memory=2048, linger_ms=0, max_in_flight_requests_per_connection=1)
    begin(client, topic)
    names = ("requests_in_flight", "buffer_bytes_used", "sends_blocked", "batches_unconfirmed")

    def counts():
        found = client.metrics()
        assert found["buffer_bytes_total"] == 2048
        return tuple(found[name] for name in names)

    until(lambda: counts() == (0, 0, 0, 0), "something is under way after the first record")
    sent = []
    with cluster.faults.hold("Produce", topic=topic, times=None) as held:
        sent += [client.send(topic, b"x" * 800, partition=0)]
        held.wait()
        assert counts() == (1, 1024, 0, 1)
        sent += [client.send(topic, b"x" * 800, partition=0)]
        assert counts() == (1, 2048, 0, 2)
        blocked = threading.Thread(target=lambda: sent.append(client.send(topic, b"x" * 800, partition=0)))
        blocked.start()
        until(lambda: counts() == (1, 2048, 1, 2), "nothing waits for memory")
        assert tuple(client.health()[name] for name in names) == (1, 2048, 1, 2)
        held.release()
        blocked.join(PATIENCE)
    assert [client.exception(future) for future in sent] == [None] * 3
    client.flush()
    until(lambda: counts() == (0, 0, 0, 0), "something is left")


def test_metrics_can_be_read_after_close(make, topic):
    client = make()
    client.send(topic, b"x")
    client.close()
    assert client.metrics()["records_delivered"] == 1 and client.health()["state"] == "closed"
    client.close()
    assert client.metrics()["batches_unconfirmed"] == 0 and client.health()["state"] == "closed"


def test_numbers_are_json_whatever_was_counted():
    metrics = ProducerMetrics()
    for latency in (0.001, 100.0):
        metrics.delivered(1, 10, latency, 1.0)
        text = json.dumps(metrics.snapshot(1.0), allow_nan=False, sort_keys=True)
        assert json.loads(text) == metrics.snapshot(1.0)
    found = metrics.snapshot(1.0)["latency_ms"]
    assert (found["p50"], found["p99"], found["max"], found["buckets"]["inf"]) == (1.0, 100_000.0, 100_000.0, 1)


def numbers_in(found):
    """Return all values of nested dictionaries."""
    return [one for value in found.values() for one in (numbers_in(value) if isinstance(value, dict) else [value])]


def is_json(found):
    return json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("way", ["one by one", "together", "columns"])
def test_metrics_and_health_are_plain_and_consistent(make, topic, way):
    client = make(linger_ms=0 if way == "one by one" else 5)
    assert is_json(client.metrics()) and is_json(client.health())
    for _ in range(20):
        if way == "columns":
            client.result(client.send_many(topic, [b"0123456789"] * 5, partition=0))
        else:
            sent = [client.send(topic, b"0123456789", partition=0) for _ in range(1 if way == "one by one" else 5)]
            assert all(client.exception(future) is None for future in sent)
    records = 20 if way == "one by one" else 100
    until(lambda: client.metrics()["records_delivered"] == records, "not all records are counted")
    found = client.metrics()
    assert (
        {type(number) for number in numbers_in(found)} == {int, float} and is_json(found) and is_json(client.health())
    )
    assert all(type(found[name]) is float and found[name] > 0 for name in RATES)
    batches, latency = found["batches_delivered"], found["latency_ms"]
    assert 20 <= batches <= records and found["requests"] >= 20
    assert found["records_per_batch"] == records / batches
    assert found["bytes_per_batch"] == found["bytes_delivered"] / batches > 10 * records / batches
    assert found["bytes_per_second"] > 10 * found["records_per_second"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    counts = list(latency["buckets"].values())
    assert all(type(count) is int for count in counts) and sum(counts) == batches
    bounds = [float(bound) for bound in latency["buckets"]]
    assert bounds == sorted(bounds) and bounds[-1] == float("inf")
    longest = max(place for place, count in enumerate(counts) if count)
    assert ([0.0, *bounds])[longest] <= latency["max"] <= bounds[longest]


def test_metrics_and_health_are_json_in_every_state(make, cluster):
    new = AsyncProducer(cluster.bootstrap_servers)
    assert is_json(new.metrics()) and is_json(new.health())
    client = make("127.0.0.1:1")
    until(lambda: client.health()["last_failures"], "the broker that is not there is not in last_failures")
    assert is_json(client.health()) and is_json(client.metrics())
    client.close()
    assert is_json(client.health()) and is_json(client.metrics())
    assert client.metrics()["records_per_batch"] == client.metrics()["latency_ms"]["p99"] == 0
