"""A client finds its cluster and keeps its metadata up to date."""

import asyncio
import logging
import socket
from contextlib import asynccontextmanager

import pytest

from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import EMPTY
from pyclient.errors import (
    ConnectionFailed,
    InvalidTopic,
    KafkaTimeout,
    TopicAuthorizationFailed,
)
from pyclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.cluster.clients import cluster_of, has_nodes, started
from tests.cluster.scripts import broker, config, metadata, partition, run, topic
from tests.free_ports import closed_port
from tests.net.scripted import CLOSE, SILENCE, ScriptedBroker
from tests.patience import retry_until_error_async


def test_cluster_is_found_from_first_address_that_answers():
    async def scenario(dead):
        alive = ScriptedBroker()
        cluster_of(alive)
        client = await started(f"127.0.0.1:{dead}", "no-such-host.invalid:1", alive.address)
        found = await client.wait_metadata(has_nodes, 30)
        assert found.cluster_id == "the-cluster"
        assert client.metadata is found
        await client.close()
        alive.stop()

    with closed_port() as port:
        run(scenario(port))


def test_timeout_reports_failure_of_each_address():
    async def scenario(dead):
        client = await started(f"127.0.0.1:{dead}", "no-such-host.invalid:1")
        refused = rf"(?=.*127\.0\.0\.1:{dead}: connection refused)(?=.*DNS does not know)"  # in any order
        text = await retry_until_error_async(lambda: client.wait_metadata(has_nodes, 3.0), refused)
        assert "no suitable metadata within 3 s" in text
        assert "check bootstrap_servers" in text
        assert "DNS does not know the name 'no-such-host.invalid'" in text
        assert set(client.last_failures) == {f"127.0.0.1:{dead}", "no-such-host.invalid:1"}
        assert client.metadata is EMPTY
        health = client.health()
        assert health.metadata_age is None
        assert health.connected == ()
        await client.close()

    with closed_port() as port:
        run(scenario(port))


def test_cluster_that_starts_later_is_found():
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


def test_bootstrap_connection_is_reused_for_its_broker():
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


def test_new_topics_are_requested_at_once_and_refreshes_are_merged():
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


def test_metadata_is_refreshed_by_age():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only)
        client = await started(only.address, metadata_max_age_ms=30)
        await only.until(lambda: only.count(MetadataRequest) >= 4)
        await client.close()
        only.stop()

    run(scenario())


def test_listeners_get_every_snapshot_even_if_one_raises(caplog):
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


def test_topic_partitions_waits_for_topic_and_raises_refusal_at_once():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only, topics=("a",))
        good = only.answers[MetadataRequest]
        client = await started(only.address)
        assert len((await client.topic_partitions("a", 10)).partitions) == 2
        says = r"topic 'missing' is not available \(UnknownTopicOrPartition\).*create it"
        await retry_until_error_async(lambda: client.topic_partitions("missing", 0.1), says)
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


def test_refused_topic_is_requested_again_by_next_call():
    async def scenario():
        only = ScriptedBroker()
        cluster_of(only, topics=("secret",))
        allowed = only.answers[MetadataRequest]
        only.answers[MetadataRequest] = metadata([broker(1, only.port)], [topic("secret", error_code=29)])
        client = await started(only.address)
        text = f"'secret': broker {only.address} refused.*needs DESCRIBE .*on the topic"
        with pytest.raises(TopicAuthorizationFailed, match=text) as first:
            await client.topic_partitions("secret", 10)
        asked = only.count(MetadataRequest)
        together = [client.topic_partitions("secret", 10) for _ in range(50)]
        found = await asyncio.gather(*together, return_exceptions=True)
        assert {str(error) for error in found} == {str(first.value)}
        assert only.count(MetadataRequest) == asked + 1
        with pytest.raises(TopicAuthorizationFailed):  # and not KafkaTimeout
            await client.topic_partitions("secret", 0)
        only.answers[MetadataRequest] = allowed
        assert len((await client.topic_partitions("secret", 10)).partitions) == 2
        await client.close()
        only.stop()

    run(scenario())


