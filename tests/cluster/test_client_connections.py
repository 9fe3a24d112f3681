"""A client's connections: reopened, shared, closed."""

import asyncio
import itertools
import socket

import pytest

from pyclient.cluster.client import ClusterClient
from pyclient.errors import (
    ClosedError,
    ConfigError,
    ConnectionFailed,
)
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.cluster.clients import cluster_of, has_nodes, started
from tests.cluster.scripts import config, run
from tests.net.scripted import CLOSE, ScriptedBroker


def test_unexpected_connect_error_is_logged_and_backed_off(caplog):
    async def scenario():
        attempts = []

        async def connector(*_):
            attempts.append(asyncio.get_running_loop().time())
            raise TypeError("a bug")

        client = ClusterClient(
            config("127.0.0.1:1", reconnect_backoff_ms=100, reconnect_backoff_max_ms=100), connector=connector
        )
        await client.start()
        for _ in range(3):
            with pytest.raises(TypeError, match="a bug"):
                await client.any_connection()
        assert all(after - before > 0.07 for before, after in itertools.pairwise(attempts))
        assert client.last_failures == {
            "127.0.0.1:1": "127.0.0.1:1: unexpected error while connecting: TypeError('a bug')"
        }
        await client.close()

    run(scenario())
    assert "unexpected error while connecting to 127.0.0.1:1" in caplog.text


def test_call_that_goes_on_after_close_opens_no_connection():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = await started(only.address)
        await client.wait_metadata(has_nodes, 30)
        await client.close()
        for _ in range(2):
            with pytest.raises(ConnectionFailed, match="the client is closed"):
                await client.any_connection()
        only.stop()

    run(scenario())


def test_lost_connection_is_reopened_and_metadata_refreshed():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = await started(only.address)
        await client.wait_metadata(has_nodes, 30)
        lost = await client.connection(1)
        before = only.count(MetadataRequest)
        only.drop()
        await only.until(lambda: only.count(MetadataRequest) > before)
        assert lost.closed
        assert await client.connection(1) is not lost
        await client.close()
        only.stop()

    run(scenario())


def test_try_connection_returns_open_connection_without_waiting():
    async def scenario():
        one, two = ScriptedBroker(), ScriptedBroker()
        cluster_of(one, two)
        client = await started(one.address)
        await client.wait_metadata(has_nodes, 30)
        assert client.try_connection(2) is None
        await two.until(lambda: two.accepted)
        assert client.try_connection(2) in (None, await client.connection(2))
        assert client.try_connection(2) is await client.connection(2)
        assert client.try_connection(99) is None
        with pytest.raises(ConnectionFailed, match=r"node 99 is not in the cluster, which has \[1, 2\]"):
            await client.connection(99)
        assert two.accepted == 1
        await client.close()
        one.stop()
        two.stop()

    run(scenario())


def test_concurrent_callers_share_one_connection_attempt():
    async def scenario():
        one, two = ScriptedBroker(), ScriptedBroker()
        cluster_of(one, two)
        client = await started(one.address)
        await client.wait_metadata(has_nodes, 30)
        connections = await asyncio.gather(*[client.connection(2) for _ in range(10)])
        assert len(set(connections)) == 1
        assert two.accepted == 1
        ended = asyncio.get_running_loop().create_future()
        connections[0].on_closed.append(ended.set_result)
        two.stop()
        await ended
        failures = await asyncio.gather(*[client.connection(2) for _ in range(10)], return_exceptions=True)
        assert {type(failure) for failure in failures} == {ConnectionFailed}
        assert two.address in client.last_failures
        await client.close()
        one.stop()

    run(scenario())


def test_idle_connection_is_closed_and_reopened_on_demand(monkeypatch):
    monkeypatch.setattr("pyclient.cluster.client.IDLE_CHECK_SECONDS", 0.01)

    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = await started(only.address, connections_max_idle_ms=30)
        await client.wait_metadata(has_nodes, 30)
        connection = await client.connection(1)
        while not connection.closed:  # noqa: ASYNC110  # closing it notifies no listener
            await asyncio.sleep(0.005)
        assert str(connection.cause) == "it was idle"
        assert client.health().connected == ()
        assert only.count(MetadataRequest) == 1
        opened = only.accepted
        assert await client.connection(1) is not connection  # which may be idle and closed already
        assert only.accepted == opened + 1
        await client.close()
        only.stop()

    run(scenario())


def test_connections_to_former_address_of_node_are_closed():
    async def scenario():
        one, old, new = ScriptedBroker(), ScriptedBroker(), ScriptedBroker()
        cluster_of(one, old)
        client = await started(one.address)
        await client.wait_metadata(has_nodes, 30)
        connections = [await client.connection(2), await client.optional_connection(2, "more")]
        cluster_of(one, new)
        await client.wait_metadata(lambda snapshot: snapshot.nodes[2].address == new.address, 30)
        assert [connection.closed for connection in connections] == [True, True]
        assert (await client.optional_connection(2, "more")).address == new.address
        await client.close()
        for broker in (one, old, new):
            broker.stop()

    run(scenario())


def test_failed_optional_connection_is_not_recorded():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = await started(only.address)
        await client.wait_metadata(has_nodes, 30)
        asked = only.count(MetadataRequest)
        only.answers[ApiVersionsRequest] = CLOSE
        with pytest.raises(ConnectionFailed):
            await client.optional_connection(1, "more")
        with pytest.raises(ConnectionFailed, match="node 99 is not in the cluster"):
            await client.optional_connection(99, "more")
        assert client.last_failures == {} and client.describe_failures() == ""
        await client.request(MetadataRequest(topics=[]))
        assert only.count(MetadataRequest) == asked + 1, "a failed optional connection must not refresh the metadata"
        await client.close()
        only.stop()

    run(scenario())


def test_close_ends_every_wait():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = await started(only.address)
        await client.wait_metadata(has_nodes, 30)
        waits = [
            asyncio.ensure_future(client.wait_metadata(lambda snapshot: False, 30)),
            asyncio.ensure_future(client.topic_partitions("never", 10)),
            asyncio.ensure_future(client.request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))),
        ]
        await only.until(lambda: only.count(HeartbeatRequest))
        await client.close()
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ClosedError, ClosedError, ConnectionFailed]
        with pytest.raises(ClosedError):
            await client.wait_metadata(lambda snapshot: False, 30)
        with pytest.raises(ConnectionFailed, match="the client is closed"):
            await client.connection(1)
        only.stop()

    run(scenario())


def test_close_while_connecting_leaks_nothing():
    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as mute:
            mute.setblocking(False)
            client = await started(f"127.0.0.1:{mute.getsockname()[1]}")
            waiting = asyncio.ensure_future(client.any_connection())
            peer, _ = await asyncio.get_running_loop().sock_accept(mute)
            await client.close()
            peer.close()
            with pytest.raises(ConnectionFailed, match="closed"):
                await waiting

    run(scenario())


def test_constructor_raises_for_unreadable_tls_file():
    with pytest.raises(ConfigError, match="ssl_cafile='/no/such/file'"):
        ClusterClient(config("x:1", security_protocol="SSL", ssl_cafile="/no/such/file"))
