"""What a producer counts."""

from __future__ import annotations

import json

from pyclient.producer.metrics import ProducerMetrics


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


def test_a_producer_counts_what_it_does(make, topic):
    face = make()
    for _ in range(10):
        face.send(topic, b"0123456789", partition=0)
    face.flush()
    found = face.metrics()
    assert (found["records_delivered"], found["records_failed"], found["buffer_bytes_used"]) == (10, 0, 0)
    assert found["requests"] >= found["batches_delivered"] >= 1 and found["requests_in_flight"] == 0


def test_what_a_producer_counted_can_be_read_after_its_close(make, topic):
    face = make()
    face.send(topic, b"x")
    face.close()
    assert face.metrics()["records_delivered"] == 1 and face.health()["state"] == "closed"
    face.close()
    assert face.metrics()["batches_unconfirmed"] == 0 and face.health()["state"] == "closed"


def test_numbers_are_json_whatever_was_counted():
    metrics = ProducerMetrics()
    for latency in (0.001, 100.0):
        metrics.delivered(1, 10, latency, 1.0)
        text = json.dumps(metrics.snapshot(1.0), allow_nan=False, sort_keys=True)
        assert json.loads(text) == metrics.snapshot(1.0)
    found = metrics.snapshot(1.0)["latency_ms"]
    assert (found["p50"], found["p99"], found["max"], found["buckets"]["inf"]) == (1.0, 100_000.0, 100_000.0, 1)
