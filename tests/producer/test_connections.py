"""Several connections to a slow broker: the result is that of one connection."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.cluster import client as cluster_client
from pyclient.cluster import node_connection
from pyclient.producer import sender, sender_thread
from pyclient.producer.sender import OVERLOADED_RESPONSES
from tests.producer.log import read_log
from tests.producer.network import CUT, PASS, PRODUCE, FaultyNetwork
from tests.producer.test_node import drain_round
from tests.waiting import PATIENCE, until

PARTITIONS = 3
ROWS = 40  # some batches
SMALL: dict[str, Any] = {"batch_size": 512, "buffer_memory": 65_536, "retry_backoff_ms": 5, "reconnect_backoff_ms": 5}


class Load:
    """Sends numbered rows to all or some partitions as fast as possible, and checks their logs."""

    def __init__(self, client: Any, topic: str, partitions: int = PARTITIONS) -> None:
        self.client, self.topic = client, topic
        self.sent: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        self.futures: list[Any] = []
        self.widest = 0
        client.partitions_for(topic)

    def go_on(self, enough: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not enough():
            assert time.monotonic() < deadline, f"{self.client.metrics()}"
            for partition, sent in self.sent.items():
                rows = [b"%d of %d" % (len(sent) + row, partition) for row in range(ROWS)]
                self.futures.append(self.client.send_many(self.topic, rows, partition=partition))
                sent += rows
            self.widest = max(self.widest, self.used)

    @property
    def used(self) -> int:
        """Return the number of connections over which partitions are spread now."""
        used: int = self.client.metrics()["connections_used"]
        return used

    def check(self, servers: str) -> None:
        """Assert that all records are delivered, once and in order."""
        self.client.flush()
        assert [error for future in self.futures if (error := self.client.exception(future)) is not None] == []
        self.check_log(servers)

    def found(self, servers: str) -> bool:
        """Read and check the log; return False if the broker has no connection left to read with."""
        try:
            self.check_log(servers)
        except errors.ConnectionFailed:
            return False
        return True

    def check_log(self, servers: str) -> None:
        log = read_log(servers, self.topic)
        assert {number: [record.value for record in log[number]] for number in self.sent} == self.sent


@pytest.fixture
def slowly(cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Delay responses for this topic; a few of them are enough to open a connection, on any machine."""
    monkeypatch.setattr(sender, "OVERLOADED_RESPONSES", 3)
    with cluster.faults.delay("Produce", 0.002, topic=topic, times=None):
        yield


@pytest.mark.parametrize("options", [{}, {"linger_ms": 0}, {"enable_idempotence": False}, {"acks": 1}], ids=str)
def test_partitions_are_spread_under_load_and_keep_their_order(
    make: Any, cluster: EmbeddedCluster, topic: str, slowly: None, options: dict[str, Any]
) -> None:
    load = Load(make(**SMALL, **options), topic)
    load.go_on(lambda: load.used == 3)
    load.go_on(lambda: len(load.futures) >= 100)
    load.check(cluster.bootstrap_servers)
    assert load.used == 0, "nothing is under way"
    single = load.client.send(topic, b"%d of 0" % len(load.sent[0]), partition=0)
    load.sent[0].append(b"%d of 0" % len(load.sent[0]))
    assert load.client.result(single).offset == len(load.sent[0]) - 1
    load.check_log(cluster.bootstrap_servers)


def test_connections_are_at_most_the_configured_number(
    make: Any, cluster: EmbeddedCluster, topic: str, slowly: None
) -> None:
    load = Load(make(max_connections_per_broker=2, **SMALL), topic)
    load.go_on(lambda: load.used == 2)
    answered = load.client.metrics()["requests"]
    load.go_on(lambda: load.client.metrics()["requests"] > answered + 2 * OVERLOADED_RESPONSES)
    assert load.widest == 2
    load.check(cluster.bootstrap_servers)


