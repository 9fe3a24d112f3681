"""Error texts: what failed, for which topic and partition, why, and what to do."""

from __future__ import annotations

import re
import threading
import time

import pytest

from pyclient import errors
from pyclient.config import parse_address
from pyclient.producer.interceptors import ProducerInterceptor
from tests.patience import retry_until_error, retry_until_raised
from tests.producer.network import CUT, DROP, HOLD, METADATA, PASS, PRODUCE
from tests.producer.producer_clients import PATIENCE, begin
from tests.waiting import until

QUICK = {"request_timeout_ms": 500, "delivery_timeout_ms": 1000, "retry_backoff_ms": 20, "reconnect_backoff_ms": 10}
REFUSED = errors.TopicAuthorizationFailed


def assert_error(error, *parts):
    """Assert that the error's text contains the parts, in this order."""
    assert re.search(".*".join(map(re.escape, parts)), str(error), re.DOTALL), str(error)


def lose_the_broker(network, cluster):
    """End all connections and refuse new ones."""
    network.ports[parse_address(cluster.bootstrap_servers)[1]] = 1  # where nothing listens
    network.request = lambda api: CUT


def refuse(network, topic):
    """Refuse the topic in Metadata responses as long as there is an entry in the list that is returned."""
    refused = [REFUSED.code]

    def change(metadata):
        for each in metadata.topics:
            if each.name == topic and refused:
                each.error_code, each.partitions = refused[0], []

    network.metadata = change
    return refused


# -- memory


def test_buffer_exhausted_names_an_unreachable_broker(make, topic, network, cluster):
    client = make(batch_size=1024, buffer_memory=2048, max_block_ms=300, linger_ms=0)
    begin(client, topic)
    lose_the_broker(network, cluster)
    for _ in range(2):
        client.send(topic, b"x" * 800, partition=0)
    until(lambda: any("refused" in failure for failure in client.health()["last_failures"].values()), client.health)
    with pytest.raises(errors.BufferExhausted) as caught:
        client.send(topic, b"x" * 800, partition=2)
    assert_error(caught.value, "no 1024 of buffer_memory=2048 bytes became free within max_block_ms=300")
    assert_error(
        caught.value, f"2 batches were not confirmed yet, of {topic}-0 at node 1 ({cluster.bootstrap_servers})"
    )
    assert_error(caught.value, "last failures: ", "connection refused", "raise buffer_memory or max_block_ms")
    assert "more slowly" not in str(caught.value)
    assert_error(caught.value, f"for a record to topic {topic!r}, partition 2")


def test_buffer_exhausted_names_the_first_of_many_partitions(make, topic, network):
    client = make(batch_size=1024, buffer_memory=5 * 1024, max_block_ms=200, linger_ms=0)
    others = [f"{topic}-{name}" for name in "ab"]
    for name in (topic, *others):
        begin(client, name)
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    for name, partition in ((topic, 0), (topic, 1), (topic, 2), (others[0], 0), (others[1], 0)):
        client.send(name, b"x" * 800, partition=partition)
    with pytest.raises(errors.BufferExhausted) as caught:
        client.send(topic, b"x" * 800)
    assert_error(
        caught.value, "5 batches", f"{topic}-0 at node", f"{topic}-1 at", f"{topic}-2 at", "and 2 other partitions;"
    )
    assert_error(
        caught.value, "the cluster confirms more slowly than records are sent", "raise buffer_memory or max_block_ms"
    )
    network.release()


# -- topics and partitions


def test_unknown_partition_without_metadata_in_time_is_named(make, topic, network):
    client = make(max_block_ms=300)
    begin(client, topic)
    network.request = lambda api: DROP if api == METADATA else PASS
    with pytest.raises(errors.KafkaTimeout) as caught:
        client.send(topic, b"x", partition=9)
    assert_error(caught.value, f"topic {topic!r} has no partition 9 as far as is known: it had 3", "add partitions")
    assert_error(caught.value, "within 0.3 s", "raise max_block_ms")


