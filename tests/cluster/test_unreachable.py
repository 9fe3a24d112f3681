"""Lasting causes are raised as soon as they are certain, before the call's timeout."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.cluster.client import ClusterClient
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.cluster.clients import cluster_of, has_nodes, started
from tests.cluster.scripts import config, run
from tests.free_ports import closed_port
from tests.net.scripted import CLOSE, ScriptedBroker
from tests.patience import retry_until_error_async
from tests.waiting import until

TLS = Path(__file__).parents[1] / "net" / "tls"
NO_NAME = f"{'a' * 64}.invalid:9092"  # a name that is too long needs no DNS request
HOUR = 3_600_000


@pytest.fixture
def tls_port() -> Iterator[int]:
    """Yield a port that serves TLS with a certificate of an authority that this machine does not trust."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "broker.pem")

    def serve() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), context.wrap_socket(accepted, server_side=True) as stream:
                stream.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture(scope="module")
def plaintext_port() -> Iterator[int]:
    with EmbeddedCluster() as cluster:
        yield int(cluster.bootstrap_servers.rpartition(":")[2])


def send(servers: str, **options: Any) -> None:
    with Producer(servers, max_block_ms=HOUR, **options) as producer:
        producer.send("orders", b"1")


def send_async(servers: str, **options: Any) -> None:
    async def scenario() -> None:
        async with AsyncProducer(servers, max_block_ms=HOUR, **options) as producer:
            await producer.send("orders", b"1")

    asyncio.run(scenario())


def poll(servers: str, **options: Any) -> None:
    with Consumer("orders", bootstrap_servers=servers, group_id="g", **options) as consumer:
        consumer.poll(HOUR)


def iterate(servers: str, **options: Any) -> None:
    with Consumer("orders", bootstrap_servers=servers, **options) as consumer:
        next(iter(consumer))


def poll_async(servers: str, **options: Any) -> None:
    async def scenario() -> None:
        async with AsyncConsumer("orders", bootstrap_servers=servers, **options) as consumer:
            await consumer.poll(HOUR)

    asyncio.run(scenario())


def ask_for_partitions(servers: str, **options: Any) -> None:
    with Consumer(bootstrap_servers=servers, default_api_timeout_ms=HOUR, **options) as consumer:
        consumer.partitions_for("orders")


def list_topics(servers: str, **options: Any) -> None:
    with Admin(servers, default_api_timeout_ms=HOUR, **options) as admin:
        admin.list_topics()


def describe_group(servers: str, **options: Any) -> None:
    with Admin(servers, default_api_timeout_ms=HOUR, **options) as admin:
        admin.describe_groups(["g"])


def delete_topic_async(servers: str, **options: Any) -> None:
    async def scenario() -> None:
        async with AsyncAdmin(servers, default_api_timeout_ms=HOUR, **options) as admin:
            await admin.delete_topics(["orders"])

    asyncio.run(scenario())


CALLS = [send, send_async, poll, iterate, poll_async, ask_for_partitions]
CALLS += [list_topics, describe_group, delete_topic_async]


@pytest.mark.parametrize("call", CALLS)
def test_refused_certificate_is_raised_at_once(call: Callable[..., None], tls_port: int) -> None:
    with pytest.raises(
        errors.ClusterUnreachable, match=r"certificate is not accepted: .*; trust its authority"
    ) as error:
        call(f"127.0.0.1:{tls_port}", security_protocol="SSL")
    assert error.value.lasting and not error.value.retriable


@pytest.mark.parametrize("call", CALLS)
def test_plaintext_port_is_recognised_by_clients_with_tls_at_once(
    call: Callable[..., None], plaintext_port: int
) -> None:
    with pytest.raises(errors.ClusterUnreachable, match="without TLS; set security_protocol='PLAINTEXT'") as error:
        call(f"127.0.0.1:{plaintext_port}", security_protocol="SSL")
    assert error.value.lasting and not error.value.retriable


@pytest.mark.parametrize("call", CALLS)
def test_name_that_does_not_exist_is_raised_at_once(call: Callable[..., None]) -> None:
    with pytest.raises(errors.ClusterUnreachable, match="DNS does not know the name"):
        call(NO_NAME)


@pytest.mark.parametrize(
    ("answer", "says"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "HTTP"), (b"\x15\x03\x03\x00\x02\x02\x50", "set security_protocol='SSL'")],
)
def test_port_of_another_protocol_is_raised_at_once(answer: bytes, says: str) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker({ApiVersionsRequest: answer})
        client = await started(broker.address)
        with pytest.raises(errors.ClusterUnreachable, match=says):
            await client.wait_metadata(has_nodes, 3600)
        await client.close()
        broker.stop()

    run(scenario())


def test_address_that_may_come_up_is_waited_for() -> None:
    with closed_port() as port, Producer([NO_NAME, f"127.0.0.1:{port}"], max_block_ms=500) as producer:

        def text() -> str:
            with pytest.raises(errors.KafkaTimeout) as error:
                producer.partitions_for("orders")
            return str(error.value)

        causes = ("DNS does not know the name", "connection refused")
        until(lambda: all(map(text().__contains__, causes)), "no error names both causes")


def test_poll_raises_again_only_after_another_attempt() -> None:
    """So a loop that catches errors does not spin."""
    rounds: list[object] = []
    with Consumer("orders", bootstrap_servers=NO_NAME, retry_backoff_ms=200) as consumer:
        for _ in range(3):
            with pytest.raises(errors.ClusterUnreachable) as caught:
                consumer.poll(HOUR)
            rounds.append(caught.value)
    assert len(set(map(id, rounds))) == 3


def test_cluster_that_answered_once_is_waited_for() -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        cluster_of(broker)
        client = await started(broker.address)
        await client.wait_metadata(has_nodes, 30)
        broker.answers[MetadataRequest] = CLOSE
        broker.answers[SaslHandshakeRequest] = SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"])
        await retry_until_error_async(lambda: client.wait_metadata(lambda metadata: False, 0.5), "demands SASL")
        assert client.unreachable is None
        await client.close()
        broker.stop()

    run(scenario())


async def with_sasl_listener(answer: Any, then: Callable[[ClusterClient], Any]) -> None:
    broker = ScriptedBroker({MetadataRequest: CLOSE, SaslHandshakeRequest: answer})
    client = ClusterClient(config(broker.address))
    await client.start()
    await then(client)
    await client.close()
    broker.stop()


@pytest.mark.parametrize("code", [0, errors.UnsupportedSaslMechanism.code])
def test_listener_that_demands_sasl_is_recognised(code: int) -> None:
    async def then(client: ClusterClient) -> None:
        with pytest.raises(errors.ClusterUnreachable, match="demands SASL: set security_protocol='SASL_PLAINTEXT'"):
            await client.wait_metadata(has_nodes, 3600)

    run(with_sasl_listener(SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN"]), then))


@pytest.mark.parametrize(
    "answer", [SaslHandshakeResponse(error_code=errors.IllegalSaslState.code, mechanisms=[]), CLOSE]
)
def test_broker_that_ends_connections_is_not_taken_for_sasl(answer: Any) -> None:
    async def then(client: ClusterClient) -> None:
        says = "no answer to Metadata v13: the broker closed the connection"
        await retry_until_error_async(lambda: client.wait_metadata(has_nodes, 1.0), says)

    run(with_sasl_listener(answer, then))
