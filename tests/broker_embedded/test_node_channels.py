"""Connections between nodes: versions, failures, the return of a node, and addresses that tests replace."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.network.node_channels import NodeChannels
from pyclient.broker_embedded.network.redirects import Redirects
from pyclient.errors import ConnectionFailed, KafkaTimeout, UnsupportedVersion
from pyclient.protocol.messages.describe_cluster import DescribeClusterRequest
from pyclient.protocol.messages.fetch import FetchRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.vote import VoteRequest
from tests.free_ports import first_of_free_ports


def run(scenario: Callable[[NodeChannels], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        channels = NodeChannels(asyncio.get_running_loop(), "node-1")
        try:
            await scenario(channels)
        finally:
            channels.close()

    asyncio.run(main())


def address_of(cluster: EmbeddedCluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return host, int(port)


def describe() -> DescribeClusterRequest:
    return DescribeClusterRequest(include_cluster_authorized_operations=False)


def fetch() -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])


def test_requests_are_pipelined_in_the_highest_version() -> None:
    with EmbeddedCluster() as cluster, cluster.requests.start() as requests:

        async def scenario(channels: NodeChannels) -> None:
            channel = channels.to(1, *address_of(cluster))
            first, second = channel.send(describe(), 5.0), channel.send(fetch(), 5.0)
            assert not channel.connected
            assert (await first).brokers[0].broker_id == 1
            assert (await second).error_code == 0
            assert channel.connected
            assert channels.to(1, *address_of(cluster)) is channel
            [logged] = requests.query("Fetch")
            assert logged.version == 18  # clients stop at 12

        run(scenario)


def test_an_api_that_the_node_does_not_serve() -> None:
    with EmbeddedCluster() as cluster:

        async def scenario(channels: NodeChannels) -> None:
            with pytest.raises(UnsupportedVersion):
                await channels.to(1, *address_of(cluster)).send(VoteRequest(topics=[]), 5.0)

        run(scenario)


def test_a_node_that_is_away_and_comes_back() -> None:
    async def scenario(channels: NodeChannels) -> None:
        port = first_of_free_ports(1)
        channel = channels.to(1, "127.0.0.1", port)

        async def refusal() -> str:
            with pytest.raises(ConnectionFailed, match="node 1") as caught:
                await channel.send(describe(), 5.0)
            return str(caught.value)

        assert "no connection yet" not in await refusal()
        # a loop that stalls until the backoff is over connects again; the next backoff is longer
        assert any(["no connection yet" in await refusal() for _ in range(50)])
        with EmbeddedCluster(port=port):
            while True:
                try:
                    assert (await channel.send(describe(), 5.0)).error_code == 0
                    break
                except ConnectionFailed:
                    await asyncio.sleep(0.01)
        with pytest.raises(ConnectionFailed):
            await channel.send(describe(), 5.0)

    run(scenario)


def test_a_node_that_does_not_answer() -> None:
    async def scenario(channels: NodeChannels) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            channel = channels.to(1, *server.getsockname()[:2])
            with pytest.raises(KafkaTimeout, match=r"no connection for DescribeCluster within 0\.05 s"):
                await channel.send(describe(), 0.05)

    run(scenario)


def test_a_paused_channel_gets_its_answer_when_it_goes_on() -> None:
    with EmbeddedCluster() as cluster:

        async def scenario(channels: NodeChannels) -> None:
            channel = channels.to(1, *address_of(cluster))
            await channel.send(describe(), 5.0)
            channels.pause()
            answer = channel.send(describe(), 5.0)
            other = NodeChannels(asyncio.get_running_loop(), "node-2").to(1, *address_of(cluster))
            await other.send(describe(), 5.0)  # longer than an answer takes
            other.close()
            assert not answer.done()
            channels.resume()
            assert (await answer).error_code == 0

        run(scenario)


def test_the_link_replaces_addresses() -> None:
    with EmbeddedCluster() as cluster:

        async def main() -> None:
            asked: list[tuple[int, str, int]] = []

            def link(node_id: int, host: str, port: int) -> tuple[str, int]:
                asked.append((node_id, host, port))
                return address_of(cluster)

            channels = NodeChannels(asyncio.get_running_loop(), "node-1", link)
            response = await channels.to(7, "elsewhere", 1).send(MetadataRequest(topics=[]), 5.0)
            assert response.brokers[0].node_id == 1
            assert set(asked) == {(7, "elsewhere", 1)}
            channels.close()
            with pytest.raises(ConnectionFailed, match="closed its connections"):
                await channels.to(7, "elsewhere", 1).send(MetadataRequest(topics=[]), 0.5)

        asyncio.run(main())


def test_changed_link_ends_the_connections_to_the_node_it_is_about() -> None:
    with EmbeddedCluster() as cluster:
        host, port = address_of(cluster)

        async def main() -> None:
            redirects = Redirects({"one.invalid:1": f"{host}:{port}", "two.invalid:2": f"{host}:{port}"})
            channels = NodeChannels(asyncio.get_running_loop(), "node-1", redirects)
            one, two = channels.to(1, "one.invalid", 1), channels.to(2, "two.invalid", 2)
            for channel in (one, two):
                await channel.send(describe(), 5.0)
            redirects.change({"one.invalid:1": "127.0.0.1:1", "two.invalid:2": f"{host}:{port}"})
            assert (one.connected, two.connected) == (False, True)
            channels.close()

        asyncio.run(main())


def test_connection_being_opened_goes_to_the_changed_address() -> None:
    with EmbeddedCluster() as cluster, socket.create_server(("127.0.0.1", 0)) as former:
        host, port = address_of(cluster)

        async def main() -> None:
            redirects = Redirects({"one.invalid:1": f"127.0.0.1:{former.getsockname()[1]}"})
            channels = NodeChannels(asyncio.get_running_loop(), "node-1", redirects)
            answer = channels.to(1, "one.invalid", 1).send(describe(), 30.0)
            loop = asyncio.get_running_loop()
            former.setblocking(False)
            accepted, _ = await loop.sock_accept(former)
            with accepted:
                request = await loop.sock_recv(accepted, 4096)
                redirects.change({"one.invalid:1": f"{host}:{port}"})
                await _answer_as(accepted, request, host, port)
                assert (await answer).brokers[0].broker_id == 1
                assert await loop.sock_recv(accepted, 4096) == b""  # DescribeCluster went to the other address
            channels.close()

        asyncio.run(main())


async def _answer_as(sock: socket.socket, request: bytes, host: str, port: int) -> None:
    """Pass a broker's answer to a request on."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    size = await reader.readexactly(4)
    await asyncio.get_running_loop().sock_sendall(sock, size + await reader.readexactly(int.from_bytes(size)))
    writer.close()
    await writer.wait_closed()


def test_end_of_a_connection_is_reported_unless_this_node_ended_it() -> None:
    lost: list[int] = []

    async def scenario(channels: NodeChannels) -> None:
        first = asyncio.Event()

        def on_lost() -> None:
            lost.append(1)
            first.set()

        channels.on_lost = on_lost
        with EmbeddedCluster() as cluster:
            await channels.to(1, *address_of(cluster)).send(describe(), 5.0)
            assert not lost
        await asyncio.wait_for(first.wait(), 30)
        with EmbeddedCluster() as cluster:
            await channels.to(2, *address_of(cluster)).send(describe(), 5.0)
            channels.close()
            await asyncio.sleep(0)

    run(scenario)
    assert lost == [1]
