"""Guarantees 3, 8, 17 and 25: order under retries, exhausted sequences and epochs, recreated topics, murmur2."""

from __future__ import annotations

import contextlib
import random
import threading

import pytest

from pyclient import Admin, NewTopic, errors
from pyclient.records import murmur2, partition_for_key, read_header
from tests.producer.network import CUT, DROP, PASS, PRODUCE
from tests.waiting import until

SLOW = {"delivery_timeout_ms": 30_000, "request_timeout_ms": 500, "retry_backoff_ms": 20, "reconnect_backoff_ms": 10}


def second_of(outcome, otherwise):
    """Return a rule that applies `outcome` to the second Produce message from now on."""
    seen = []

    def rule(api):
        if api == PRODUCE:
            seen.append(api)
        return outcome if api == PRODUCE and len(seen) == 2 else otherwise

    return rule


@pytest.mark.parametrize(
    "fault",
    ["NOT_LEADER_OR_FOLLOWER", "disconnect before", "disconnect after", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "lost"],
)
def test_log_keeps_the_call_order_when_the_second_of_five_batches_fails(make, topic, log, network, fault):
    """Guarantee 3: with idempotence and five requests in flight, log order is call order, without gap or duplicate."""
    client = make(batch_size=0, linger_ms=0, **SLOW)
    client.result(client.send(topic, b"first", partition=0))
    count, seen = 0, []

    def refuse(request):
        nonlocal count
        count += 1
        return errors.NotLeaderOrFollower.code if count == 2 else 0

    def after_append(api, frame):
        if api == PRODUCE:
            seen.append(api)
            if len(seen) == 2:
                name = frame[6] - 1
                frame[7 + name + 1 + 4 : 7 + name + 1 + 6] = errors.NotEnoughReplicasAfterAppend.code.to_bytes(2, "big")

    if fault == "NOT_LEADER_OR_FOLLOWER":
        network.refuse = refuse
    elif fault == "NOT_ENOUGH_REPLICAS_AFTER_APPEND":
        network.rewrite = after_append
    elif fault == "disconnect before":
        network.request = second_of(CUT, PASS)
    elif fault == "disconnect after":
        network.response = second_of(CUT, PASS)
    else:
        network.request = second_of(DROP, PASS)
    futures = [client.send(topic, b"%d" % number * 40, partition=0) for number in range(200)]
    assert [client.result(future).offset for future in futures] == list(range(1, 201))
    assert [record.value for record in log()[0]] == [b"first"] + [b"%d" % number * 40 for number in range(200)]
    assert client.metrics()["batches_retried"] >= 1


@pytest.mark.parametrize("sequence", [0, 2**31 - 3])
def test_exhausted_sequences_and_epochs_are_followed_by_a_new_producer_id(make, topic, log, network, sequence):
    """Guarantee 8: from sequence 2^31-3 and epoch 32766; each refused record needs a new epoch, and after 32767 there
    is none, so a new producer id comes."""
    client = make(linger_ms=0, batch_size=0)
    client.partitions_for(topic)
    network.wait_for(22)

    def is_known():
        client.send(f"{topic}-other", b"")
        client.flush()
        return client.producer_client.sender.producer_ids.known

    until(is_known)
    identity = client.producer_client.sender.producer_ids
    first_id = identity.producer_id
    with client.producer_client.lock:
        identity.epoch = 32_766
        numbers = client.producer_client.topics[topic].queues[0].sequence
        assert numbers.prepare(0, identity, [])
        numbers.next = sequence
    sent, seen = [], []

    def watch(request):
        for one in request.topic_data:
            for partition in one.partition_data:
                header = read_header(bytes(partition.records))
                if one.name == topic:
                    seen.append((header.producer_id, header.producer_epoch, header.base_sequence))
        return errors.InvalidRecord.code if refusing else 0

    refusing = False
    network.refuse = watch
    for _ in range(3):
        futures = [client.send(topic, b"%d" % (len(sent) + number), partition=0) for number in range(6)]
        assert [client.result(future).offset for future in futures] == list(range(len(sent), len(sent) + 6))
        sent += [b"%d" % (len(sent) + number) for number in range(6)]
        refusing = True
        assert isinstance(client.exception(client.send(topic, b"refused", partition=0)), errors.InvalidRecord)
        refusing = False
    assert [record.value for record in log()[0]] == sent
    expected = [(first_id, 32_766, (sequence + number) & (2**31 - 1)) for number in range(7)]
    expected += [(first_id, 32_767, number) for number in range(7)]
    assert seen[:14] == expected
    new_id = seen[14][0]
    assert new_id != first_id and seen[14:] == [(new_id, 0, number) for number in range(7)]


