import asyncio
import logging
import socket

import pytest

from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import EMPTY
from pyclient.errors import (
    ClosedError,
    ConfigError,
    ConnectionFailed,
    InvalidTopic,
    KafkaTimeout,
    TopicAuthorizationFailed,
)
from pyclient.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pyclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.cluster.scripts import broker, config, metadata, partition, run, topic
from tests.net.scripted import CLOSE, SILENCE, ScriptedBroker


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def cluster_of(*brokers, topics=("a",), partitions=2, controller=1):
    """Lets brokers answer Metadata as one cluster with node ids 1, 2, ...; unknown topics get error 3."""
    nodes = [broker(number, each.port) for number, each in enumerate(brokers, 1)]

    def answer(request, version, correlation_id):
        names = topics if request.topics is None else [each.name for each in request.topics]
        known = [
            topic(name, [partition(n, 1 + n % len(nodes)) for n in range(partitions)])
            if name in topics
            else topic(name, error_code=3)
            for name in names
        ]
        return metadata(nodes, known, controller=controller)

    for each in brokers:
        each.answers[MetadataRequest] = answer


async def started(*addresses, **options):
    client = ClusterClient(config(*addresses, **options))
    await client.start()
    return client


def has_nodes(snapshot):
    return bool(snapshot.nodes)


def test_a_cluster_is_found_from_the_first_address_that_answers():
    async def scenario():
        alive = ScriptedBroker()
        cluster_of(alive)
        dead = free_port()
        client = await started(f"127.0.0.1:{dead}", "no-such-host.invalid:1", alive.address)
        found = await client.wait_metadata(has_nodes, 30)
        assert found.cluster_id == "the-cluster"
        assert client.metadata is found
        await client.close()
        alive.stop()

    run(scenario())


def test_when_nobody_answers_the_error_tells_what_each_address_said():
    async def scenario():
        dead = free_port()
        client = await started(f"127.0.0.1:{dead}", "no-such-host.invalid:1")
        with pytest.raises(KafkaTimeout) as error:
            await client.wait_metadata(has_nodes, 0.3)
        text = str(error.value)
        assert "no metadata that would do within 0.3 s" in text
        assert f"127.0.0.1:{dead}: connection refused" in text
        assert "DNS does not know the name 'no-such-host.invalid'" in text
        assert set(client.last_failures) == {f"127.0.0.1:{dead}", "no-such-host.invalid:1"}
        assert client.metadata is EMPTY
        health = client.health()
        assert health.metadata_age is None
        assert health.connected == ()
        await client.close()

    run(scenario())


def test_a_cluster_that_comes_up_later_is_found():
    async def scenario():
        late = ScriptedBroker()
        cluster_of(late)
        late.stop()
        client = await started(late.address)
        with pytest.raises(KafkaTimeout):
            await client.wait_metadata(has_nodes, 0.05)
        late.restart()
        await client.wait_metadata(has_nodes, 30)
        assert client.describe_failures() == ""
        await client.close()
        late.stop()

    run(scenario())


def test_the_bootstrap_connection_is_kept_for_the_broker_it_leads_to():
    async def scenario():
        only = ScriptedBroker({HeartbeatRequest: HeartbeatResponse(error_code=0)})
        cluster_of(only)
        client = await started(only.address)
        await client.wait_metadata(has_nodes, 30)
        connection = await client.connection(1)
        assert connection.node_id == 1
        await client.request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), node_id=1)
        assert only.accepted == 1
        assert (await client.connection(1, purpose="coordinator")) is not connection
        assert only.accepted == 2
        assert client.health().connected == (only.address,)
        assert repr(client) == f"<ClusterClient {only.address} 1 of 1 nodes connected>"
        await client.close()
        assert repr(client) == f"<ClusterClient {only.address} closed>"
        only.stop()

    run(scenario())


