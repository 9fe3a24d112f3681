"""One embedded broker for the room, and for each test a fresh topic and producers of both kinds."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.cluster import connection_pool
from tests.producer.fast_path_fixture import FastPathFixture
from tests.producer.log import read_log
from tests.producer.network import FaultyNetwork
from tests.producer.producer_clients import CLIENTS

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"num.partitions": 3}) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    """Return a name that no other test uses; the broker creates the topic with three partitions on first use."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FaultyNetwork:
    """Return the network that all producers of this test connect through."""
    network = FaultyNetwork()
    monkeypatch.setattr(connection_pool, "TcpConnector", network.connector)
    return network


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def make(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Iterator[Callable[..., Any]]:
    """Yield `make(**options)`, which returns a producer for the cluster, sync and async in turn."""
    clients = []

    def make(servers: str | None = None, **options: Any) -> Any:
        client = request.param(servers or cluster.bootstrap_servers, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        with contextlib.suppress(errors.DeliveryFailed):  # the test has looked at what it wanted to see
            client.end()
        producer_client = client.producer_client
        if producer_client is not None and producer_client.ended:
            assert producer_client.accumulator.pool.unowned is None
            assert producer_client.accumulator.pool.available == producer_client.accumulator.pool.total


@pytest.fixture
def log(cluster: EmbeddedCluster, topic: str) -> Callable[[], dict[int, list[Any]]]:
    """Return `log()`, which reads the whole topic: partition -> its records, in the order of their offsets."""
    return lambda: read_log(cluster.bootstrap_servers, topic)


@pytest.fixture
def fixture() -> Iterator[FastPathFixture]:
    """Yield a compiled fast path over a pair of sockets."""
    if sys.platform != "linux":
        pytest.skip("only Linux has what keeps the loop from a socket")
    with FastPathFixture() as fixture:
        assert fixture.reader.fileno() != fixture.near.fileno(), "the loop is not kept from the socket"
        yield fixture


@pytest.fixture
def switching() -> Iterator[None]:
    """Switch threads at every opportunity."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
