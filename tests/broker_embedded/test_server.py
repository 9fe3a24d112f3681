"""Connections: order, partial and hostile frames, slow readers, and a good client at the same time."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.dispatch import route
from pyclient.broker_embedded.faults.error_answers import failed_answer
from pyclient.broker_embedded.faults.shapes import error_codes
from pyclient.broker_embedded.served_apis import SERVED
from pyclient.protocol import framing
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.describe_cluster import DescribeClusterRequest
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pyclient.protocol.messages.produce import ProduceRequest
from pyclient.protocol.parts import blank
from pyclient.protocol.versions import API_KEYS, request_class
from tests.broker_embedded.nodes import node_of
from tests.waiting import until

ASK = MetadataRequest(topics=[])


def frame_of(request: Any, version: int, correlation_id: int) -> bytes:
    return b"".join(framing.encode_request(request, version, correlation_id, "raw"))


def test_pipelined_requests_are_answered_in_order(client: Any) -> None:
    client.send_bytes(b"".join(frame_of(ASK, 1, number) for number in range(500)))
    assert [client.receive(MetadataRequest, 1)[1] for _ in range(500)] == list(range(500))


def test_a_frame_may_come_byte_by_byte(client: Any) -> None:
    for byte in frame_of(ASK, 9, 3):
        client.send_bytes(bytes([byte]))
    response, correlation_id = client.receive(MetadataRequest, 9)
    assert correlation_id == 3
    assert response.controller_id == 1


def test_requests_after_a_waiting_one_are_answered_after_it(client: Any, topic: str, fetch_request: Any) -> None:
    first = client.send(fetch_request(topic, {0: 0}, max_wait_ms=200), 11)
    second = client.send(ASK, 1)
    assert client.receive(FetchRequest, 11)[1] == first
    assert client.receive(MetadataRequest, 1)[1] == second


def test_acks_0_is_not_answered_and_what_follows_is(client: Any, topic: str, produce: Any, batch: Any) -> None:
    for number in range(10):
        assert produce(client, topic, batch(b"value %d" % number), acks=0) is None
    assert client.call(ASK, 1).controller_id == 1


def test_an_error_with_acks_0_closes_the_connection(client: Any, produce: Any, batch: Any) -> None:
    produce(client, "no-such-topic", batch(b"value"), acks=0)
    assert client.is_closed()


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"\0\0\0",
        struct.pack(">i", (100 << 20) + 1),
        struct.pack(">i", 2**31 - 1),
        b"\x16\x03\x01\x02\x00",  # a TLS hello
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_frame_that_makes_no_sense_closes_that_connection_only(
    client: Any, connect: Any, broker: Any, head: bytes
) -> None:
    good = connect(broker)
    client.send_bytes(head)
    assert client.is_closed()
    assert good.call(ASK, 1).controller_id == 1


@pytest.mark.parametrize("client_id", [None, "", "\0", "ä" * 8000, "x" * 32_767])
def test_any_client_id_is_served(client: Any, client_id: str | None) -> None:
    client.send_bytes(b"".join(framing.encode_request(ASK, 9, 5, client_id)))
    assert client.receive(MetadataRequest, 9)[1] == 5


def test_a_client_id_that_ends_early_closes_the_connection(client: Any) -> None:
    client.send_frame(struct.pack(">hhih", 3, 1, 7, 30_000) + b"short")
    assert client.is_closed()


def test_silent_connections_and_half_requests_delay_no_other_client(connect: Any, broker: Any) -> None:
    for number in range(300):
        client = connect(broker)
        if number % 2:
            client.send_bytes(struct.pack(">i", 100 << 20)[: 1 + number % 4])
    for number in range(20):
        connect(broker).send_bytes(struct.pack(">i", 100 << 20) + bytes(number * 1000))  # announces 100 MB each
    assert connect(broker).call(ASK, 1).controller_id == 1


def test_a_client_that_does_not_read_is_not_read_from(client: Any, connect: Any, broker: Any) -> None:
    """Ten thousand answers to a small request would be megabytes: the broker stops taking requests instead."""
    client.socket.settimeout(0.2)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = frame_of(ApiVersionsRequest(), 0, 1) * 1000
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 200 << 20:
            sent += client.socket.send(request)
    assert sent < 100 << 20
    assert connect(broker).call(ASK, 1).controller_id == 1


def test_requests_after_a_waiting_one_are_not_read_from_the_socket(connect: Any) -> None:
    """One request of a connection is served at a time; megabytes behind it are not read."""
    empty = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])
    with EmbeddedCluster() as cluster:
        client = connect(cluster)
        client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 4)
        client.send(FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, topics=[empty]), 11)
        client.socket.settimeout(0.2)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 200 << 20:
                sent += client.socket.send(struct.pack(">i", 90 << 20) + bytes(1 << 20))
        assert sent < 80 << 20
        assert connect(cluster).call(ASK, 1).controller_id == 1


def test_many_connections_are_served_at_once(connect: Any, broker: Any) -> None:
    clients = [connect(broker) for _ in range(200)]
    for client in clients:
        client.send(ASK, 1)
    assert all(client.receive(MetadataRequest, 1)[0].controller_id == 1 for client in clients)


def test_a_client_that_goes_while_its_fetch_waits_leaves_nothing_behind(
    connect: Any, broker: Any, topic: str, fetch_request: Any, client: Any
) -> None:
    waiting = connect(broker)
    waiting.send(fetch_request(topic, {0: 0}, max_wait_ms=300), 11)
    waiting.close()
    assert client.call(fetch_request(topic, {0: 0}, max_wait_ms=400), 11).error_code == 0
    until(lambda: len(node_of(broker).purgatory) == 0)


def test_clients_that_go_while_their_fetches_wait_for_ever_are_noticed(
    connect: Any, broker: Any, topic: str, fetch_request: Any, client: Any
) -> None:
    node = node_of(broker)
    before = len(node.connections)
    waiting = [connect(broker) for _ in range(20)]
    for each in waiting:
        each.send(fetch_request(topic, {0: 0}, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1), 11)
    until(lambda: len(node.purgatory) == 20)
    for each in waiting[1:]:
        each.close()
    until(lambda: len(node.purgatory) == 1 and len(node.connections) == before + 1)
    waiting[0].socket.shutdown(socket.SHUT_WR)  # that one has only finished sending
    assert waiting[0].receive(FetchRequest, 11)[0].error_code == 0
    assert waiting[0].is_closed()


def test_clients_in_threads_each_get_their_own_answers(connect: Any, broker: Any) -> None:
    wrong: list[int] = []

    def ask(client: Any) -> None:
        for _ in range(200):
            sent = client.send(ASK, 5)
            if client.receive(MetadataRequest, 5)[1] != sent:
                wrong.append(sent)

    threads = [threading.Thread(target=ask, args=(connect(broker),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_silent_connections_are_closed(connect: Any) -> None:
    with EmbeddedCluster(config={"connections.max.idle.ms": 300}) as cluster:

        def answered() -> Any:
            """Return a new connection with an answer; None if, on a busy machine, it was closed before its request."""
            client = connect(cluster)
            with contextlib.suppress(OSError, AssertionError):
                return client if client.call(ASK, 1).controller_id == 1 else None
            return None

        silent = connect(cluster)
        waiting = until(answered)
        assert silent.is_closed()
        assert waiting.is_closed()
        assert until(answered)


@pytest.mark.parametrize("begun", [b"\0", b"\0\0\0\x64abc", struct.pack(">i", 90 << 20) + b"abc"], ids=len)
def test_a_request_that_stops_half_way_ends_its_connection_and_no_other(connect: Any, begun: bytes) -> None:
    with EmbeddedCluster(config={"internal.partial.frame.timeout.ms": 200}) as cluster:
        half, silent, waiting = (connect(cluster) for _ in range(3))
        empty = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])
        waiting.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 4)
        half.send_bytes(begun)
        waiting.send(FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[empty]), 11)
        waiting.send_bytes(begun)  # it may wait as long as the request before it does
        assert half.is_closed()
        assert silent.call(ASK, 1).controller_id == 1
        assert waiting.receive(FetchRequest, 11)[0].error_code == 0
        assert waiting.is_closed()


def test_a_thousand_announced_requests_of_90_mib_cost_little_memory(connect: Any) -> None:
    with EmbeddedCluster(processes=True) as cluster:
        clients = [connect(cluster) for _ in range(1000)]
        assert all(client.call(ASK, 1).controller_id == 1 for client in clients)
        before = _resident(cluster.pid)
        for client in clients:
            client.send_bytes(struct.pack(">i", 90 << 20) + b"abc")
        other = connect(cluster)
        assert other.call(ASK, 1).controller_id == 1
        assert other.call(ASK, 1).controller_id == 1
        assert _resident(cluster.pid) - before < 20e6


def _resident(pid: int | None) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_an_address_has_no_more_connections_than_allowed(connect: Any) -> None:
    limits = {"max.connections.per.ip": 5, "max.connections.per.ip.overrides": "10.0.0.9:1, 127.0.0.1:2"}
    with EmbeddedCluster(config=limits) as cluster:
        allowed = [connect(cluster), connect(cluster)]
        assert all(client.call(ASK, 1).controller_id == 1 for client in allowed)
        assert connect(cluster).is_closed()
        allowed[0].close()
        node = node_of(cluster)
        while node.addresses["127.0.0.1"] > 1:
            assert allowed[1].call(ASK, 1).controller_id == 1
        assert connect(cluster).call(ASK, 1).controller_id == 1


def test_a_thousand_idle_connections_do_not_hold_up_two_hundred_busy_ones(connect: Any) -> None:
    with EmbeddedCluster(processes=True) as cluster:
        idle = [connect(cluster) for _ in range(1000)]
        busy = [connect(cluster) for _ in range(200)]
        for _ in range(5):
            for client in busy:
                client.send(ASK, 1)
            assert all(client.receive(MetadataRequest, 1)[0].controller_id == 1 for client in busy)
        assert all(client.call(ASK, 1).controller_id == 1 for client in idle[::100])


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the handler of one API and version fail, at once or later."""

    def breaks(api: str, version: int, *, late: bool = False) -> None:
        def fail(_request: Any, _context: Any) -> Any:
            raise ZeroDivisionError("a bug")

        async def fail_later(request: Any, context: Any) -> Any:
            return fail(request, context)

        monkeypatch.setattr(route(API_KEYS[api], version), "handler", fail_later if late else fail)

    return breaks


