"""Options of a producer, seen in its requests: what they say, when they come, how large they are, how often."""

from __future__ import annotations

import time

import pytest

from pyclient import errors
from pyclient.records import Compression, read_header
from tests.producer.network import DROP, METADATA, PASS, PRODUCE
from tests.producer.producer_clients import begin

LONG = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}  # nothing is sent before a flush


def watched(network):
    """Return a list to which each Produce request is added that is sent from now on."""
    seen = []
    network.refuse = lambda request: seen.append(request) or 0
    return seen


def batches(request):
    """Return the headers of all batches in a request."""
    return [read_header(bytes(one.records)) for topic in request.topic_data for one in topic.partition_data]


# -- what a request says


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_compression_type_says(make, topic, network, codec):
    seen = watched(network)
    client = make(compression_type=codec)
    client.result(client.send(topic, b"x" * 5000, partition=0))
    (header,) = batches(seen[-1])
    assert Compression(header.codec) is Compression.from_name(codec)
    assert (header.size < 1000) == (codec != "none")


@pytest.mark.parametrize(("acks", "said"), [("all", -1), (1, 1), (0, 0)])
def test_requests_carry_acks_and_timeout(make, topic, network, acks, said):
    seen = watched(network)
    client = make(acks=acks, request_timeout_ms=23_456)
    client.result(client.send(topic, b"x", partition=0))
    assert {(request.acks, request.timeout_ms) for request in seen} == {(said, 23_456)}


@pytest.mark.parametrize("idempotent", [True, False])
def test_batches_carry_a_producer_id_and_numbers_with_idempotence_only(make, topic, network, idempotent):
    seen = watched(network)
    client = make(enable_idempotence=idempotent, batch_size=0)
    for _ in range(3):
        client.result(client.send(topic, b"x", partition=0))
    headers = [header for request in seen for header in batches(request)]
    assert [header.base_sequence for header in headers] == ([0, 1, 2] if idempotent else [-1, -1, -1])
    assert {header.producer_id >= 0 for header in headers} == {idempotent}


def test_requests_carry_the_client_id(make, cluster, topic):
    with cluster.requests.start() as requests:
        client = make(client_id="orders-service")
        client.result(client.send(topic, b"x", partition=0))
        produced = requests.query("Produce", topic=topic)
    assert {request.client_id for request in produced} == {"orders-service"}


# -- when it comes


def test_batches_linger_for_linger_ms(make, topic, network):
    client = make(linger_ms=500)
    begin(client, topic)
    seen, started = watched(network), time.monotonic()
    client.result(client.send_many(topic, [b"x"] * 50, partition=0))
    assert time.monotonic() - started >= 0.49
    assert [header.count for request in seen for header in batches(request)] == [50]


def test_requests_time_out_after_request_timeout_ms(make, topic, network):
    client = make(linger_ms=0, request_timeout_ms=400, retry_backoff_ms=1, reconnect_backoff_ms=1)
    begin(client, topic)
    outcomes = [DROP]
    network.response = lambda api: outcomes.pop() if api == PRODUCE and outcomes else PASS
    started = time.monotonic()
    assert client.exception(client.send(topic, b"x", partition=0)) is None
    assert time.monotonic() - started >= 0.39
    assert client.metrics()["batches_retried"] >= 1


def test_metadata_is_refreshed_after_metadata_max_age_ms(make, topic, network):
    client = make(metadata_max_age_ms=100)
    begin(client, topic)
    network.wait_for(METADATA, network.requests.count(METADATA) + 2)


# -- how large it is, and how often it is tried


@pytest.mark.parametrize(("size", "counts"), [(0, [1] * 6), (400, [3, 3]), (16_384, [6])])
def test_batches_are_as_large_as_batch_size_allows(make, topic, network, size, counts):
    seen = watched(network)
    client = make(batch_size=size, **LONG)
    client.send_many(topic, [b"x" * 100] * 6, partition=0)
    client.flush()
    assert [header.count for request in seen for header in batches(request)] == counts


@pytest.mark.parametrize(("limit", "together"), [(700, [1, 1, 1]), (1200, [1, 2]), (2000, [3])])
def test_requests_are_as_large_as_max_request_size_allows(make, topic, network, limit, together):
    client = make(max_request_size=limit, **LONG)
    for value in (b"first", b"x" * 400):  # the first batch of each partition goes alone
        seen = watched(network)
        for partition in range(3):
            client.send(topic, value, partition=partition)
        client.flush()
    assert sorted(len(batches(request)) for request in seen) == together
    assert all(sum(header.size for header in batches(request)) <= limit for request in seen)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_batch_is_retried_at_most_retries_times(make, topic, network, retries):
    client = make(retries=retries, linger_ms=0, retry_backoff_ms=1, retry_backoff_max_ms=1)
    begin(client, topic)
    asked = []
    network.refuse = lambda request: asked.append(request) or errors.NotEnoughReplicas.code
    error = client.exception(client.send(topic, b"x", partition=0))
    assert isinstance(error, errors.NotEnoughReplicas) and f"attempt {retries + 1}" in str(error)
    assert len(asked) == retries + 1
