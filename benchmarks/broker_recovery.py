"""Small requests to one partition while the node that serves them recovers another, after a kill.

`python -m benchmarks.broker_recovery [--megabytes 256]`: so much of the other one was never flushed. The node runs in a
process of its own.
"""

from __future__ import annotations

import argparse
import socket
import struct
import threading
import time
from typing import Any

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.clock import SYSTEM_CLOCK
from pyclient.protocol import codec, framing
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import build_batch

MIB = 1 << 20


class Wired:
    """A connection that sends prepared requests and waits for each answer."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Wired:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def call(self, request: bytes) -> bytes:
        """Return the answer, without its length."""
        self._socket.sendall(request)
        head = self._socket.recv(4, socket.MSG_WAITALL)
        return self._socket.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)


def framed(request: Any, version: int) -> bytes:
    """Return a request as it is sent."""
    return b"".join(framing.encode_request(request, version, 1, "bench"))  # type: ignore[arg-type]


def _topic(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])


def _produced(topic: str, value: bytes, count: int) -> bytes:
    records = build_batch([(None, value)] * count, timestamp_ms=SYSTEM_CLOCK.time_ms())
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return framed(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9)


def _asked(topic: str) -> bytes:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return framed(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]), 5)


def _until_there(bootstrap: str, started: float, notes: list[str]) -> None:
    """Request the partition that is recovered until it is there."""
    with Wired(bootstrap) as wire:
        while True:
            answer = wire.call(_asked("large"))
            _, offset = framing.decode_response_header(ListOffsetsRequest, 5, answer)
            partition = codec.decode(ListOffsetsResponse, 5, answer, offset).topics[0].partitions[0]
            if not partition.error_code:
                break
        passed = time.perf_counter() - started
        notes.append(f"the recovered one is there after {passed:.2f} s, {partition.offset:,} records")


def measure(amount: int, records: int) -> list[str]:
    """Return the figures with `records` records of 100 B in a batch."""
    notes: list[str] = []
    batch, wanted = _produced("large", b"x" * 100, records), _asked("small")
    with EmbeddedCluster(processes=True) as cluster:
        with Wired(cluster.bootstrap_servers) as wire:
            wire.call(framed(CreateTopicsRequest(topics=[_topic("large"), _topic("small")]), 7))
            for _ in range(amount // len(batch)):
                wire.call(batch)
            wire.call(_produced("small", b"x", 1))
        took = {}
        for what in ("nothing else", "a recovery"):
            if what == "a recovery":
                cluster.kill()
                started = time.perf_counter()
                cluster.start()
                late = threading.Thread(target=_until_there, args=(cluster.bootstrap_servers, started, notes))
            else:
                late = threading.Thread(target=time.sleep, args=(1,))
            with Wired(cluster.bootstrap_servers) as wire:
                wire.call(wanted)
                if what == "a recovery":
                    notes.append(
                        f"first answer after {time.perf_counter() - started:.2f} s, the process's start with it"
                    )
                late.start()
                found = took[what] = []
                while late.is_alive():
                    asked = time.perf_counter()
                    wire.call(wanted)
                    found.append((time.perf_counter() - asked) * 1e3)
                    time.sleep(0.001)
            late.join()
    for what, found in took.items():
        found.sort()
        shares = ", ".join(f"p{share * 100:g} {found[int(len(found) * share)]:.2f}" for share in (0.5, 0.99))
        notes.append(f"{len(found):,} small requests during {what}: {shares}, longest {found[-1]:.2f} ms")
    return notes


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256, help="that were not flushed")
    options = parser.parse_args()
    for records in (160, 9000):
        print(f"batches of {records * 107 >> 10} KiB, {options.megabytes} MiB:")
        for note in measure(options.megabytes * MIB, records):
            print("  " + note)


if __name__ == "__main__":
    main()
