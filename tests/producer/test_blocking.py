"""The time limits of waits of `send` for metadata and memory, and the order in which they are served."""

from __future__ import annotations

import threading
import time

import pytest

from pyclient import Admin, NewTopic, errors
from tests.producer.background import blocked, in_background
from tests.producer.network import HOLD, METADATA, PASS
from tests.producer.parts import runner_of
from tests.producer.producer_clients import begin
from tests.waiting import PATIENCE, until

MAX_BLOCK = 60.0  # seconds; more than the patience of a test
WAYS = {
    "plain": {},
    "a partitioner": {"partitioner": lambda topic, key, count: 0},
    "keys ignored": {"partitioner_ignore_keys": True},
    "a serializer": {"value_serializer": bytes},
    "an interceptor": {"interceptors": lambda record: record},
}


class Ahead:
    """The system's clock, but some seconds ahead."""

    def __init__(self):
        self.seconds = 0.0

    def monotonic(self):
        return time.monotonic() + self.seconds

    def time_ms(self):
        return time.time_ns() // 1_000_000


def clock_of(client):
    """Return a clock that can be put ahead, which the client takes its deadlines from."""
    runner_of(client.producer).clock = clock = Ahead()
    return clock


def hold_metadata(network):
    """Hold Metadata responses until `network.release()`; return an event that is set when one is held."""
    held = threading.Event()

    def outcome(api):
        if api != METADATA:
            return PASS
        held.set()
        return HOLD

    network.response = outcome
    return held


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("late", [False, True])
def test_waits_for_metadata_and_memory_share_one_deadline(make, cluster, topic, network, way, late):
    """Metadata takes half of max_block_ms and memory comes after, or it takes all and memory is not waited for."""
    full, other = f"{topic}-full", topic
    network.look_like_two_brokers(cluster.bootstrap_servers, lambda name, _: name == full)  # of a connection each
    client = make(batch_size=1024, buffer_memory=1024, linger_ms=0, max_block_ms=int(MAX_BLOCK * 1000), **WAYS[way])
    begin(client, full)
    clock = clock_of(client)
    with cluster.faults.hold("Produce", topic=full, times=None) as produce:
        accepted = client.send(full, b"x" * 800, partition=0)
        produce.wait()
        hold_metadata(network)
        sending = in_background(lambda: client.send(other, b"y" * 800, key=b"key"))
        until(lambda: client.producer_client.loop.learning[other], "the topic is not looked up")
        clock.seconds = MAX_BLOCK + 1 if late else MAX_BLOCK / 2
        network.release()
        if late:
            with pytest.raises(errors.BufferExhausted):
                sending.result(PATIENCE)
        else:
            blocked(client)
            produce.release()
            assert client.exception(sending.result(PATIENCE)) is None
    assert client.exception(accepted) is None


@pytest.mark.parametrize("call", ["send", "send_many"])
def test_send_waits_for_a_partition_to_be_added(make, cluster, topic, network, call):
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, partitions=1)])
        client = make(max_block_ms=int(MAX_BLOCK * 1000))
        begin(client, topic)
        asked = network.requests.count(METADATA)
        value = b"x" if call == "send" else [b"x"]
        sending = in_background(lambda: getattr(client, call)(topic, value, partition=3))
        network.wait_for(METADATA, asked + 2)  # one answer says that there is no such partition
        admin.create_partitions({topic: 4})
        assert client.exception(sending.result(PATIENCE)) is None


def test_waits_for_memory_are_served_in_order(make, cluster, topic, log):
    """Every other record needs all the memory; a smaller one that would fit does not go first."""
    client = make(batch_size=1024, buffer_memory=2048, linger_ms=0, max_in_flight_requests_per_connection=1)
    begin(client, topic)
    sending = []
    with cluster.faults.hold("Produce", topic=topic, times=None) as held:
        accepted = [client.send(topic, b"%d" % number * 800, partition=0) for number in range(2)]
        for number in range(2, 10):
            size = 800 if number % 2 else 1900
            sending.append(
                in_background(lambda number=number, size=size: client.send(topic, b"%d" % number * size, partition=0))
            )
            blocked(client, len(sending))
        held.release()
        accepted += [call.result(PATIENCE) for call in sending]
    assert [client.exception(future) for future in accepted] == [None] * 10
    assert [record.value[:1] for record in log()[0] if record.value != b"first"] == [b"%d" % n for n in range(10)]
