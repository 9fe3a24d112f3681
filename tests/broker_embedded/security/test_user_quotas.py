"""Quotas of authenticated users: a user above a quota is throttled, and another user with the same client id is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import ThrottlingQuotaExceeded
from pyclient.protocol.messages import alter_client_quotas as alter
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import build_batch
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.nodes import node_of
from tests.broker_embedded.security.tokens import log_in
from tests.broker_embedded.topics import create

ODD_NAME = "eve smith@example.com/100%"
USERS = {"alice": "hers", "bob": "his", ODD_NAME: "hers"}
WINDOW = 50  # seconds, of the broker's: how long a request takes on a busy machine does not matter then
CONFIG = {"quota.window.size.seconds": WINDOW, "controller.quota.window.size.seconds": WINDOW}
DEFAULT = None


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=CONFIG) as cluster:
        client = connected(cluster.bootstrap_servers, "bob")
        create(client, "t", 1)
        client.close()
        yield cluster


@pytest.fixture
def user(cluster: EmbeddedCluster) -> Iterator[Callable[[str], RawClient]]:
    """Open raw connections of users, all with the same client id."""
    clients: list[RawClient] = []

    def open_one(name: str) -> RawClient:
        clients.append(connected(cluster.bootstrap_servers, name))
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()


@pytest.fixture
def quota(cluster: EmbeddedCluster) -> Iterator[Callable[..., None]]:
    """Set a quota of an entity until the end of the test. Each is sent by a connection of its own: one may be muted."""
    done: list[tuple[str, dict[str, str | None]]] = []

    def change(key: str, value: float, **entity: str | None) -> None:
        done.append((key, entity))
        alter_quota(cluster.bootstrap_servers, key, value, entity)

    yield change
    for key, entity in done:
        alter_quota(cluster.bootstrap_servers, key, None, entity)


def connected(address: str, user: str) -> RawClient:
    client = RawClient(address)
    assert log_in(client, user, USERS[user]).error_code == 0
    return client


def alter_quota(address: str, key: str, value: float | None, entity: dict[str, str | None]) -> None:
    named = [
        alter.AlterClientQuotasRequestEntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    ops = [alter.OpData(key=key, value=value or 0.0, remove=value is None)]
    entry = alter.AlterClientQuotasRequestEntryData(entity=named, ops=ops)
    client = connected(address, "bob")
    answer = client.call(alter.AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    client.close()
    assert answer.entries[0].error_code == 0


def produce(client: RawClient) -> int:
    """Send 100 kB; the throttle time."""
    batch = build_batch([(None, bytes(100_000))], timestamp_ms=1_700_000_000_000)
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    return int(client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9).throttle_time_ms)


def fetch(client: RawClient) -> int:
    """Read 100 kB; the throttle time."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
    topics = [FetchTopic(topic="t", partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=100_000, topics=topics)
    return int(client.call(request, 11).throttle_time_ms)


def ask(client: RawClient) -> int:
    return int(client.call(MetadataRequest(topics=[]), 9).throttle_time_ms)


LITTLE = {produce: ("producer_byte_rate", 1.0), fetch: ("consumer_byte_rate", 1.0), ask: ("request_percentage", 1e-9)}


@pytest.mark.parametrize("work", LITTLE, ids=lambda work: work.__name__)
@pytest.mark.parametrize("name", ["alice", ODD_NAME])
def test_quota_of_a_user_throttles_no_other_user(user: Any, quota: Any, work: Callable[..., int], name: str) -> None:
    produce(user("bob"))
    quota(*LITTLE[work], user=name)
    assert work(user(name)) > 0
    assert work(user("bob")) == 0


@pytest.mark.parametrize("work", LITTLE, ids=lambda work: work.__name__)
def test_quota_of_user_and_client_id_precedes_that_of_the_user(user: Any, quota: Any, work: Callable[..., int]) -> None:
    produce(user("bob"))
    key, little = LITTLE[work]
    quota(key, little, user="alice", client_id="raw")
    quota(key, 1e12, user="alice")
    quota(key, 1e12, client_id="raw")
    assert work(user("alice")) > 0
    assert work(user("bob")) == 0
    quota(key, 1e12, user="alice", client_id="raw")
    quota(key, little, user="alice")
    assert work(user("alice")) == 0


def test_default_quota_of_users_is_replaced_by_that_of_a_user(user: Any, quota: Any) -> None:
    quota("producer_byte_rate", 1.0, user=DEFAULT)
    quota("producer_byte_rate", 1e12, user="alice")
    assert produce(user("alice")) == 0
    assert produce(user("bob")) > 0


def test_login_is_not_throttled_by_a_quota(cluster: EmbeddedCluster, user: Any, quota: Any) -> None:
    quota("request_percentage", 1e-9, user=DEFAULT)
    quota("request_percentage", 1e-9, user="ANONYMOUS")
    alice = user("alice")
    port = alice.socket.getsockname()[1]
    [connection] = [each for each in node_of(cluster).connections.values() if each.stream.peername.endswith(f":{port}")]
    assert connection.muted_until is None
    assert ask(alice) > 0
    assert connection.muted_until is not None


def create_topic(client: RawClient, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=100, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    return int(client.call(request, 6).topics[0].error_code)


def test_mutation_quota_of_a_user_refuses_no_other_user(user: Any, quota: Any) -> None:
    quota("controller_mutation_rate", 0.1, user="alice")
    assert create_topic(user("alice"), "a1") == 0  # what was saved up may be exceeded once
    assert create_topic(user("alice"), "a2") == ThrottlingQuotaExceeded.code
    assert create_topic(user("bob"), "b1") == 0


def test_forwarded_request_is_counted_for_its_user() -> None:
    config = {**CONFIG, "controller.quorum.fetch.timeout.ms": 60_000}  # another controller would count from zero
    with EmbeddedCluster(brokers=3, security="SASL_PLAINTEXT", users=USERS, config=config) as cluster:
        active = cluster.controller_id
        address = next(broker.address for broker in cluster.brokers if broker.id != active)
        alter_quota(address, "controller_mutation_rate", 0.1, {"user": "alice"})
        alice, bob = connected(address, "alice"), connected(address, "bob")
        assert create_topic(alice, "a1") == 0
        assert create_topic(alice, "a2") == ThrottlingQuotaExceeded.code
        assert create_topic(bob, "b1") == 0
        for client in (alice, bob):
            client.close()
