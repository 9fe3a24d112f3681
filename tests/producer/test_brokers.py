"""Malformed responses, refusals, and topics that change while they are sent to."""

from __future__ import annotations

import contextlib
import random
import struct
import time

import pytest

from pyclient import Admin, NewTopic, errors
from pyclient.producer.produce_response import answers_by_partition
from pyclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from pyclient.records import Compression, read_header
from tests.producer.network import DROP, INIT_PRODUCER_ID, PASS, PRODUCE
from tests.producer.producer_clients import begin
from tests.waiting import until

QUICK = {"request_timeout_ms": 400, "delivery_timeout_ms": 60_000, "retry_backoff_ms": 10, "reconnect_backoff_ms": 10}


def test_first_of_several_answers_for_one_partition_counts():
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t",
                partition_responses=[
                    PartitionProduceResponse(
                        index=0,
                        error_code=87,
                        base_offset=-1,
                        error_message="no",
                        record_errors=[BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="this one")],
                    ),
                    PartitionProduceResponse(index=0, error_code=0, base_offset=5),
                    PartitionProduceResponse(index=-7, error_code=9999, base_offset=-5),
                ],
            )
        ]
    )
    answers = answers_by_partition(response)
    assert answers["t", 0].code == 87 and answers["t", 0].record_errors == {2: "this one"}
    assert answers["t", -7].code == 9999


def spoil_once(api, change):
    """Change the next response of an API."""
    left = [change]

    def rewrite(seen, frame):
        if seen == api and left:
            left.pop()(frame)

    return rewrite


def set_error(code):
    """Put a code into the first partition of a Produce v11 response; the topic's name is 7 to 9 bytes long."""

    def change(frame):
        name = frame[6] - 1
        struct.pack_into(">h", frame, 7 + name + 1 + 4, code)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.__delitem__(slice(-5, None)),
        lambda frame: frame.__iadd__(b"\0\0\0"),
        lambda frame: frame.__setitem__(slice(5, 6), b"\xff"),
        lambda frame: frame.__setitem__(slice(0, 4), b"\x7f\xff\xff\xff"),
        lambda frame: frame.clear(),
    ],
    ids=["cut", "too long", "many topics", "foreign correlation id", "empty"],
)
def test_malformed_response_ends_the_connection_and_the_batch_is_retried(make, topic, log, network, change):
    client = make(**QUICK)
    client.result(client.send(topic, b"first", partition=0))
    network.rewrite = spoil_once(PRODUCE, change)
    futures = [client.send(topic, b"%d" % number, partition=0) for number in range(3)]
    assert [client.result(future).offset for future in futures] == [1, 2, 3]
    assert [record.value for record in log()[0]] == [b"first", b"0", b"1", b"2"]


@pytest.mark.parametrize("code", [9999, errors.TopicAuthorizationFailed.code, errors.InvalidTopic.code])
def test_refused_batch_fails_and_the_next_one_is_delivered(make, topic, log, network, code):
    client = make(**QUICK)
    client.result(client.send(topic, b"first", partition=0))
    network.rewrite = spoil_once(PRODUCE, set_error(code))
    network.request = lambda api: PASS
    error = client.exception(client.send(topic, b"refused", partition=0))
    assert type(error) is errors.for_code(code) and f"{topic}-0: broker" in str(error)
    after = client.send(topic, b"after", partition=0)
    assert client.exception(after) is None
    assert b"after" in [record.value for record in log()[0]]


def test_refused_producer_id_is_reported_with_its_reason(make, topic, network):
    refused = [errors.ClusterAuthorizationFailed.code]

    def refuse(api, frame):
        if api == INIT_PRODUCER_ID and refused:
            struct.pack_into(">h", frame, 9, refused[0])

    network.rewrite = refuse
    client = make(**QUICK)
    error = client.exception(client.send(topic, b"x"))
    assert isinstance(error, errors.ClusterAuthorizationFailed) and not error.maybe_persisted
    assert "enable_idempotence=True needs" in str(error)
    refused.clear()
    while client.exception(client.send(topic, b"x")) is not None:
        assert network.requests.count(INIT_PRODUCER_ID) < 100
    assert client.health()["producer_id"] >= 0