def test_new_topics_are_asked_for_at_once_and_refreshes_are_joined():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only, topics=("a", "b"))
        client = await started(only.address, retry_backoff_ms=50, retry_backoff_max_ms=50)
        await client.wait_metadata(has_nodes, 30)
        before = only.count(MetadataRequest)
        client.add_topics(["a", "b"])
        client.add_topics(["b"])
        for _ in range(100):
            client.request_refresh()
        await client.wait_metadata(lambda snapshot: {"a", "b"} <= set(snapshot.topics), 10)
        assert only.count(MetadataRequest) == before + 1
        assert [each.name for each in only.requests[-1].topics] == ["a", "b"]
        client.add_topics(["a"])
        client.set_topics(["a"])  # fewer: nothing to ask
        client.set_topics(None)
        await only.until(lambda: only.count(MetadataRequest) == before + 2)
        assert only.requests[-1].topics is None
        await client.close()
        only.stop()

    run(scenario())


def test_metadata_is_refreshed_when_it_is_old():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = await started(only.address, metadata_max_age_ms=30)
        await only.until(lambda: only.count(MetadataRequest) >= 4)
        await client.close()
        only.stop()

    run(scenario())


def test_listeners_hear_every_snapshot_and_one_that_fails_hurts_nobody(caplog):
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = ClusterClient(config(only.address))
        heard = []
        client.listeners.extend([lambda snapshot: 1 / 0, heard.append])
        await client.start()
        found = await client.wait_metadata(has_nodes, 30)
        assert heard == [found]
        await client.close()
        only.stop()

    with caplog.at_level(logging.CRITICAL):
        run(scenario())


def test_topics_are_waited_for_and_refusals_are_raised_at_once():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only, topics=("a",))
        good = only.answers[MetadataRequest]
        client = await started(only.address)
        assert len((await client.topic_partitions("a", 10)).partitions) == 2
        with pytest.raises(KafkaTimeout, match=r"topic 'missing' is not available \(UnknownTopicOrPartition\)"):
            await client.topic_partitions("missing", 0.1)
        for code, kind in ((17, InvalidTopic), (29, TopicAuthorizationFailed)):
            only.answers[MetadataRequest] = metadata([broker(1, only.port)], [topic(f"bad{code}", error_code=code)])
            with pytest.raises(kind, match=f"topic 'bad{code}'"):
                await client.topic_partitions(f"bad{code}", 10)
        only.answers[MetadataRequest] = good
        waiting = asyncio.ensure_future(client.topic_partitions("later", 10))
        await only.until(lambda: any(t.name == "later" for r in only.requests[-1:] for t in r.topics or ()))
        cluster_of(only, topics=("later",))
        assert (await waiting).name == "later"
        await client.close()
        only.stop()

    run(scenario())


def test_a_node_that_hangs_costs_a_moment_and_not_a_timeout(monkeypatch):
    for module in ("client", "keeper"):
        monkeypatch.setattr(f"pyclient.cluster.{module}.PATIENCE", 0.02)

    async def scenario():
        hung, alive = ScriptedBroker({MetadataRequest: SILENCE}), ScriptedBroker()
        cluster_of(alive)
        with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections, says nothing
            mute_address = f"127.0.0.1:{mute.getsockname()[1]}"
            client = await started(mute_address, hung.address, alive.address)
            await client.wait_metadata(has_nodes, 30)
            await client.close()
        hung.stop()
        alive.stop()

    run(scenario())


def test_the_bootstrap_addresses_are_tried_again_when_no_known_node_answers():
    async def scenario():
        first, entry = ScriptedBroker(), ScriptedBroker()
        cluster_of(first)
        entry.answers[MetadataRequest] = lambda *args: first.answers[MetadataRequest](*args)
        client = await started(entry.address)
        await client.wait_metadata(has_nodes, 30)
        assert set(client.metadata.nodes) == {1}
        moved = ScriptedBroker()
        cluster_of(moved)
        entry.answers[MetadataRequest] = moved.answers[MetadataRequest]
        first.stop()
        entry.drop()
        await client.wait_metadata(lambda snapshot: snapshot.nodes[1].port == moved.port, 10)
        assert (await client.connection(1)).address == moved.address
        await client.close()
        entry.stop()
        moved.stop()

    run(scenario())


