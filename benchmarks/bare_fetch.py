"""The fetch rate of a bare socket: no client, prebuilt requests, and their answers are read into one buffer."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

from benchmarks.timed_work import Figures
from pyclient.records import iter_batches

MEBIBYTE = 1024 * 1024
PARTITIONS = 6


def fetch_bare(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], Figures]:
    """Read the topic from its beginning to its end, as every consumer does: a MiB of each partition in turn.

    A MiB per request is the fastest size. The offsets of the requests are found before the measurement starts.
    """
    bare = _Socket(servers)
    return _asking(bare, list(_all_of(bare, topic)), count * size)


def fetch_warm(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], Figures]:
    """Read the first MiB of each partition repeatedly: it stays in the CPU's cache, unlike the data of a consumer."""
    return _asking(_Socket(servers), [_request(topic, number, 0) for number in range(PARTITIONS)], count * size)


def _asking(bare: _Socket, requests: list[bytes], least: int) -> Callable[[], Figures]:
    """Return a function that sends the requests alternately until at least `least` bytes were received."""

    def run() -> Figures:
        total = 0
        while total < least:
            for request in requests:
                total += bare.answer(request)
        return {"bytes": total}

    return run


class _Socket:
    """A connection and the buffer for its answers."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self.buffer = memoryview(bytearray(4 * MEBIBYTE))
        self._connection = socket.create_connection((host, int(port)))

    def answer(self, request: bytes) -> int:
        """Send a request and receive its answer. Return the answer's size in bytes."""
        connection, buffer = self._connection, self.buffer
        connection.sendall(request)
        have = 0
        while have < 4:
            have += connection.recv_into(buffer[have:])
        needed = 4 + int.from_bytes(buffer[:4], "big")
        while have < needed:
            have += connection.recv_into(buffer[have:])
        return needed


def _all_of(bare: _Socket, topic: str) -> Iterator[bytes]:
    """Yield the requests that read the whole topic."""
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    while offsets:
        for partition, offset in list(offsets.items()):
            request = _request(topic, partition, offset)
            after = _next_offset(bare.buffer[: bare.answer(request)], topic)
            if after is None:
                del offsets[partition]
            else:
                offsets[partition] = after
                yield request


def _next_offset(answer: memoryview, topic: str) -> int | None:
    """Return the next offset after an answer of Fetch version 4 for one partition; None if it has no records."""
    at = 4 + 4 + 4 + 4 + 2 + len(topic) + 4  # its length, correlation id, throttle time, one topic, one partition
    _partition, error, _watermark, _stable, aborted, length = struct.unpack_from(">ihqqii", answer, at)
    if error or aborted > 0:
        raise RuntimeError(f"a fetch of {topic} was answered with error {error} and {aborted} aborted transactions")
    at += struct.calcsize(">ihqqii")
    after = None
    for _position, header in iter_batches(answer[at : at + length]):
        after = header.next_offset
    return after


def _request(topic: str, partition: int, offset: int) -> bytes:
    """Return a request of Fetch version 4 for up to a MiB."""
    name = topic.encode()
    body = struct.pack(">hhih", 1, 4, 1, -1)
    body += struct.pack(">iiiib", -1, 500, 1, 50 * MEBIBYTE, 0)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, partition, offset, MEBIBYTE)
    return struct.pack(">i", len(body)) + body
