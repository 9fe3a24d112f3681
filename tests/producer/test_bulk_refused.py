"""`send_many` when only some rows get memory: the future has the errors of the others."""

from __future__ import annotations

import contextlib

import pytest

from pyclient import errors
from pyclient.records import partition_for_key
from tests.producer.background import blocked, in_background
from tests.producer.producer_clients import begin
from tests.waiting import PATIENCE, until

SMALL = {"batch_size": 1024, "buffer_memory": 3 * 1024, "linger_ms": 0}
ROWS = 60  # of 100 bytes: twice the memory
VALUES = [b"%03d" % number + b"x" * 97 for number in range(ROWS)]
KEYS = [b"key %d" % (number % 7) for number in range(ROWS)]


def columns(given, way):
    """Return arguments of `send_many`: rows of one partition, or of three mixed, as lists or Arrow arrays."""
    pa = pytest.importorskip("pyarrow") if given == "Arrow" else None
    values, keys = (pa.array(VALUES), pa.array(KEYS)) if pa else (VALUES, KEYS)
    return {"values": values, **({"partition": 1} if way == "one partition" else {"keys": keys})}


def check(client, outcome, found, error, says):
    """Assert that rows failed with that error, and exactly the others are in the log; return how many failed."""
    failure = client.exception(outcome)
    refused = outcome.failures
    assert isinstance(failure, errors.DeliveryFailed) and failure.count == len(refused) == outcome.failed
    assert {type(one) for one in refused.values()} == {error}
    assert all(says in str(one) for one in refused.values())
    places = list(zip(outcome.partitions, outcome.offsets, strict=True))
    assert {row for row, place in enumerate(places) if place[1] < 0} == set(refused)
    arrived = [row for row in range(ROWS) if row not in refused]
    assert outcome.delivered == len(arrived)
    for row in arrived:
        assert found[places[row][0]][places[row][1]].value == VALUES[row]
        assert client.result(outcome[row]).offset == places[row][1]
    assert all(type(client.exception(outcome[row])) is error for row in refused)
    written = [record.value for records in found.values() for record in records if record.value != b"first"]
    assert sorted(written) == [VALUES[row] for row in arrived], "nothing that was refused, and nothing twice"
    return len(refused)


@pytest.mark.parametrize("given", ["lists", "Arrow"])
@pytest.mark.parametrize("way", ["one partition", "keys"])
def test_rows_without_memory_in_time_fail_and_the_others_arrive(make, cluster, topic, log, given, way):
    client = make(max_block_ms=100, **SMALL)
    begin(client, topic)
    with cluster.faults.hold("Produce", topic=topic, times=None) as held:
        outcome = client.send_many(topic, **columns(given, way))
        held.wait()
        assert outcome.failed and not outcome.done(), "some were refused, others are on their way"
        held.release()
        client.exception(outcome)
    failed = check(client, outcome, log(), errors.BufferExhausted, "max_block_ms=100")
    taken = [row for row in range(ROWS) if row not in outcome.failures]
    if way == "one partition":
        assert taken == list(range(len(taken))), "as far as memory went"
    else:
        assert len({partition_for_key(KEYS[row], 3) for row in outcome.failures}) > 1
    assert 0 < failed < ROWS and client.metrics()["records_failed"] == failed
    client.flush()  # all results were observed
    assert client.health()["buffer_bytes_used"] == 0


@pytest.mark.parametrize("given", ["lists", "Arrow"])
@pytest.mark.parametrize("way", ["one partition", "keys"])
def test_close_wakes_a_waiting_send_many_and_its_accepted_rows_arrive(make, cluster, topic, log, given, way):
    client = make(**SMALL)
    begin(client, topic)
    with cluster.faults.hold("Produce", topic=topic, times=None) as held:
        sending = in_background(lambda: client.send_many(topic, **columns(given, way)))
        blocked(client)
        closing = in_background(lambda: client.close(PATIENCE))
        outcome = sending.result(PATIENCE)
        assert outcome.failed and not closing.done()
        held.release()
        with contextlib.suppress(errors.DeliveryFailed):  # unless the refused ones were observed first
            closing.result(PATIENCE)
    check(client, outcome, log(), errors.ClosedError, "the producer is closed")


def test_close_wakes_a_send_many_that_accepted_no_row(make, cluster, topic):
    client = make(**SMALL)
    begin(client, topic)
    with cluster.faults.hold("Produce", topic=topic, times=None) as held:
        accepted = [client.send(topic, b"x" * 800, partition=0) for _ in range(3)]
        until(lambda: client.metrics()["requests_in_flight"] == 3, "a batch still takes rows")
        sending = in_background(lambda: client.send_many(topic, VALUES))
        blocked(client)
        closing = in_background(lambda: client.close(PATIENCE))
        with pytest.raises(errors.ClosedError, match="the producer is closed"):
            sending.result(PATIENCE)
        held.release()
        closing.result(PATIENCE)
    assert [client.exception(future) for future in accepted] == [None] * 3