def test_one_partition_uses_only_the_first_connection(
    make: Any, cluster: EmbeddedCluster, topic: str, slowly: None
) -> None:
    load = Load(make(**SMALL), topic, partitions=1)
    load.go_on(lambda: load.client.metrics()["requests"] > 3 * OVERLOADED_RESPONSES)
    assert load.widest == 1
    load.check(cluster.bootstrap_servers)


@pytest.mark.parametrize(("acks", "wanted"), [(0, 1), (1, 2)])
def test_acks_0_uses_only_the_first_connection(make: Any, acks: int, wanted: int) -> None:
    """With acks=0 there is no response, so a partition could not move to another connection in order."""
    node = make(acks=acks).producer_client.sender.node(0)
    for _ in range(6):
        node.began(0)
    for _ in range(OVERLOADED_RESPONSES):
        drain_round(node)
    assert node.wanted == wanted


@pytest.mark.parametrize("side", ["request", "response"])
def test_broken_connections_neither_lose_nor_duplicate_records(
    make: Any, cluster: EmbeddedCluster, network: FaultyNetwork, topic: str, slowly: None, side: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sender_thread, "PAUSE", 0.0)
    load = Load(make(**SMALL), topic)
    load.go_on(lambda: load.used == 3)
    rng, cuts = random.Random(5), []

    def outcome(api: int) -> str:
        if api != PRODUCE or rng.random() > 0.05:
            return PASS
        cuts.append(load.used)
        return CUT

    setattr(network, side, outcome)
    load.go_on(lambda: len(cuts) >= 10 and load.used > 1)
    setattr(network, side, lambda api: PASS)
    load.check(cluster.bootstrap_servers)
    assert max(cuts) > 1


def test_refused_additional_connection_loses_no_record(
    make: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_thread, "PAUSE", 600.0)  # longer than the test takes on a busy machine
    with EmbeddedCluster(config={"num.partitions": PARTITIONS, "max.connections.per.ip": 2}) as cluster:
        servers = cluster.bootstrap_servers
        with cluster.faults.delay("Produce", 0.002, times=None):
            load = Load(make(servers, **SMALL), "small")
            load.go_on(lambda: "max.connections.per.ip" in caplog.text)
            refused = caplog.text.count("max.connections.per.ip")
            answered = load.client.metrics()["requests"]
            load.go_on(lambda: load.client.metrics()["requests"] > answered + 3 * OVERLOADED_RESPONSES)
        assert load.widest == 2
        assert caplog.text.count("max.connections.per.ip") == refused, "it is not asked again and again"
        assert load.client.health()["last_failures"] == {}, "the broker can be reached"
        load.client.flush()
        load.client.close()
        until(lambda: load.found(servers), "the broker does not see that the producer has gone")


def test_additional_connections_that_break_are_not_reopened_at_once(
    make: Any, cluster: EmbeddedCluster, network: FaultyNetwork, topic: str, slowly: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sender_thread, "PAUSE", 600.0)  # longer than the test takes on a busy machine
    load = Load(make(**SMALL), topic)
    load.go_on(lambda: load.used == 2)
    first, before = network.taps[0], network.connects
    network.request = lambda api: CUT if api == PRODUCE and network.asking is not first else PASS
    answered = load.client.metrics()["requests"]
    load.go_on(lambda: load.client.metrics()["requests"] > answered + 5 * OVERLOADED_RESPONSES)
    assert network.connects <= before + 1, "one more, for there was only one further one yet"
    load.check(cluster.bootstrap_servers)


def test_unused_additional_connections_are_closed(
    make: Any,
    cluster: EmbeddedCluster,
    network: FaultyNetwork,
    topic: str,
    slowly: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_client, "IDLE_CHECK_SECONDS", 0.01)
    load = Load(make(connections_max_idle_ms=-1, **SMALL), topic)
    load.go_on(lambda: load.used == 3)
    load.check(cluster.bootstrap_servers)
    monkeypatch.setattr(node_connection, "OPTIONAL_IDLE", 0.02)  # not before: it would close one that opens slowly
    until(lambda: sum(not tap.stream.closed for tap in network.taps) == 1, "they stay open")