@pytest.mark.parametrize("code", [errors.UnknownProducerId.code, errors.OutOfOrderSequenceNumber.code])
def test_broker_that_forgot_the_producer_gets_a_new_epoch_without_error(make, topic, log, network, code):
    """KIP-360: batches in flight are refused and restart under the next epoch, each record once and in order."""
    client = make(batch_size=0, linger_ms=0, **SLOW)
    for number in range(3):
        client.result(client.send(topic, b"%d" % number, partition=0))
    sequence = client.producer_client.topics[topic].queues[0].sequence
    before, refused = sequence.epoch, []

    def forgotten(request):
        header = read_header(bytes(request.topic_data[0].partition_data[0].records))
        refused.append((header.producer_epoch, header.base_sequence))
        return code if header.producer_epoch == before else 0

    network.refuse = forgotten
    futures = [client.send(topic, b"%d" % number, partition=0) for number in range(3, 50)]
    assert [client.result(future).offset for future in futures] == list(range(3, 50))
    assert [record.value for record in log()[0]] == [b"%d" % number for number in range(50)]
    assert sequence.epoch == before + 1
    assert (before, 3) in refused and (before + 1, 0) in refused


def test_recreated_topic_gets_new_sequences_and_no_stale_offset(make, cluster, topic, log, network):
    """Guarantee 17: the other topic id is seen, sequences restart, and no error shows meanwhile."""
    client = make(linger_ms=0, **SLOW)
    for number in range(5):
        client.result(client.send(topic, b"old %d" % number, partition=0))
    queue = client.producer_client.topics[topic].queues[0]
    before, old_id = queue.sequence.epoch, client.producer_client.topics[topic].topic_id
    with Admin(cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        with contextlib.suppress(errors.TopicAlreadyExists):  # created by a Metadata request, with as many partitions
            admin.create_topics([NewTopic(topic, 3, 1)])
    futures = [client.send(topic, b"new %d" % number, partition=0) for number in range(20)]
    assert [client.result(future).offset for future in futures] == list(range(20))
    client.producer_client.cluster.request_refresh()
    learnt = threading.Event()
    client.producer_client.cluster.listeners.append(lambda metadata: learnt.set())
    assert learnt.wait(20)
    assert client.result(client.send(topic, b"last", partition=0)).offset == 20
    assert client.producer_client.topics[topic].topic_id != old_id
    assert (queue.sequence.epoch, queue.sequence.next) > (before, 0)
    assert [record.value for record in log()[0]] == [b"new %d" % number for number in range(20)] + [b"last"]


def test_murmur2_equals_javas_for_100000_keys():
    """Guarantee 25: the same hash, and so the same partition, as another client's port of Java's murmur2."""
    partitioner = pytest.importorskip("kafka.partitioner.default")
    rng = random.Random(25)
    for number in range(100_000):
        key = rng.randbytes(number % 40) if number % 2 else f"ключ-{number}-{rng.random()}".encode()
        expected = partitioner.murmur2(key)
        assert murmur2(key) & 0xFFFFFFFF == expected & 0xFFFFFFFF
        assert partition_for_key(key, 1 + number % 100) == (expected & 0x7FFFFFFF) % (1 + number % 100)
