import asyncio
import contextlib
import uuid

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.cluster.client import ClusterClient
from pyclient.config import ClientConfig
from pyclient.errors import ConnectionFailed, InvalidTopic
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.cluster.scripts import run
from tests.patience import retry_until_error_async
from tests.waiting import until_async


def client_of(servers, **options):
    auto_create = options.pop("allow_auto_topic_creation", True)
    config = ClientConfig(bootstrap_servers=tuple(servers.split(",")), **options)
    return ClusterClient(config, allow_auto_topic_creation=auto_create)


def test_metadata_request_creates_topic_unless_disabled(kafka_cluster):
    name = f"asked-{uuid.uuid4().hex[:8]}"

    async def scenario():
        careful = client_of(kafka_cluster.bootstrap_servers, allow_auto_topic_creation=False, retry_backoff_ms=10)
        await careful.start()
        await retry_until_error_async(lambda: careful.topic_partitions(name, 0.5), "UnknownTopicOrPartition")
        client = client_of(kafka_cluster.bootstrap_servers)
        await client.start()
        info = await client.topic_partitions(name, 10)
        assert info.topic_id.int != 0
        assert client.metadata.leader(name, 0) == client.metadata.controller_id == 1
        assert (await careful.topic_partitions(name, 10)).topic_id == info.topic_id
        with pytest.raises(InvalidTopic, match="topic 'bad/name'"):
            await client.topic_partitions("bad/name", 10)
        await careful.close()
        await client.close()

    run(scenario())


def test_coordinator_is_found_and_has_own_connection(kafka_cluster):
    async def scenario():
        client = client_of(kafka_cluster.bootstrap_servers)
        await client.start()
        node = await client.find_coordinator("a-group", timeout=20)
        connection = await client.connection(node, purpose="coordinator")
        assert connection is not await client.connection(node)
        answer = await connection.request(HeartbeatRequest(group_id="a-group", generation_id=1, member_id="nobody"))
        assert answer.error_code == 25  # UNKNOWN_MEMBER_ID
        await client.close()

    run(scenario())


def test_thousands_of_pipelined_requests_are_answered_in_order(kafka_cluster):
    async def scenario():
        client = client_of(kafka_cluster.bootstrap_servers)
        await client.start()
        connection = await client.any_connection()
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        requests = [heartbeat if n % 3 else MetadataRequest(topics=[]) for n in range(3000)]
        answers = await asyncio.gather(*map(connection.submit, requests))
        for request, answer in zip(requests, answers, strict=True):
            assert type(answer) is type(request).response
        await client.close()

    run(scenario())


async def first_answer(client):
    """Ask for all topics; an attempt to connect that began while no broker ran may fail, and the next one counts."""
    while True:  # `run` limits the time
        with contextlib.suppress(ConnectionFailed):
            return await client.request(MetadataRequest(topics=None), timeout=20)


def test_client_reconnects_after_broker_restart(tmp_path):
    async def scenario(servers, restarted):
        client = client_of(servers, retry_backoff_ms=10, reconnect_backoff_max_ms=50)
        await client.start()
        await client.topic_partitions("kept", 20)
        lost = await client.connection(1)
        cluster = await asyncio.to_thread(restarted)
        try:
            await until_async(lambda: lost.closed)
            assert (await first_answer(client)).topics[0].name == "kept"
            await client.close()
        finally:
            await asyncio.to_thread(cluster.close)

    first = EmbeddedCluster(data_dir=tmp_path).start()

    def restart():
        first.close()
        return EmbeddedCluster(data_dir=tmp_path, port=int(first_port)).start()

    servers = first.bootstrap_servers
    first_port = servers.rpartition(":")[2]
    run(scenario(servers, restart))