def test_hanging_node_delays_by_hedge_delay_only(monkeypatch):
    for module in ("client", "metadata_updater"):
        monkeypatch.setattr(f"pyclient.cluster.{module}.NEXT_NODE_SECONDS", 0.02)

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


def test_bootstrap_addresses_are_retried_when_no_node_answers():
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


@asynccontextmanager
async def knowing_a_former_leader():
    """Yield a client whose first node names the leader of an earlier epoch than its second node does."""
    behind, other = ScriptedBroker(), ScriptedBroker()
    nodes = [broker(1, behind.port), broker(2, other.port)]
    behind.answers[MetadataRequest] = metadata(nodes, [topic("a", [partition(0, 1, 4)])])
    other.answers[MetadataRequest] = metadata(nodes, [topic("a", [partition(0, 2, 5)])])
    client = await started(behind.address)
    client.add_topics(["a"])
    await client.wait_metadata(lambda snapshot: snapshot.leader("a", 0) == 1, 30)
    yield client
    await client.close()
    behind.stop()
    other.stop()


def test_refreshes_without_news_go_to_other_nodes():
    async def scenario():
        async with knowing_a_former_leader() as client:
            await client.wait_metadata(lambda snapshot: snapshot.leader("a", 0) == 2, 30)

    run(scenario())


def test_refresh_elsewhere_takes_newer_leaders_from_another_node():
    async def scenario():
        async with knowing_a_former_leader() as client:
            await client.refresh_elsewhere(["a"], 2)
            assert client.metadata.leader("a", 0) == 1
            seen = []
            client.listeners.append(lambda snapshot: seen.append(snapshot.leader("a", 0)))
            await client.refresh_elsewhere(["a"], 1)
            assert (seen[-1], client.metadata.leader("a", 0)) == (2, 2)
            await client.refresh_elsewhere(["a"], 2)
            assert client.metadata.leader("a", 0) == 2  # the other one is behind

    run(scenario())


def test_refresh_elsewhere_fails_without_an_answer_and_needs_another_node():
    async def scenario():
        first, second = ScriptedBroker(), ScriptedBroker()
        cluster_of(first, second)
        client = await started(first.address)
        client.add_topics(["a"])
        await client.wait_metadata(lambda snapshot: "a" in snapshot.topics, 30)
        second.stop()
        with pytest.raises(ConnectionFailed):
            await client.refresh_elsewhere(["a"], 1)
        cluster_of(first)
        client.request_refresh()
        await client.wait_metadata(lambda snapshot: set(snapshot.nodes) == {1}, 30)
        first.answers[MetadataRequest] = SILENCE
        await client.refresh_elsewhere(["a"], 1)
        await client.close()
        first.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (metadata([]), "its metadata names no broker"),
        (metadata([broker(-5, 9092), broker(1, 0), broker(2, 70_000), broker(3, 1, host="")]), "names no broker"),
        (metadata([broker(1, 9092)], error_code=129), "Metadata was refused"),
        (b"\0\0\0\x0a" + b"\xff" * 10, "a response came with correlation id -1"),
        (CLOSE, "the broker closed the connection"),
        (SILENCE, "no answer to Metadata v13 within 0.4 s"),
    ],
)
def test_invalid_metadata_is_recorded_as_failure_of_its_address(answer, says):
    async def scenario():
        hostile = ScriptedBroker({MetadataRequest: answer})
        options = {"socket_connection_setup_timeout_ms": 400}  # for the request that detects SASL
        if answer is SILENCE:
            options["request_timeout_ms"] = 400
        client = await started(hostile.address, **options)
        await retry_until_error_async(lambda: client.wait_metadata(has_nodes, 0.5), says)
        cluster_of(hostile)
        await client.wait_metadata(has_nodes, 30)
        await client.close()
        hostile.stop()

    run(scenario())
