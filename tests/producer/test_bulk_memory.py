"""`send_many` makes no Python object for each record, neither while it runs nor in the future that is kept."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

from tests.producer.background import blocked, in_background
from tests.producer.producer_clients import begin
from tests.waiting import PATIENCE, until

ROWS = 100_000
FEW = 10_000  # to begin with, as the first call of a process makes objects that stay
BUFFER = 64 * 1024  # bytes, less than these take
BLOCKS = ROWS // 20  # of memory, such as an object takes one or more of
BYTES = BUFFER + 16 * ROWS  # a `bytes` of 8 takes 41, and 8 more in its list; the row's number 4 where there are keys


def columns(given, keyed):
    values = [b"%08d" % number for number in range(ROWS)]
    keys = [b"key %04d" % (number % 1000) for number in range(ROWS)] if keyed else None
    if given == "lists":
        return values, keys
    pa = pytest.importorskip("pyarrow")
    return pa.array(values), pa.array(keys) if keyed else None


def allocated():
    gc.collect()
    return sys.getallocatedblocks()


def send_and_look(client, cluster, topic, values, keys):
    """Return the delivered column's future, the additional blocks during the call, and the most bytes until then."""
    before = allocated()
    with cluster.faults.hold("Produce", topic=topic, times=None) as held:
        tracemalloc.start()
        try:
            sending = in_background(lambda: client.send_many(topic, values, keys))
            blocked(client)  # it has read the columns, written some rows, and waits for memory
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        during = allocated() - before
        held.release()
        outcome = sending.result(PATIENCE)
    assert client.exception(outcome) is None and outcome.delivered == len(values)
    return outcome, during, peak


@pytest.mark.compiled
@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("given", ["lists", "Arrow"])
def test_a_column_costs_no_object_for_each_record(make, cluster, topic, given, keyed):
    client = make(batch_size=8192, buffer_memory=BUFFER, linger_ms=0)
    begin(client, topic)
    values, keys = columns(given, keyed)
    send_and_look(client, cluster, topic, values[:FEW], None if keys is None else keys[:FEW])
    before = allocated()
    outcome, during, peak = send_and_look(client, cluster, topic, values, keys)
    assert during < BLOCKS and peak < BYTES, "while it runs"
    until(lambda: allocated() - before < BLOCKS, "something is kept for each record")
    assert len(outcome) == ROWS, "the future is still there"
