"""The produce rate of bare sockets: no client, prebuilt batches, five requests in flight.

As in our producer, several partitions use several connections: Kafka handles a connection's requests one at a time.

The batches are what the measured clients send (their size, their records), without a producer id: a broker writes
those of an idempotent producer as quickly. One node is expected, which leads all partitions.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.broker_load import IN_FLIGHT, Wire, check_produced, produce_request
from benchmarks.broker_nodes import address_of
from benchmarks.produce_work import Produce
from benchmarks.timed_work import BATCH_BYTES, Figures, values
from pyclient import Admin
from pyclient.records import BatchBuilder, Compression

_CONNECTIONS = 3
_PATIENCE = 10.0  # seconds


def produce_bare(servers: str, topic: str, size: int, codec: str) -> Produce:
    """Fill the partitions alternately, with the wanted number of records and up to one more request per connection."""
    with Admin(servers) as admin:
        partitions = len(admin.describe_topics([topic])[topic].partitions)
    records, each = _batch(size, codec)
    pipes = [
        _Pipe(servers, produce_request(topic, records, numbers), each * len(numbers))
        for first in range(min(_CONNECTIONS, partitions))
        if (numbers := range(first, partitions, _CONNECTIONS))
    ]
    threads = ThreadPoolExecutor(len(pipes))

    def run(count: int) -> Figures:
        return {"count": sum(threads.map(lambda pipe: pipe.run(count // len(pipes)), pipes))}

    return run


class _Pipe:
    """A connection for some of the partitions, and the request for them."""

    def __init__(self, servers: str, request: bytes, records: int) -> None:
        self._wire = Wire(address_of(servers))
        self._request = request
        self._records = records
        _written(self._wire, request)

    def run(self, count: int) -> int:
        """Send so many records, or the rest of a request more; return their number."""
        wire, requests = self._wire, -(-count // self._records)
        for number in range(requests + IN_FLIGHT):
            if number >= IN_FLIGHT:
                check_produced(wire.answer())
            if number < requests:
                wire.socket.sendall(self._request)
        return requests * self._records


def _written(wire: Wire, request: bytes) -> None:
    """Send a request until it succeeds: the leader may learn of a new topic a little later than the client."""
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
    """Return a full batch and the number of its records."""
    builder, rows = BatchBuilder(bytearray(BATCH_BYTES), None), values(size)
    now, n = time.time_ns() // 1_000_000, 0
    while builder.append(now, None, rows[n % len(rows)], None) is not None:
        n += 1
    return bytes(builder.seal(compression=Compression.from_name(codec))), n
