"""A broker in a thread, and a client that is nothing but a socket: it sends what no real client would."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol import codec, framing
from pyclient.records import build_batch
from tests.broker_embedded.topics import create
from tests.waiting import PATIENCE


class RawClient:
    """One connection; requests and responses are messages or bytes."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0

    def send(self, request: Any, version: int) -> int:
        """Send a request; the correlation id."""
        self.correlation_id += 1
        parts = framing.encode_request(request, version, self.correlation_id, "raw")
        self.socket.sendall(b"".join(parts))
        return self.correlation_id

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def reset(self) -> None:
        """Close the connection by a reset, which the broker sees although it reads nothing from it."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send_frame(self, frame: bytes) -> None:
        """Send bytes behind their length."""
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        """Return the next frame; b"" when the broker has closed the connection."""
        head = self._exactly(4)
        return self._exactly(struct.unpack(">i", head)[0]) if head else b""

    def receive(self, cls: Any, version: int) -> Any:
        """Return the next response, and its correlation id."""
        frame = self.receive_frame()
        assert frame, "the broker closed the connection"
        correlation_id, offset = framing.decode_response_header(cls, version, frame)
        return codec.decode(cls.response if hasattr(cls, "response") else cls, version, frame, offset), correlation_id

    def call(self, request: Any, version: int) -> Any:
        """Return the response to a request."""
        sent = self.send(request, version)
        response, correlation_id = self.receive(type(request), version)
        assert correlation_id == sent
        return response

    def is_closed(self) -> bool:
        """Return True if the broker closes the connection (waits for it)."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                return b""
            data += more
        return data


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedCluster]:
    """Yield a broker with the test profile, for all tests of a file."""
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def connect() -> Iterator[Callable[[EmbeddedCluster], RawClient]]:
    """Open raw connections to a cluster."""
    clients: list[RawClient] = []

    def open_one(cluster: EmbeddedCluster) -> RawClient:
        clients.append(RawClient(cluster.bootstrap_servers))
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()


@pytest.fixture
def client(broker: EmbeddedCluster, connect: Callable[[EmbeddedCluster], RawClient]) -> RawClient:
    """Return a raw connection to the file's broker."""
    return connect(broker)


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: RawClient) -> str:
    """Return a fresh topic with two partitions."""
    name = f"t{abs(hash(request.node.nodeid))}"
    create(client, name, 2)
    return name


@pytest.fixture
def batch() -> Callable[..., bytes]:
    """Make a record batch of values, with timestamps as given."""

    def make(*values: bytes, timestamp_ms: int = 1_700_000_000_000, **options: Any) -> bytes:
        return build_batch([(None, value) for value in values], timestamp_ms=timestamp_ms, **options)

    return make


@pytest.fixture
def produce() -> Callable[..., Any]:
    """Produce batches to one partition and return the partition's answer (None with acks=0)."""
    from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    def send(
        client: RawClient,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
    ) -> Any:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
        if acks == 0:
            client.send(request, version)
            return None
        return client.call(request, version).responses[0].partition_responses[0]

    return send


@pytest.fixture
def fetch_request() -> Callable[..., Any]:
    """Make a Fetch request for partitions of one topic."""
    from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    def make(
        topic: str,
        offsets: dict[int, int],
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        **options: Any,
    ) -> FetchRequest:
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
            for index, offset in offsets.items()
        ]
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=partitions)],
            **options,
        )

    return make


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    """Return a data directory that outlives a cluster."""
    return str(tmp_path / "data")
