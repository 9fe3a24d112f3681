"""Limits of connections: their number, rate and idle time, and requests that arrive slowly."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.network.connection_quotas import Rate
from pyclient.protocol.messages import alter_client_quotas as alter
from pyclient.protocol.messages import incremental_alter_configs as configs
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_embedded.nodes import on_loop
from tests.readable import is_readable
from tests.waiting import until

ASK = MetadataRequest(topics=[])
SET, DELETE = 0, 1


def alter_all(client: Any, name: str, operation: int, value: str | None) -> None:
    option = configs.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = configs.AlterConfigsResource(resource_type=4, resource_name="", configs=[option])
    request = configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert client.call(request, 1).responses[0].error_code == 0


def test_a_rate_lets_pass_what_was_saved_up_and_then_one_at_a_time() -> None:
    rate, now, waits = Rate(11, 1.0), 0.0, []
    for _ in range(60):
        waits.append(rate.count(2, now))
        now += waits[-1]
    assert waits[:20] == [0.0] * 20
    assert waits[20] == pytest.approx(0.5)
    assert all(0 <= wait <= 1 for wait in waits)
    assert now == pytest.approx(sum(waits))
    assert now >= 15  # 60 at 2 a second, after 20 at once


def test_connection_that_is_taken_back_does_not_count() -> None:
    rate = Rate(11, 1.0)
    for _ in range(100):
        assert rate.count(1, 0.0) == 0
        rate.take_back(0.0)


def test_connections_above_max_connections_wait_for_room(connect: Any) -> None:
    with EmbeddedCluster(config={"max.connections": 2}) as cluster:
        first, second = connect(cluster), connect(cluster)
        assert [each.call(ASK, 1).controller_id for each in (first, second)] == [1, 1]
        waiting = [connect(cluster) for _ in range(3)]
        for client in waiting:
            client.send(ASK, 1)
        until(lambda: on_loop(cluster, lambda node: "holding" in repr(node.connection_quotas)))
        assert on_loop(cluster, lambda node: len(node.connections)) == 2
        second.close()
        assert waiting[0].receive(MetadataRequest, 1)[0].controller_id == 1
        alter_all(first, "max.connections", DELETE, None)  # the option of the start holds
        first.close()
        assert waiting[1].receive(MetadataRequest, 1)[0].controller_id == 1
        alter_all(waiting[0], "max.connections", SET, "7")
        assert waiting[2].receive(MetadataRequest, 1)[0].controller_id == 1


def test_a_lower_limit_closes_those_that_were_silent_for_longest(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        clients = [connect(cluster) for _ in range(4)]
        for client in clients:
            assert client.call(ASK, 1).controller_id == 1
        alter_all(clients[3], "max.connections", SET, "2")
        assert clients[0].is_closed()
        assert clients[1].is_closed()
        assert [client.call(ASK, 1).controller_id for client in clients[2:]] == [1, 1]


def test_connections_above_the_rate_are_accepted_later(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        first = connect(cluster)
        alter_all(first, "max.connection.creation.rate", SET, "1")
        late = []
        while not on_loop(cluster, lambda node: "holding" in repr(node.connection_quotas)):
            late.append(connect(cluster))
            late[-1].send(ASK, 1)
        assert len(late) > 9, "what was saved up"
        assert late[0].receive(MetadataRequest, 1)[0].controller_id == 1
        cluster.advance_time(60)
        assert late[-1].receive(MetadataRequest, 1)[0].controller_id == 1


def test_an_address_above_its_rate_is_closed_after_its_time_of_throttling(connect: Any) -> None:
    def seen(node: Any) -> int:
        return len(node.connections) + node.connection_quotas.turned_away

    def one_more(cluster: Any) -> Any:
        """Return a new connection, once it is served or turned away; it may even be closed before that is seen."""
        before = on_loop(cluster, seen)
        client = connect(cluster)
        until(lambda: on_loop(cluster, seen) > before or is_readable(client.socket))
        return client

    with EmbeddedCluster() as cluster:
        first = connect(cluster)
        entity = [alter.AlterClientQuotasRequestEntityData(entity_type="ip", entity_name=None)]
        quota = alter.AlterClientQuotasRequestEntryData(
            entity=entity, ops=[alter.OpData(key="connection_creation_rate", value=1, remove=False)]
        )
        assert (
            first.call(alter.AlterClientQuotasRequest(entries=[quota], validate_only=False), 1).entries[0].error_code
            == 0
        )
        served = [connect(cluster) for _ in range(10)]  # what was saved up
        assert all(client.call(ASK, 1).controller_id == 1 for client in served)
        while on_loop(cluster, lambda node: "turned_away=0" in repr(node.connection_quotas)):
            refused = one_more(cluster)
        cluster.advance_time(2)
        assert refused.is_closed()
        cluster.advance_time(60)
        assert connect(cluster).call(ASK, 1).controller_id == 1
        assert first.call(ASK, 1).controller_id == 1


def test_held_connection_is_closed_when_the_broker_stops(connect: Any) -> None:
    with EmbeddedCluster(config={"max.connections": 1}) as cluster:
        first, waiting = connect(cluster), connect(cluster)
        assert first.call(ASK, 1).controller_id == 1
        until(lambda: on_loop(cluster, lambda node: "holding" in repr(node.connection_quotas)))
    assert waiting.is_closed()


def test_silence_ends_a_connection_whose_request_waits_too(connect: Any) -> None:
    """As in Kafka: measured, a Fetch that waits longer than connections.max.idle.ms loses its connection."""
    with EmbeddedCluster(config={"connections.max.idle.ms": 1000}) as cluster:

        def made() -> bool:
            """Make the topic; False if, on a busy machine, the connection was closed before its request."""
            with contextlib.suppress(OSError, AssertionError):
                connect(cluster).call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 4)
                return True
            return False

        until(made)
        half, waiting = connect(cluster), connect(cluster)
        half.send_bytes(struct.pack(">i", 100) + b"only so much")
        empty = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])
        waiting.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[empty]), 11)
        assert half.is_closed()
        assert waiting.is_closed()


def test_a_request_in_drops_ends_its_connection_and_a_slow_one_does_not(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        client = connect(cluster)
        client.send_bytes(struct.pack(">i", 90 << 20) + b"x")

        def came(node: Any, size: int) -> bool:
            [connection] = node.connections.values()
            return connection.stream.unfinished() == size

        def stalled(node: Any, later: float) -> bool:
            [connection] = node.connections.values()
            return bool(connection.stalled(node.loop.time() + later, 30.0))

        def wait_for(size: int) -> None:
            until(lambda: on_loop(cluster, lambda node: came(node, size)))

        wait_for(5)
        assert not on_loop(cluster, lambda node: stalled(node, 0))
        client.send_bytes(b"x" * 31 * 1024)
        wait_for(5 + 31 * 1024)
        assert not on_loop(cluster, lambda node: stalled(node, 29))
        assert not on_loop(cluster, lambda node: stalled(node, 31))  # 1 KiB a second and some more
        client.send_bytes(b"x" * 100)
        wait_for(5 + 31 * 1024 + 100)
        assert not on_loop(cluster, lambda node: stalled(node, 32))
        assert on_loop(cluster, lambda node: stalled(node, 62))


def test_a_request_in_drops_is_noticed_by_the_broker_itself(connect: Any) -> None:
    with EmbeddedCluster(config={"internal.partial.frame.timeout.ms": 100}) as cluster:
        client = connect(cluster)
        client.send_bytes(struct.pack(">i", 90 << 20))
        client.socket.settimeout(0.02)
        closed = False
        while not closed:
            try:
                client.send_bytes(b"x")
                closed = client.is_closed()
            except TimeoutError:
                continue
            except OSError:
                closed = True
