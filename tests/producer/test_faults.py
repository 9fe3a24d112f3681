"""The producer's guarantees while requests and responses are lost, held or cut."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from pyclient import errors
from pyclient.config import parse_address
from tests.interpreter import FREE_THREADED
from tests.producer.log import read_log
from tests.producer.network import CUT, DROP, HOLD, PASS, PRODUCE
from tests.producer.producer_clients import begin
from tests.waiting import until

QUICK = {"request_timeout_ms": 500, "delivery_timeout_ms": 1000, "retry_backoff_ms": 20, "reconnect_backoff_ms": 10}


def once(outcome, api):
    """Return a rule that applies the outcome to one message of this API."""
    left = [outcome]
    return lambda seen: left.pop() if seen == api and left else PASS


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize("outcome", [CUT, DROP])
def test_a_loss_in_the_middle_keeps_order_without_gap_or_duplicate(make, topic, log, network, side, outcome):
    client = make(batch_size=300, linger_ms=0, **QUICK | {"delivery_timeout_ms": 60_000})
    client.result(client.send(topic, b"first", partition=0))
    setattr(network, side, once(outcome, PRODUCE))
    futures = [client.send(topic, b"%d" % number * 20, partition=0) for number in range(400)]
    assert [client.result(future).offset for future in futures] == list(range(1, 401))
    assert [record.value for record in log()[0]] == [b"first"] + [b"%d" % number * 20 for number in range(400)]


def test_every_future_fails_within_the_delivery_timeout_without_response(make, topic, network):
    client = make(**QUICK)
    begin(client, topic)
    network.request = lambda api: DROP if api == PRODUCE else PASS
    for _ in range(15):  # a busy machine may not even send some in that time
        started = time.monotonic()
        found = [client.exception(future) for future in [client.send(topic, b"lost") for _ in range(10)]]
        assert 0.9 <= time.monotonic() - started <= 20
        assert all(isinstance(error, errors.DeliveryTimeout) for error in found)
        assert all("delivery_timeout_ms=1000" in str(error) for error in found)
        if all(error.maybe_persisted for error in found):
            break
    assert all(error.maybe_persisted for error in found)


def test_a_record_that_was_never_sent_is_certainly_not_written(make, topic, network):
    client = make(**QUICK)
    begin(client, topic)
    network.response = once(CUT, PRODUCE)
    network.request = lambda api: CUT
    client.exception(client.send(topic, b"cuts the connection"))
    error = client.exception(client.send(topic, b"has no connection"))
    assert isinstance(error, errors.DeliveryTimeout) and not error.maybe_persisted


def test_a_lost_answer_leaves_the_outcome_unknown(make, topic, log, network):
    client = make(acks=1, retries=0)
    client.result(client.send(topic, b"first", partition=0))
    network.response = once(CUT, PRODUCE)
    error = client.exception(client.send(topic, b"second", partition=0))
    assert isinstance(error, errors.ConnectionFailed) and error.maybe_persisted
    assert [record.value for record in log()[0]] == [b"first", b"second"]


def test_a_buffer_is_not_reused_while_its_request_is_on_the_way(make, cluster, topic, log, network):
    """A request that outlives its records' delivery timeout must still carry their bytes (CVE-2026-35554)."""
    client = make(
        batch_size=1024,
        buffer_memory=3 * 1024,
        linger_ms=0,
        request_timeout_ms=900,
        delivery_timeout_ms=1000,
    )
    other = f"{topic}-other"
    begin(client, topic)
    begin(client, other)
    held = []

    def hold_the_first(api):
        if api == PRODUCE and not held:
            held.append(api)
            return HOLD
        return PASS

    network.request = hold_the_first
    # the first attempt is held by reference; its timeout ends the connection, so the bytes may never arrive anywhere
    stalled = client.send(topic, b"A" * 500, partition=0)
    written = [client.send(other, b"B%d" % number * 100, partition=0) for number in range(50)]
    assert None in [
        client.exception(future) for future in written
    ]  # the end of the connection may cost some their time
    client.exception(stalled)
    network.release()
    client.flush()
    assert {record.value for record in log()[0]} <= {b"first", b"A" * 500}
    others = {record.value for record in read_log(cluster.bootstrap_servers, other)[0]}
    assert others <= {b"first", *(b"B%d" % number * 100 for number in range(50))}
    assert client.health()["buffer_bytes_used"] == 0


def test_buffers_of_expired_records_come_back_when_their_requests_end(make, topic, network):
    client = make(batch_size=1024, buffer_memory=4 * 1024, linger_ms=0, **QUICK | {"request_timeout_ms": 900})
    begin(client, topic)
    network.response = lambda api: DROP if api == PRODUCE else PASS
    futures = [client.send(topic, b"x" * 800, partition=0) for _ in range(4)]
    for future in futures:
        assert isinstance(client.exception(future), errors.KafkaTimeout)
    network.release()
    begin(client, topic)
    client.flush()
    assert client.health()["buffer_bytes_used"] == 0