def test_error_for_an_unknown_partition_says_what_to_do(make, topic):
    client = make(max_block_ms=2000)
    error = retry_until_raised(lambda: client.send(topic, b"x", partition=9), errors.UnknownTopicOrPartition)
    assert_error(
        error,
        f"no partition 9 in topic {topic!r}: it has 3",
        "within max_block_ms=2000",
        "send to one of them, or add partitions",
    )


def test_error_for_an_unknown_topic_says_how_to_create_it(make, topic, network):
    client = make(max_block_ms=300)
    refuse(network, topic)[0] = errors.UnknownTopicOrPartition.code
    says = rf"topic {topic!r} is not available \(UnknownTopicOrPartition\).*create it"
    text = retry_until_error(lambda: client.send(topic, b"x"), says)
    assert "auto.create.topics.enable=true" in text


def test_error_for_an_unreachable_cluster_says_what_to_check(make):
    client = make("127.0.0.1:1", max_block_ms=300)
    text = retry_until_error(lambda: client.send("t", b""), "connection refused")
    assert "topic 't' cannot be looked up" in text and "check bootstrap_servers" in text


def test_unauthorized_topic_is_requested_again_by_the_next_send(make, topic, network, cluster):
    client = make()
    refused = refuse(network, topic)
    with pytest.raises(REFUSED) as caught:
        client.send(topic, b"x")
    refusal = f"topic {topic!r}: broker {cluster.bootstrap_servers} refused"
    assert_error(caught.value, refusal, "needs DESCRIBE", "on the topic")
    with pytest.raises(REFUSED):
        client.send(topic, b"x")
    refused.clear()
    assert client.result(client.send(topic, b"x", partition=1)).partition == 1


def test_sends_to_an_unauthorized_topic_cause_few_requests(make, topic, network):
    client = make(retry_backoff_ms=200, retry_backoff_max_ms=200)
    refuse(network, topic)
    with pytest.raises(REFUSED):
        client.send(topic, b"x")
    asked, started = network.requests.count(METADATA), time.monotonic()

    def send():
        for _ in range(3):
            with pytest.raises(REFUSED):
                client.send(topic, b"x")

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    rounds = 1 + (time.monotonic() - started) / 0.1  # no pause is shorter than half of what it may be
    assert 3 <= network.requests.count(METADATA) - asked <= min(12, rounds)


def test_authorization_error_is_raised_if_no_retry_is_possible_in_time(make, topic, network):
    client = make(max_block_ms=1000)
    refuse(network, topic)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            client.send(topic, b"x")
        except REFUSED:
            break
        except errors.KafkaTimeout:  # a busy machine may not even have connected in that time
            assert time.monotonic() < deadline
    network.request = lambda api: DROP if api == METADATA else PASS
    with pytest.raises(REFUSED, match=f"topic '{topic}'"):
        client.send(topic, b"x")


# -- flush, purge and close


def test_flush_timeout_names_partition_broker_and_reason(make, topic, network, cluster):
    client = make(retry_backoff_ms=20, linger_ms=60_000, delivery_timeout_ms=200_000)
    client.send(topic, b"first", partition=0)
    client.flush()
    network.refuse = lambda request: errors.NotEnoughReplicas.code
    seen = network.requests.count(PRODUCE)
    futures = [client.send(topic, b"x", partition=partition) for partition in (0, 1)]
    with pytest.raises(errors.KafkaTimeout):
        client.flush(0)
    network.wait_for(PRODUCE, seen + 2)
    with pytest.raises(errors.KafkaTimeout) as caught:
        client.flush(0.2)
    place = f"at node 1 ({cluster.bootstrap_servers})"
    assert_error(caught.value, f"2 batches were not confirmed within 0.2 s, of {topic}-0 {place}, {topic}-1 {place}; ")
    assert_error(
        caught.value, "broker 1 did not take the batch", "they are still being sent: flush again with more time"
    )
    network.refuse = lambda request: 0
    assert [client.result(future).partition for future in futures] == [0, 1]


