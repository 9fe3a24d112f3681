"""Options of a producer, seen where they act: on the network, and in the choice of partitions."""

from __future__ import annotations

import itertools
import random
import threading
import time

import pytest

from pyclient import errors
from tests.producer.network import HOLD, PASS, PRODUCE
from tests.producer.producer_clients import begin
from tests.waiting import until

SLOW = 0  # the partition whose broker answers nothing


# -- KIP-794: where records without a key go while one broker is slow


def with_a_slow_broker(make, cluster, topic, network, **options):
    """Return a producer that has used all three partitions.

    Produce requests for the first one, which has its own leader, are held from now on, and two of its batches wait.
    """
    network.look_like_two_brokers(cluster.bootstrap_servers, lambda _, partition: partition == SLOW)
    client = make(
        batch_size=300, linger_ms=0, max_in_flight_requests_per_connection=1, request_timeout_ms=90_000, **options
    )
    for partition in range(3):
        begin(client, topic, partition=partition)
    asking = threading.local()  # the sender and callers of `send` may choose at the same time

    def look(request):
        asking.slow = any(one.index == SLOW for asked in request.topic_data for one in asked.partition_data)
        return 0

    network.refuse = look
    network.request = lambda api: HOLD if api == PRODUCE and asking.slow else PASS
    queue = client.producer_client.topics[topic].queues[SLOW]
    held = [client.send(topic, b"x" * 250, partition=SLOW)]
    until(lambda: queue.on_wire == 1, "nothing is on its way to the slow broker")
    held += [client.send(topic, b"x" * 250, partition=SLOW) for _ in range(2)]
    return client, held


def send_some(client, topic, count):
    """Send records that are a batch each, as fast as the quick broker takes them; return how many the slow one got."""
    queues = client.producer_client.topics[topic].queues
    before, futures = len(queues[SLOW].waiting), []
    for _ in range(count):
        futures.append(client.send(topic, b"x" * 250))
        until(lambda: not any(queue.waiting or queue.on_wire for queue in queues[SLOW + 1 :]), "the quick one is slow")
    return len(queues[SLOW].waiting) - before, futures


@pytest.mark.parametrize(("adaptive", "least", "most"), [(True, 1, 45), (False, 60, 140)])
def test_slow_broker_gets_fewer_records_unless_adaptivity_is_off(make, cluster, topic, network, adaptive, least, most):
    """The share of one of three partitions is 100 of 300; weighed by its queue, some 17."""
    client, held = with_a_slow_broker(
        make, cluster, topic, network, partitioner_adaptive_partitioning_enable=adaptive
    )  # fmt: skip
    got, futures = send_some(client, topic, 300)
    network.release()
    assert least <= got <= most
    assert [client.exception(future) for future in held + futures] == [None] * 303


def test_stalled_broker_gets_no_records_after_the_availability_timeout(make, cluster, topic, network):
    client, held = with_a_slow_broker(
        make, cluster, topic, network,
        partitioner_adaptive_partitioning_enable=False, partitioner_availability_timeout_ms=100,
    )  # fmt: skip
    futures = []

    def left_out():
        got, sent = send_some(client, topic, 60)
        futures.extend(sent)
        return not got

    until(left_out, "the slow broker gets records all the time")
    network.release()
    assert [client.exception(future) for future in held + futures] == [None] * (3 + len(futures))
    assert any(client.result(client.send(topic, b"x" * 250)).partition == SLOW for _ in range(80)), (
        "it takes records again"
    )


# -- requests


@pytest.mark.parametrize(
    ("limit", "options"), [(1, {}), (3, {}), (5, {}), (1, {"acks": 1}), (7, {"enable_idempotence": False})]
)
def test_requests_in_flight_are_at_most_the_configured_number(make, topic, network, limit, options):
    client = make(linger_ms=0, batch_size=0, max_in_flight_requests_per_connection=limit, **options)
    begin(client, topic)
    before = network.requests.count(PRODUCE)
    network.request = lambda api: HOLD if api == PRODUCE else PASS
    futures = [client.send(topic, b"%d" % number, partition=0) for number in range(20)]
    network.wait_for(PRODUCE, before + limit)
    with pytest.raises(errors.KafkaTimeout):
        client.flush(0.2)
    assert network.requests.count(PRODUCE) == before + limit
    network.release()
    offsets = [client.result(future).offset for future in futures]
    assert offsets == [*range(offsets[0], offsets[0] + 20)]


def test_retries_are_kept_apart_by_the_backoff(make, topic, network):
    """Doubled each time and spread by a fifth: at least 160, 320 and 320 ms here."""
    client = make(linger_ms=0, retry_backoff_ms=200, retry_backoff_max_ms=400)
    begin(client, topic)
    asked = []

    def refuse(request):
        asked.append(time.monotonic())
        return errors.NotEnoughReplicas.code if len(asked) < 4 else 0

    network.refuse = refuse
    assert client.exception(client.send(topic, b"x", partition=0)) is None
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert len(pauses) == 3
    assert all(pause >= least - 0.005 for pause, least in zip(pauses, (0.16, 0.32, 0.32), strict=True)), pauses


def test_the_backoff_grows_up_to_its_maximum(make, topic, network):
    """A refused batch's remaining backoff never exceeds the maximum, however late the test checks it."""
    initial, most = 0.02, 0.06  # seconds
    client = make(linger_ms=0, retry_backoff_ms=20, retry_backoff_max_ms=60)
    begin(client, topic)
    queue, asked, left = client.producer_client.topics[topic].queues[0], [], []

    def refuse(request):
        asked.append(None)
        return errors.NotEnoughReplicas.code

    def look():
        with client.producer_client.lock:
            left.extend(batch.retry_at - time.monotonic() for batch in queue.waiting)

    def seen():
        look()
        return len(asked) >= 12 and max(left, default=0) > 1.2 * initial

    network.refuse = refuse
    future = client.send(topic, b"x", partition=0)
    until(seen, "the pause does not grow")
    network.refuse = lambda request: 0
    assert client.exception(future) is None
    assert max(left) <= most


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", 1, 15)])
def test_a_higher_level_makes_batches_smaller(make, topic, network, codec, low, high):
    rng, sizes = random.Random(3), {}
    words = [bytes(rng.choices(range(97, 123), k=rng.randrange(3, 9))) for _ in range(400)]
    value = b" ".join(rng.choices(words, k=15_000))

    def note(request):
        sizes[level] = len(request.topic_data[0].partition_data[0].records)
        return 0

    network.refuse = note
    for level in (low, high):
        client = make(compression_type=codec, **{f"compression_{codec}_level": level})
        client.result(client.send(topic, value, partition=0))
    assert sizes[low] > sizes[high]


@pytest.mark.parametrize(("idle_ms", "kept"), [(5_000, False), (600_000, True)])
def test_topic_metadata_is_requested_until_it_is_idle_for_its_maximum(make, topic, idle_ms, kept):
    client = make(metadata_max_idle_ms=idle_ms)
    client.result(client.send(topic, b""))
    client.producer_client.accumulator.topics[topic].last_used -= 100.0
    client.producer_client.loop.idle_check_at = 0
    client.producer_client.loop.wake()
    client.result(client.send(f"{topic}-new", b""))
    assert client.producer_client.cluster.topics == {f"{topic}-new"} | ({topic} if kept else set())