def test_full_buffer_blocks_send_and_then_raises(make, topic, network):
    client = make(batch_size=1024, buffer_memory=2048, max_block_ms=200, linger_ms=0)
    begin(client, topic)
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    accepted = []
    started = time.monotonic()
    with pytest.raises(errors.BufferExhausted, match=r"buffer_memory=2048.*max_block_ms=200") as caught:
        for _ in range(100):
            accepted += [client.send(topic, b"x" * 800, partition=0)]
    assert isinstance(caught.value, BufferError) and isinstance(caught.value, errors.KafkaTimeout)
    assert isinstance(caught.value, TimeoutError) and len(accepted) == 2
    assert time.monotonic() - started >= 0.2
    with pytest.raises(errors.BufferExhausted):  # a column of which nothing fits is refused like a record
        client.send_many(topic, [b"y" * 800] * 3, partition=0)
    network.release()
    first, second = (client.result(future).offset for future in accepted)
    assert second == first + 1


def test_blocked_send_continues_when_memory_is_free(make, topic, network):
    client = make(batch_size=1024, buffer_memory=2048, linger_ms=0)
    client.result(client.send(topic, b"first", partition=0))
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    futures = [client.send(topic, b"x" * 800, partition=0) for _ in range(2)]
    releaser = threading.Timer(0.1, network.release)
    releaser.start()
    futures += [client.send(topic, b"x" * 800, partition=0) for _ in range(20)]
    assert [client.result(future).offset for future in futures] == list(range(1, 23))
    releaser.join()


def test_closing_wakes_a_send_that_waits_for_memory(make, topic, network):
    client = make(batch_size=1024, buffer_memory=1024, linger_ms=0)
    client.result(client.send(topic, b"first", partition=0))
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    accepted = client.send(topic, b"x" * 800, partition=0)
    outcome = []

    def blocked():
        try:
            client.send(topic, b"x" * 800, partition=0)
        except errors.KafkaError as error:
            outcome.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    until(lambda: client.health()["sends_blocked"])
    with pytest.raises(errors.DeliveryFailed):
        client.close(timeout=0.1)
    thread.join(30)
    assert isinstance(outcome[0], errors.ClosedError)
    assert isinstance(client.exception(accepted), errors.ClosedError)


# -- flush, close and unobserved failures


def test_flush_raises_for_records_that_failed_unobserved(make, topic, network):
    client = make(**QUICK)
    begin(client, topic)
    network.request = lambda api: DROP if api == PRODUCE else PASS
    kept = [client.send(topic, b"x") for _ in range(3)]
    assert isinstance(client.exception(kept[0]), errors.DeliveryTimeout)
    with pytest.raises(errors.DeliveryFailed) as caught:
        client.flush()
    assert caught.value.count == 2 and isinstance(caught.value.first_error, errors.DeliveryTimeout)
    client.flush()


def test_failure_with_an_unobserved_future_is_logged_and_raised(make, topic, network, caplog):
    client = make(**QUICK)
    begin(client, topic)
    network.request = lambda api: DROP if api == PRODUCE else PASS
    with caplog.at_level(logging.ERROR, logger="pyclient.producer"):
        for _ in range(5):
            client.send(topic, b"x", partition=1)
        with pytest.raises(errors.DeliveryFailed, match="5 records were not delivered"):
            client.flush()
        future = client.send(topic, b"x", partition=1)
        del future
        says = f"1 record was not delivered to {topic}-1, and the result was not checked"
        until(lambda: says in caplog.text, lambda: caplog.text)
    with pytest.raises(errors.DeliveryFailed, match="1 record was not"):
        client.close()


def test_flush_timeout_does_not_fail_the_records(make, topic, network):
    client = make()
    client.result(client.send(topic, b"first", partition=0))
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    future = client.send(topic, b"second", partition=0)
    with pytest.raises(errors.KafkaTimeout, match=r"1 batch was not confirmed within 0\.2 s"):
        client.flush(timeout=0.2)
    network.release()
    assert client.result(future).offset == 1


def test_close_delivers_everything_that_was_accepted(make, topic, log):
    client = make(linger_ms=60_000, delivery_timeout_ms=120_000)
    for number in range(20_000):
        client.send(topic, b"%d" % number, partition=0)
    client.close(timeout=None)
    assert [record.value for record in log()[0]] == [b"%d" % number for number in range(20_000)]


def test_close_with_a_timeout_fails_the_remaining_records(make, topic, network):
    client = make()
    client.result(client.send(topic, b"first", partition=0))
    network.request = lambda api: DROP if api == PRODUCE else PASS
    sent = client.send(topic, b"sent", partition=0)
    network.wait_for(PRODUCE, 2)
    started = time.monotonic()
    with pytest.raises(errors.DeliveryFailed, match="1 record was not delivered"):
        client.close(timeout=0.5)
    assert time.monotonic() - started < 20
    error = client.exception(sent)
    assert isinstance(error, errors.ClosedError) and error.maybe_persisted


