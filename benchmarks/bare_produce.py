"""What a socket alone can have a broker write: no client, batches that were built before, five requests under way.

The batches are what the measured clients send (their size, their records), without a producer id: a broker writes
those of an idempotent producer as quickly. One node is expected, which leads all partitions.
"""

from __future__ import annotations

import time

from benchmarks.broker_load import IN_FLIGHT, Wire, check_produced, produce_request
from benchmarks.broker_nodes import address_of
from benchmarks.produce_work import Produce
from benchmarks.timed_work import BATCH_BYTES, Figures, values
from pyclient import Admin
from pyclient.records import BatchBuilder, Compression

_TOGETHER = 6  # batches of different partitions in a request, where there are so many; with 12 a broker is no quicker
_PATIENCE = 10.0  # seconds


def produce_bare(servers: str, topic: str, size: int, codec: str) -> Produce:
    """Fills the partitions in turn, as many records as are wanted and up to a request more."""
    with Admin(servers) as admin:
        partitions = len(admin.describe_topics([topic])[topic].partitions)
    records, each = _batch(size, codec)
    groups = [range(first, min(first + _TOGETHER, partitions)) for first in range(0, partitions, _TOGETHER)]
    requests = [produce_request(topic, records, group) for group in groups]
    wire = Wire(address_of(servers))
    for request in requests:
        _written(wire, request)

    def run(count: int) -> Figures:
        done = sent = answered = 0
        while done < count or answered < sent:
            while done < count and sent - answered < IN_FLIGHT:
                turn = sent % len(requests)
                wire.socket.sendall(requests[turn])
                done += each * len(groups[turn])
                sent += 1
            check_produced(wire.answer())
            answered += 1
        return {"count": done}

    return run


def _written(wire: Wire, request: bytes) -> None:
    """Sends a request until it succeeds: a topic's leader may learn of it a little later than whoever created it."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        wire.socket.sendall(request)
        try:
            check_produced(wire.answer())
            return
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _batch(size: int, codec: str) -> tuple[bytes, int]:
    """A full batch, and how many records are in it."""
    builder, rows = BatchBuilder(bytearray(BATCH_BYTES), None), values(size)
    now, n = time.time_ns() // 1_000_000, 0
    while builder.append(now, None, rows[n % len(rows)], None) is not None:
        n += 1
    return bytes(builder.seal(compression=Compression.from_name(codec))), n
