"""Our broker is a member of a cluster of Apache Kafka: it follows, leads, and hands leadership back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka import tools
from tests.kafka.mixed import COMMON, GroupReader, Mixed, TransactionalLoad, check_leaders_under_load, load_on
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka

JVM, OURS, OTHER = 1, 7, 8


@pytest.fixture(scope="module")
def jvm() -> Iterator[RealKafka]:
    """One node of Kafka, which is the only controller, and a broker, too."""
    skip_without_kafka()
    with RealKafka(heap="256M", settings=COMMON) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def guests(jvm: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, EmbeddedCluster]]:
    """Two brokers of ours, in directories that Kafka's own tool has formatted."""
    started: dict[int, EmbeddedCluster] = {}
    try:
        for node in (OURS, OTHER):
            directory = tmp_path_factory.mktemp(f"node-{node}")
            joins = {
                "node.id": str(node),
                "process.roles": "broker",
                "controller.quorum.voters": jvm.quorum.voters,
                "controller.listener.names": "CONTROLLER",
            }
            properties = directory.with_suffix(".properties")
            lines = {**joins, "log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
            properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            tools.run("storage", "format", "-t", jvm.quorum.cluster_id, "-c", str(properties))
            cluster = EmbeddedCluster(processes=True, data_dir=directory, config=joins | COMMON)
            started[node] = cluster.start(timeout=120)
        yield started
    finally:
        for cluster in started.values():
            cluster.close()


@pytest.fixture
def mixed(guests: dict[int, EmbeddedCluster], jvm: RealKafka) -> Mixed:
    """All three."""
    servers = ",".join([jvm.bootstrap_servers, *(guest.bootstrap_servers for guest in guests.values())])
    directories = {node: Path(guest.data_dir) for node, guest in guests.items()} | {JVM: jvm.data_dir(JVM)}
    return Mixed(servers, [guest.brokers[0] for guest in guests.values()], directories)


def test_our_broker_follows_leads_and_hands_back_under_load(mixed: Mixed, topic: str, group: str) -> None:
    check_leaders_under_load(mixed, topic, group, leaders=(OURS, OTHER, OURS, JVM), replicas=(JVM, OURS, OTHER))


def test_groups_and_transactions_go_on_while_their_coordinators_move(mixed: Mixed, topic: str, group: str) -> None:
    """Each coordinator reads what the other implementation has written to the internal topics, and goes on."""
    mixed.create(topic, JVM, OURS, OTHER)
    readers = [
        GroupReader(mixed.bootstrap_servers, topic, f"{group}-{protocol}", protocol)
        for protocol in ("classic", "consumer")
    ]
    with TransactionalLoad(mixed.bootstrap_servers, topic) as load:
        load.wait_for(5)
        for internal in ("__consumer_offsets", "__transaction_state"):
            mixed.wait_isr(internal, JVM, OURS, OTHER)
        for leader in (OURS, JVM, OTHER, JVM):
            for internal in ("__consumer_offsets", "__transaction_state"):
                mixed.lead(internal, leader)
            load.wait_for(5)
            for reader in readers:
                reader.wait_for(5)
        sent = load.stop()
    for reader in readers:
        reader.check(sent)
    for name in (topic, "__consumer_offsets", "__transaction_state"):
        mixed.check_equal_logs(name, JVM, OURS, OTHER, written=name == topic)


def test_kill_of_our_leading_broker_and_of_the_jvm_loses_nothing(
    mixed: Mixed, guests: dict[int, EmbeddedCluster], jvm: RealKafka, topic: str, group: str
) -> None:
    """While the JVM is down there is no controller: the leader that is left serves on, and nothing is elected."""
    mixed.create(topic, OURS, JVM, OTHER)
    load = load_on(mixed, topic)
    reader = GroupReader(mixed.bootstrap_servers, topic, group)
    reader.wait_for(60)
    guests[OURS].kill()
    mixed.wait_other_leader(topic, OURS)
    load.wait_for(60)
    guests[OURS].start(timeout=120)
    mixed.wait_isr(topic, JVM, OURS, OTHER)
    mixed.lead(topic, OURS)
    load.wait_for(60)
    jvm.kill(JVM)
    jvm.restart(JVM)
    mixed.wait_isr(topic, JVM, OURS, OTHER)
    load.wait_for(60)
    load.stop()
    load.check_all_delivered(mixed)
    reader.check(len(load.sent))
    mixed.check_equal_logs(topic, JVM, OURS, OTHER)
    load.client.end()