def test_flush_timeout_names_a_broker_that_has_not_answered(make, topic, network):
    client = make()
    begin(client, topic)
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    seen = network.requests.count(PRODUCE)
    client.send(topic, b"x", partition=1)
    network.wait_for(PRODUCE, seen + 1)
    with pytest.raises(errors.KafkaTimeout) as caught:
        client.flush(0.05)
    assert_error(caught.value, "1 batch was not confirmed within 0.05 s", f"{topic}-1: broker 1 has not answered")
    network.release()


def test_batch_future_timeout_names_an_unconfirmed_partition(make, topic):
    client = make(linger_ms=60_000, delivery_timeout_ms=200_000)
    future = client.send_many(topic, [b"x", b"y"], partition=2)
    with pytest.raises(errors.KafkaTimeout) as caught:
        future.exception(0.0 if client.name == "async" else 0.05)  # not on the loop's thread
    assert_error(caught.value, "2 records", f"{topic}-2", "wait longer")


@pytest.mark.parametrize("end", ["close", "purge"])
def test_errors_of_aborted_records_name_their_partition(make, topic, network, end):
    network.request = lambda api: DROP if api == PRODUCE else PASS
    client = make(linger_ms=60_000, delivery_timeout_ms=200_000)
    futures = {partition: client.send(topic, b"lingers", partition=partition) for partition in (0, 2)}
    if end == "purge":
        client.purge()
    with pytest.raises(errors.DeliveryFailed, match=rf"2 records were not delivered; .*{topic}-[02]: "):
        client.close(0) if end == "close" else client.flush()
    text = "was purged before it was sent" if end == "purge" else "flush() before close(), or give close() more time"
    for partition, future in futures.items():
        error = client.exception(future)
        assert isinstance(error, errors.ClosedError) and (end == "close" or not error.maybe_persisted)
        assert_error(error, f"{topic}-{partition}: ", text)


def test_flush_after_a_purge_does_not_raise_for_observed_records(make, topic):
    client = make(linger_ms=60_000, delivery_timeout_ms=200_000)
    future = client.send(topic, b"lingers", partition=0)
    client.purge()
    assert isinstance(client.exception(future), errors.ClosedError)
    client.flush()


@pytest.mark.parametrize("arrives", [True, False])
def test_a_delivery_timeout_says_whether_to_send_again(make, topic, network, cluster, arrives):
    client = make(**QUICK)
    begin(client, topic)
    if arrives:
        network.response = lambda api: DROP if api == PRODUCE else PASS
    else:
        lose_the_broker(network, cluster)
        client.exception(client.send(topic, b"cuts the connection", partition=0))
    for _ in range(15):  # a busy machine may not even send it in that time
        error = client.exception(client.send(topic, b"x", partition=0))
        if error.maybe_persisted is arrives:
            break
    assert isinstance(error, errors.DeliveryTimeout) and error.maybe_persisted is arrives
    assert_error(
        error, "check that before sending it again" if arrives else "it was not written, and can be sent again"
    )
    assert_error(error, "raise delivery_timeout_ms")


# -- columns


@pytest.mark.parametrize("interceptors", [[], [ProducerInterceptor()]])
def test_columns_of_different_lengths_are_named(make, topic, interceptors):
    client = make(interceptors=interceptors)
    with pytest.raises(ValueError, match="columns of one length") as caught:
        client.send_many(topic, [b"a", b"b"], keys=[b"a"] * 3, timestamps_ms=[1, 2])
    assert_error(caught.value, f"topic {topic!r}", "values has 2, keys has 3, timestamps_ms has 2")


@pytest.mark.parametrize("intercepted", [False, True])
def test_rows_that_send_many_refuses_are_counted_as_failed(make, topic, intercepted):
    client = make(max_request_size=2000, interceptors=[ProducerInterceptor()] if intercepted else [])
    outcome = client.send_many(topic, [b"a", "text", b"x" * 3000, b"b"], partition=0)
    assert isinstance(client.exception(outcome), errors.DeliveryFailed)
    assert sorted(outcome.failures) == [1, 2] and outcome.failed == 2
    assert client.metrics()["records_failed"] == 2
    for call, values in ((client.send, "text"), (client.send_many, ["text"])):  # which have no future
        with pytest.raises(errors.SerializationError):
            call(topic, values)
    assert client.metrics()["records_failed"] == 2
