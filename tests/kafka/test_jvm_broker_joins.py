"""A broker of Apache Kafka is a member of our cluster: it follows our leaders, leads, and hands leadership back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka.mixed import COMMON, GroupReader, Mixed, check_leaders_under_load, load_on
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import Quorum, RealKafka

JVM, OURS, OTHER = 9, 1, 2


@pytest.fixture(scope="module")
def ours() -> Iterator[EmbeddedCluster]:
    """Three brokers, which are the controllers, too."""
    skip_without_kafka()
    with EmbeddedCluster(brokers=3, processes=True, config=COMMON) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def jvm(ours: EmbeddedCluster) -> Iterator[RealKafka]:
    """A broker of Kafka that is registered with our controllers."""
    quorum = Quorum(ours.cluster_id, ours.controller_quorum_voters)
    with RealKafka(joins=quorum, first_id=JVM, heap="256M", settings=COMMON) as kafka:
        yield kafka


@pytest.fixture
def mixed(ours: EmbeddedCluster, jvm: RealKafka) -> Mixed:
    """All four."""
    directories = {broker.id: Path(broker.data_dir) for broker in ours.brokers} | {JVM: jvm.data_dir(JVM)}
    return Mixed(f"{ours.bootstrap_servers},{jvm.bootstrap_servers}", ours.brokers, directories)


def test_jvm_broker_follows_leads_and_hands_back_under_load(mixed: Mixed, topic: str, group: str) -> None:
    check_leaders_under_load(mixed, topic, group, leaders=(JVM, OTHER, JVM, OURS), replicas=(OURS, JVM, OTHER))


def test_kill_of_the_leading_jvm_broker_and_of_ours_loses_nothing(
    mixed: Mixed, ours: EmbeddedCluster, jvm: RealKafka, topic: str, group: str
) -> None:
    mixed.create(topic, JVM, OURS, OTHER)
    load = load_on(mixed, topic)
    reader = GroupReader(mixed.bootstrap_servers, topic, group)
    reader.wait_for(60)
    jvm.kill(JVM)
    mixed.wait_other_leader(topic, JVM)
    load.wait_for(60)
    jvm.restart(JVM)
    mixed.wait_isr(topic, OURS, OTHER, JVM)
    mixed.lead(topic, OURS)
    load.wait_for(60)
    ours.kill(OURS)
    mixed.wait_other_leader(topic, OURS)
    load.wait_for(60)
    ours.start(OURS)
    mixed.wait_isr(topic, OURS, OTHER, JVM)
    load.wait_for(60)
    load.stop()
    load.check_all_delivered(mixed)
    reader.check(len(load.sent))
    mixed.check_equal_logs(topic, OURS, OTHER, JVM)
    load.client.end()
