"""Load on a broker over raw sockets, with prebuilt requests: the client costs as little as possible in Python."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.broker_nodes import Cpu, Node
from pyclient.protocol import framing
from pyclient.protocol.fields import Request
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import BatchBuilder

IN_FLIGHT = 5
_LENGTH = struct.Struct(">i")
_PRODUCE_VERSION = 9
_FETCH_VERSION = 11


@dataclass
class Load:
    """The result of a run: bytes or requests in `seconds`, and the broker's processor time meanwhile."""

    amount: float
    seconds: float
    cpu: Cpu
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The amount a second."""
        return self.amount / self.seconds

    def percentile(self, share: float) -> float:
        """Return a latency in seconds."""
        return sorted(self.latencies)[min(int(share * len(self.latencies)), len(self.latencies) - 1)]


def measured(node: Node, work: Callable[[], tuple[float, list[float]]]) -> Load:
    """Run `work`, which returns the amount done and perhaps latencies."""
    before, started = node.cpu(), time.perf_counter()
    amount, latencies = work()
    seconds, after = time.perf_counter() - started, node.cpu()
    return Load(amount, seconds, Cpu(after.user - before.user, after.system - before.system), latencies)


class Wire:
    """One connection that sends prepared requests and counts the answers."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def answer(self) -> bytes:
        """Return the first kilobytes of the next answer, all of which is read."""
        head = self._exactly(4)
        left = size = _LENGTH.unpack(head)[0]
        kept = b""
        view = memoryview(self._buffer)
        while left:
            count = self.socket.recv_into(view, min(left, len(view)))
            if not count:
                raise ConnectionError("the broker closed the connection")
            if not kept:
                kept = bytes(view[: min(count, 4096)])
            left -= count
        self.size = size
        return kept

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def pipeline(self, request: bytes, seconds: float, check: Callable[[bytes], None]) -> int:
        """Keep `IN_FLIGHT` requests in flight for `seconds`. Return how many were answered."""
        end = time.perf_counter() + seconds
        return self._while(lambda _sent: time.perf_counter() < end, request, check)

    def repeat(self, request: bytes, count: int, check: Callable[[bytes], None]) -> int:
        """Keep `IN_FLIGHT` requests in flight until `count` were answered."""
        return self._while(lambda sent: sent < count, request, check)

    def _while(self, going_on: Callable[[int], bool], request: bytes, check: Callable[[bytes], None]) -> int:
        sent = answered = 0
        while True:
            while sent - answered < IN_FLIGHT and going_on(sent):
                self.socket.sendall(request)
                sent += 1
            if sent == answered:
                return answered
            check(self.answer())
            answered += 1


def frame(message: Request[Any], version: int) -> bytes:
    """Return a request as it goes over the wire."""
    parts: list[Any] = framing.encode_request(message, version, 1, "bench")
    return b"".join(parts)


def metadata_request() -> bytes:
    """Return a request for the metadata of no topics."""
    return frame(MetadataRequest(topics=[]), 9)


def batch(size: int, record: int = 100, key: Callable[[int], bytes] | None = None) -> bytes:
    """Return a batch of about `size` bytes of records with values of `record` bytes that do not compress."""
    builder = BatchBuilder(bytearray(size), None)
    now, noise, n = time.time_ns() // 1_000_000, os.urandom(record + 997), 0
    while builder.append(now, None if key is None else key(n), noise[n % 997 : n % 997 + record], None) is not None:
        n += 1
    return bytes(builder.seal())


def produce_request(topic: str, records: bytes, partitions: Iterable[int] = (0,)) -> bytes:
    """Return a Produce request with acks=-1 that has the batch for each of the partitions."""
    data = [PartitionProduceData(index=partition, records=records) for partition in partitions]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return frame(request, _PRODUCE_VERSION)


def check_produced(answer: bytes) -> None:
    """Raise if an answer to Produce (flexible, one topic, below 127 partitions) has an error."""
    at = 5 + 1  # correlation id, no tags; one topic
    at += answer[at]  # its name
    for _ in range(answer[at] - 1):
        at += 1 + 4  # what is in front of a partition, and its index
        if answer[at : at + 2] != b"\0\0":
            raise RuntimeError(f"Produce failed with error {struct.unpack('>h', answer[at : at + 2])[0]}")
        at += 2 + 8 + 8 + 8 + 1 + 1  # the rest of one without errors, up to its tags


def produce(node: Node, topic: str, size: int, seconds: float) -> Load:
    """Send Produce requests of `size` bytes, pipelined; the amount is bytes."""
    request = produce_request(topic, batch(size))
    with Wire(node.address) as wire:
        return measured(node, lambda: (wire.pipeline(request, seconds, check_produced) * len(request), []))


def fill(node: Node, topic: str, amount: int, size: int = 1 << 20, partition: int = 0) -> None:
    """Write about `amount` bytes."""
    request = produce_request(topic, batch(size), [partition])
    with Wire(node.address) as wire:
        for _ in range(max(1, amount // size)):
            wire.socket.sendall(request)
            check_produced(wire.answer())


def fetch_request(topic: str, size: int, offset: int = 0) -> bytes:
    """Fetch of up to `size` bytes of partition 0."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 26,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return frame(request, _FETCH_VERSION)


def fetch(node: Node, topic: str, size: int, seconds: float) -> Load:
    """Fetch the same `size` bytes repeatedly, with two requests in flight; the amount is bytes."""
    request = fetch_request(topic, size)

    def work() -> tuple[float, list[float]]:
        total, end = 0, time.perf_counter() + seconds
        wire.socket.sendall(request)
        while time.perf_counter() < end:
            wire.socket.sendall(request)
            wire.answer()
            total += wire.size
        wire.answer()
        return total + wire.size, []

    with Wire(node.address) as wire:
        return measured(node, work)


def small_requests(node: Node, connections: int, seconds: float) -> Load:
    """Send Metadata requests on many connections, one under way on each; the amount is requests."""
    request = metadata_request()
    selector = selectors.DefaultSelector()
    wires = [Wire(node.address) for _ in range(connections)]
    for wire in wires:
        selector.register(wire.socket, selectors.EVENT_READ)
        wire.socket.sendall(request)

    def work() -> tuple[float, list[float]]:
        done, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for key, _ in selector.select():
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                sock.recv(65536)  # answers of some hundred bytes come in one piece
                sock.send(request)
                done += 1
        return done, []

    try:
        return measured(node, work)
    finally:
        for wire in wires:
            wire.socket.close()
        selector.close()


def paced(node: Node, request: bytes, rate: float, seconds: float, check: Callable[[bytes], None]) -> Load:
    """Send one request after the other at a fixed `rate`; latencies count from when each was due."""

    def work() -> tuple[float, list[float]]:
        latencies, started = [], time.perf_counter()
        for n in range(int(rate * seconds)):
            due = started + n / rate
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            wire.socket.sendall(request)
            check(wire.answer())
            latencies.append(time.perf_counter() - due)
        return len(latencies), latencies

    with Wire(node.address) as wire:
        return measured(node, work)
