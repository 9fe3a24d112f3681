"""`purge` fails waiting records and leaves those in flight."""

from __future__ import annotations

import pytest

from pyclient import errors
from tests.producer.background import in_background
from tests.waiting import PATIENCE

ONE_AT_A_TIME = {"max_in_flight_requests_per_connection": 1}


def is_purged(error):
    return isinstance(error, errors.ClosedError) and "purged" in str(error) and not error.maybe_persisted


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_purge_fails_waiting_records_and_not_those_in_flight(make, cluster, topic, log, linger_ms):
    """One batch is in flight; others wait for its response, or linger."""
    client = make(linger_ms=linger_ms, batch_size=300, delivery_timeout_ms=120_000, **ONE_AT_A_TIME)
    client.send(topic, b"first", partition=0)
    client.flush()
    with cluster.faults.hold("Produce", topic=topic, times=None) as held:
        on_its_way = client.send(topic, b"on its way", partition=0)
        flushing = in_background(client.flush)
        held.wait()
        waiting = [client.send(topic, b"waits", partition=partition) for partition in (0, 0, 2)]
        column = client.send_many(topic, [b"waits"] * 90, partition=1)
        client.purge()
        assert all(is_purged(client.exception(future)) for future in waiting)
        assert isinstance(client.exception(column), errors.DeliveryFailed)
        assert sorted(column.failures) == list(range(90)) and all(map(is_purged, column.failures.values()))
        assert not on_its_way.done() and client.health()["requests_in_flight"] == 1
        held.release()
        flushing.result(PATIENCE)
    assert client.result(on_its_way).offset == 1
    after = client.send_many(topic, [b"after"] * 3, partition=0)
    client.flush()
    assert client.exception(after) is None and client.health()["buffer_bytes_used"] == 0
    assert client.metrics()["records_failed"] == 93
    found = {partition: [record.value for record in records] for partition, records in log().items()}
    assert found == {0: [b"first", b"on its way", *[b"after"] * 3], 1: [], 2: []}