@pytest.mark.parametrize("late", [False, True])
def test_a_bug_in_a_handler_is_an_error_of_its_request_and_one_line(
    client: Any, caplog: pytest.LogCaptureFixture, broken: Any, late: bool
) -> None:
    assert client.call(ASK, 1).controller_id == 1
    broken("DescribeCluster", 1, late=late)
    response = client.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
    assert response.error_code == errors.UnknownServerError.code
    assert "a bug" not in response.error_message
    assert client.call(ASK, 1).controller_id == 1
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "DescribeCluster version 1 failed" in record.getMessage()


def test_bug_is_answered_per_partition_where_the_api_has_such_errors(
    client: Any, topic: str, produce: Any, batch: Any, broken: Any
) -> None:
    broken("Produce", 9)
    answer = produce(client, topic, batch(b"a"), partition=1)
    assert (answer.index, answer.error_code, answer.base_offset) == (1, errors.UnknownServerError.code, -1)


@pytest.mark.parametrize(
    ("request_", "version"),
    [(MetadataRequest(topics=None), 4), (ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 8)],
)
def test_a_bug_that_an_answer_has_no_place_for_costs_the_connection(
    client: Any, connect: Any, broker: Any, broken: Any, request_: Any, version: int
) -> None:
    good = connect(broker)
    assert client.call(ASK, 1).controller_id == 1
    broken(request_.name, version)
    client.send(request_, version)
    assert client.is_closed()
    assert good.call(ASK, 5).controller_id == 1


@pytest.mark.parametrize("name", sorted(SERVED))
def test_every_api_s_failure_is_an_answer_that_can_be_sent(name: str) -> None:
    cls = request_class(API_KEYS[name])
    for version in range(SERVED[name].first, SERVED[name].last + 1):
        for error, code in (
            (ValueError("a bug"), errors.UnknownServerError.code),
            (errors.KafkaStorageError("the disk is gone"), errors.KafkaStorageError.code),
        ):
            answer = failed_answer(name, blank(cls), version, lambda _id: None, error)
            if answer is not None:
                assert framing.encode_response(answer, version, 1)
                assert error_codes(name, version, answer) == [code]


def test_an_answer_that_cannot_be_encoded_costs_one_connection(
    client: Any, connect: Any, broker: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = connect(broker)
    monkeypatch.setattr(route(3, 6), "handler", lambda _request, _context: MetadataResponse(brokers=None, topics=[]))
    client.send(ASK, 6)
    assert client.is_closed()
    assert good.call(ASK, 5).controller_id == 1
    assert ["Metadata version 6 failed" in record.getMessage() for record in caplog.records] == [True]