def test_a_lost_connection_is_made_again_and_the_metadata_refreshed():
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


def test_a_connection_is_had_without_waiting_once_it_is_there():
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


def test_many_who_want_a_connection_share_one_attempt_and_its_failure():
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


def test_a_connection_that_nobody_uses_is_closed_and_not_missed(monkeypatch):
    monkeypatch.setattr("pyclient.cluster.client._TIDY_SECONDS", 0.01)

    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = await started(only.address, connections_max_idle_ms=30)
        await client.wait_metadata(has_nodes, 30)
        connection = await client.connection(1)
        while not connection.closed:  # noqa: ASYNC110  # nobody is told of it: that is the point
            await asyncio.sleep(0.005)
        assert str(connection.cause) == "it was idle"
        assert client.health().connected == ()
        assert only.count(MetadataRequest) == 1
        assert (await client.connection(1)).closed is False
        await client.close()
        only.stop()

    run(scenario())


CREATED = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=0)])
NOT_HERE = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=41)])
CREATE = CreateTopicsRequest(topics=[])


def test_a_controller_that_moved_is_found_again():
    async def scenario():
        one, two = ScriptedBroker({CreateTopicsRequest: NOT_HERE}), ScriptedBroker({CreateTopicsRequest: CREATED})
        cluster_of(one, two, controller=1)
        client = await started(one.address, two.address)
        asking = asyncio.ensure_future(client.request_controller(CREATE, timeout=30))
        await one.until(lambda: one.count(CreateTopicsRequest))
        assert one.count(CreateTopicsRequest) == 1
        cluster_of(one, two, controller=2)
        assert (await asking) == CREATED
        await client.close()
        one.stop()
        two.stop()

    run(scenario())


def test_a_controller_that_cannot_be_reached_is_waited_for_until_the_timeout():
    async def scenario():
        one = ScriptedBroker({CreateTopicsRequest: CLOSE})
        cluster_of(one)
        client = await started(one.address)
        with pytest.raises(KafkaTimeout) as error:
            await client.request_controller(CREATE, timeout=1)
        text = str(error.value)
        assert text.startswith("CreateTopics on the controller: not done within 1 s: ")
        assert "no answer to CreateTopics v7: the broker closed the connection" in text
        await client.close()
        one.stop()

    run(scenario())


def test_a_cluster_without_controller_is_waited_for_until_the_timeout():
    async def scenario():
        one = ScriptedBroker()
        cluster_of(one, controller=-1)
        client = await started(one.address)
        with pytest.raises(KafkaTimeout, match=r"CreateTopics on the controller: not done within 0\.05 s"):
            await client.request_controller(CREATE, timeout=0.05)
        await client.close()
        one.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (metadata([]), "its metadata names no broker"),
        (metadata([broker(-5, 9092), broker(1, 0), broker(2, 70_000), broker(3, 1, host="")]), "names no broker"),
        (metadata([broker(1, 9092)], error_code=129), "Metadata was refused"),
        (b"\0\0\0\x0a" + b"\xff" * 10, "a response came with correlation id -1"),
        (CLOSE, "the broker closed the connection"),
        (SILENCE, "no answer to Metadata v13 within 0.2 s"),
    ],
)
def test_hostile_metadata_is_a_failure_of_its_address_and_nothing_breaks(answer, says):
    async def scenario():
        hostile = ScriptedBroker({MetadataRequest: answer})
        client = await started(hostile.address, request_timeout_ms=200)
        with pytest.raises(KafkaTimeout, match=says):
            await client.wait_metadata(has_nodes, 0.8)
        cluster_of(hostile)
        await client.wait_metadata(has_nodes, 30)
        await client.close()
        hostile.stop()

    run(scenario())


def test_closing_ends_every_wait():
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


def test_closing_while_connecting_leaves_nothing_behind():
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


def test_tls_files_that_cannot_be_read_are_an_error_of_the_constructor():
    with pytest.raises(ConfigError, match="ssl_cafile='/no/such/file'"):
        ClusterClient(config("x:1", security_protocol="SSL", ssl_cafile="/no/such/file"))