def test_recreated_topic_is_written_to_without_an_error(make, cluster, topic, log):
    client = make(**QUICK, linger_ms=0)
    for number in range(5):
        client.result(client.send(topic, b"old %d" % number, partition=0))
    with Admin(cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        with contextlib.suppress(errors.TopicAlreadyExists):  # created by a Metadata request, with as many partitions
            admin.create_topics([NewTopic(topic, 3, 1)])
    futures = [client.send(topic, b"new %d" % number, partition=0) for number in range(5)]
    assert [client.result(future).offset for future in futures] == [0, 1, 2, 3, 4]
    assert [record.value for record in log()[0]] == [b"new %d" % number for number in range(5)]


def test_removed_partitions_of_a_recreated_topic_are_reported_as_unknown(make, cluster, topic, log):
    client = make(**QUICK | {"request_timeout_ms": 30_000, "max_block_ms": 10_000}, linger_ms=0)
    for partition in range(3):
        begin(client, topic, partition=partition)
    with Admin(cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 1, 1)])
    with cluster.faults.hold("Produce", topic=topic, times=None):  # the producer hears of it when all are accepted
        lost = {partition: client.send(topic, b"lost", partition=partition) for partition in (1, 2)}
        column = client.send_many(topic, [b"lost"] * 3, partition=2)
        kept = [client.send(topic, b"kept %d" % number, partition=0) for number in range(3)]
    assert [client.result(future).offset for future in kept] == [0, 1, 2]
    until(lambda: client.partitions_for(topic) == [0])

    def time_is_over() -> bool:  # of those that are left; none of them is on its way, which would leave it in doubt
        with client.producer_client.lock:
            left = list(client.producer_client.accumulator.incomplete)
            if any(batch.on_wire for batch in left):
                return False
            for batch in left:
                batch.deadline = 0.0
        return True

    until(time_is_over)
    client.producer_client.loop.wake()
    for partition, future in lost.items():
        error = client.exception(future)
        assert isinstance(error, errors.DeliveryTimeout) and not error.maybe_persisted, str(error)
        assert f"there is no partition {topic}-{partition}" in str(error)
    assert isinstance(client.exception(column), errors.DeliveryFailed)
    assert [type(error) for error in column.failures.values()] == [errors.DeliveryTimeout] * 3
    with pytest.raises(errors.UnknownTopicOrPartition, match=f"there is no partition 2 in topic '{topic}': it has 1"):
        client.send(topic, b"refused", partition=2)
    begin(client, topic, partition=None, value=b"anywhere")
    found = log()
    assert list(found) == [0] and {record.value for record in found[0][3:]} == {b"anywhere"}
    assert [record.value for record in found[0][:3]] == [b"kept 0", b"kept 1", b"kept 2"]


def test_batch_that_may_be_in_a_recreated_topic_keeps_its_number(make, cluster, topic, log, network):
    """Its request may still arrive, and if it were renumbered, the new log could accept it twice."""
    client = make(**QUICK, linger_ms=0, batch_size=300)
    for number in range(3):
        client.result(client.send(topic, b"old %d" % number, partition=0))
    network.response = lambda api: DROP if api == PRODUCE else PASS
    futures = [client.send(topic, b"new %d" % number * 30, partition=0) for number in range(5)]
    network.wait_for(PRODUCE, 4)
    with Admin(cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        with contextlib.suppress(errors.TopicAlreadyExists):  # created by a Metadata request, with as many partitions
            admin.create_topics([NewTopic(topic, 3, 1)])
    network.release()
    assert [client.result(future).offset for future in futures] == [0, 1, 2, 3, 4]
    assert [record.value for record in log()[0]] == [b"new %d" % number * 30 for number in range(5)]
    client.result(client.send(topic, b"after", partition=0))


def test_partitions_that_are_added_can_be_sent_to(make, cluster, topic):
    client = make()
    assert client.partitions_for(topic) == [0, 1, 2]
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_partitions({topic: 5})
    assert client.result(client.send(topic, b"x", partition=4)).partition == 4
    assert client.partitions_for(topic) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batch_too_large_for_the_topic_arrives_in_parts(make, cluster, topic, log, network, codec):
    """The values are noise: no codec makes them smaller."""
    codecs = set()

    def note(request):
        codecs.add(read_header(request.topic_data[0].partition_data[0].records).codec)
        return 0

    network.refuse = note
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, configs={"max.message.bytes": "2000"})])
    client = make(linger_ms=30, compression_type=codec)
    noise = random.Random(5)
    values = [b"%d " % number + noise.randbytes(60) for number in range(100)]
    futures = [client.send(topic, value, partition=0) for value in values]
    outcome = client.send_many(topic, values, partition=0)
    client.flush()
    assert [client.result(future).offset for future in futures] == list(range(100))
    assert outcome.offsets == list(range(100, 200))
    assert [record.value for record in log()[0]] == values * 2
    assert client.metrics()["batches_split"] >= 2 and codecs == {Compression.from_name(codec)}
    error = client.exception(client.send(topic, noise.randbytes(3000)))
    assert isinstance(error, errors.MessageTooLarge) and not error.maybe_persisted
    assert client.result(client.send(topic, b"after")).offset == 200


def test_a_restarted_broker_costs_no_record(make, topic):
    from pyclient.broker_embedded import EmbeddedCluster

    with EmbeddedCluster(config={"num.partitions": 3}) as own:
        client = make(own.bootstrap_servers, retry_backoff_ms=20, reconnect_backoff_ms=10, linger_ms=0)
        futures = [client.send(topic, b"%d" % number, partition=0) for number in range(50)]
        own.restart()
        futures += [client.send(topic, b"%d" % number, partition=0) for number in range(50, 100)]
        assert [client.result(future).offset for future in futures] == list(range(100))
        client.close()


def test_throttled_producer_sends_nothing_until_the_throttle_time_is_over(make, topic, network):
    """The broker asks for half a second of silence; only then the next request goes out (KIP-219)."""
    client = make(linger_ms=0)
    client.result(client.send(topic, b"first", partition=0))

    def throttle(frame):
        frame[-5:-1] = (500).to_bytes(4, "big")  # throttle_time_ms is the last field before the tags

    network.rewrite = spoil_once(PRODUCE, throttle)
    asked = time.monotonic()
    client.result(client.send(topic, b"second", partition=0))
    sent = network.requests.count(PRODUCE)
    future = client.send(topic, b"third", partition=0)
    while network.requests.count(PRODUCE) == sent and not future.done():
        time.sleep(0.005)  # between two looks
    assert time.monotonic() - asked >= 0.45
    assert client.result(future).offset == 2
