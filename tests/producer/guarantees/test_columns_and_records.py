"""`send` and `send_many` from many threads into the same batches: every future knows its own record's place."""

from __future__ import annotations

import sys
import threading

import pytest

from pyclient import Producer
from tests.producer.log import read_log

THREADS = 6
CALLS = 25


@pytest.mark.parametrize("columns", ["lists", "headers", "Arrow"])
def test_concurrent_columns_and_single_records_keep_their_offsets(cluster, topic, columns):
    """Guarantee 21: a future's offset is that of its record, with concurrent appends too."""
    pa = pytest.importorskip("pyarrow")
    singles, many, wrong = [], [], []
    headers = [("a", b"1")] if columns == "headers" else None

    def one_by_one(number, producer):
        for n in range(CALLS * 30):
            value = b"one %d %d" % (number, n)
            singles.append((value, producer.send(topic, value, partition=0, headers=headers)))

    def by_column(number, producer):
        for n in range(CALLS):
            values = [b"many %d %d %d" % (number, n, row) for row in range(30)]
            given = pa.array(values) if columns == "Arrow" else values
            more = [headers] * 30 if headers else None
            many.append((values, producer.send_many(topic, given, partition=0, headers=more)))

    def run(work, number, producer):
        try:
            work(number, producer)
        except BaseException as error:
            wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Producer(cluster.bootstrap_servers, batch_size=700) as producer:
            works = [one_by_one if number % 2 else by_column for number in range(THREADS)]
            threads = [threading.Thread(target=run, args=(work, at, producer)) for at, work in enumerate(works)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    log = {record.offset: record.value for record in read_log(cluster.bootstrap_servers, topic)[0]}
    delivered = {future.result(0).offset: value for value, future in singles}
    for values, outcome in many:
        delivered |= dict(zip(outcome.offsets, values, strict=True))
    assert delivered == log
    assert len(log) == THREADS // 2 * CALLS * 30 * 2