@pytest.mark.parametrize("end", ["close", "purge"])
def test_batches_failed_together_are_logged_in_one_line(make, topic, network, caplog, end):
    client = make(
        batch_size=200, linger_ms=60_000, delivery_timeout_ms=200_000, max_in_flight_requests_per_connection=1
    )
    client.send(topic, b"first", partition=0)
    client.flush()
    network.request = lambda api: DROP if api == PRODUCE else PASS
    seen = network.requests.count(PRODUCE)
    with caplog.at_level(logging.ERROR, logger="pyclient.producer"):
        client.send_many(topic, [b"x" * 150] * 20, partition=0)
        network.wait_for(PRODUCE, seen + 1)
        client.send_many(topic, [b"x" * 150] * 19, partition=1)
        if end == "close":
            with pytest.raises(errors.DeliveryFailed, match="39 records were not delivered"):
                client.close(timeout=0)
        else:
            client.purge()
            with pytest.raises(errors.KafkaTimeout):  # one is on its way
                client.flush(0)

        def numbers():
            return [int(line.split()[0]) for line in caplog.messages]

        # the sender may have held the lock, and logs in its next turn
        until(lambda: sum(numbers()) >= 30, lambda: caplog.messages)
    logged = numbers()
    assert sum(logged) <= 39 and "not delivered to" in caplog.messages[0]
    if not FREE_THREADED:  # there an object may be freed later, by the thread that created it
        assert max(logged) >= 30 and any("and 1 other partition," in line for line in caplog.messages)
        assert len(logged) <= 3, "it, and those that something still referred to"


def test_error_of_a_record_names_an_unreachable_broker(make, topic, network, cluster):
    client = make(**QUICK)
    begin(client, topic)
    network.ports[parse_address(cluster.bootstrap_servers)[1]] = 1  # where nothing listens
    network.request = lambda api: CUT
    client.exception(client.send(topic, b"cuts the connection"))
    error = client.exception(client.send(topic, b"has no connection"))
    assert isinstance(error, errors.DeliveryTimeout) and not error.maybe_persisted
    assert "it could not be sent to broker 1; last failures: " in str(error) and "connection refused" in str(error)


def test_close_does_not_wait_for_a_cluster_that_is_down(make):
    client = make("127.0.0.1:1", max_block_ms=100)
    with pytest.raises(errors.KafkaTimeout, match="topic 't' cannot be looked up, as no broker has answered yet"):
        client.send("t", b"")
    started = time.monotonic()
    client.close(timeout=2)
    assert time.monotonic() - started < 20


def test_purge_fails_only_unsent_records(make, topic, network):
    client = make(linger_ms=60_000, delivery_timeout_ms=120_000)
    waiting = client.send(topic, b"lingers", partition=0)
    client.purge()
    error = client.exception(waiting)
    assert isinstance(error, errors.ClosedError) and not error.maybe_persisted and "purged" in str(error)
    after = client.send(topic, b"after", partition=0)
    client.flush()
    assert client.result(after).offset == 0


# -- callbacks


def test_callbacks_run_by_themselves_in_order_and_may_send(make, topic, log):
    """Each sends one record more, to another partition: from the callbacks' thread, or by a task of its loop."""
    client = make()
    seen, tasks, answered, done = [], [], [], threading.Event()

    def delivered(future):
        seen.append(future.result(0).offset)
        sending = client.producer.send(topic, b"%d" % seen[-1], partition=1, on_delivery=delivered_again)
        if client.name == "async":
            tasks.append(asyncio.ensure_future(sending))

    def delivered_again(future):
        answered.append(future.result(0).offset)
        if len(answered) == 100:
            done.set()

    for _ in range(100):
        client.send(topic, b"x", partition=0, on_delivery=delivered)
    assert done.wait(60)
    assert seen == answered == list(range(100))
    assert sorted(int(record.value) for record in log()[1]) == list(range(100))


def test_flush_waits_for_callbacks(make, topic):
    client = make()
    seen = []
    slowly = 0.1  # seconds that the user's own work takes
    future = client.send(topic, b"x", on_delivery=lambda future: (time.sleep(slowly), seen.append(future)))
    client.flush()
    assert len(seen) == 1 and seen[0].result(0) == client.result(future)


def test_callback_that_raises_is_logged_and_affects_no_other(make, topic, caplog):
    client = make()
    seen = []
    client.send(topic, b"x", on_delivery=lambda future: 1 / 0)
    client.send(topic, b"x", on_delivery=seen.append)
    client.flush()
    assert len(seen) == 1 and "ZeroDivisionError" in caplog.text
    late = client.send(topic, b"x")
    client.flush()
    late.add_done_callback(seen.append)
    client.flush()
    assert len(seen) == 2


def test_a_callback_gets_the_failure(make, topic, network):
    client = make(**QUICK)
    begin(client, topic)
    network.request = lambda api: DROP if api == PRODUCE else PASS
    seen = []
    client.send(topic, b"x", on_delivery=lambda future: seen.append(future.exception(0)))
    client.flush()
    assert isinstance(seen[0], errors.DeliveryTimeout)
