"""A broker of Apache Kafka with two log directories in our cluster: assignments (KIP-858), a lost directory."""

from __future__ import annotations

from pathlib import Path

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.runners import ThreadRunner
from tests.kafka.loads import PARTITIONS
from tests.kafka.mixed import COMMON, Mixed
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import Quorum, RealKafka
from tests.kafka.topics import wait_until

JVM, OURS, OTHER = 9, 1, 2
TOPICS = [f"t{number}" for number in range(4)]


def directories(ours: EmbeddedCluster) -> dict[tuple[str, int], str]:
    """Return the directory of each replica on Kafka's broker, as our controller knows it."""
    controller = ours.node(ours.controller_id or 0)
    assert isinstance(controller.runner, ThreadRunner)
    found = {}
    for topic in TOPICS:
        for index, partition in controller.runner.node.image.topics[topic].partitions.items():
            found[topic, index] = str(partition.directories[partition.replicas.index(JVM)])
    return found


def places(directory: Path) -> set[tuple[str, int]]:
    """Return the partitions whose logs are in a directory."""
    names = (path.name.rpartition("-") for path in directory.glob("t?-*"))
    return {(topic, int(index)) for topic, _, index in names}


def test_assigned_directories_are_known_and_a_lost_one_moves_its_leaders(tmp_path: Path) -> None:
    skip_without_kafka()
    more = tmp_path / "more"
    settings = COMMON | {"log.dirs": f"{{default}},{more}", "log.dir.failure.timeout.ms": "5000"}
    with (
        EmbeddedCluster(brokers=3, config=COMMON) as ours,
        RealKafka(
            joins=Quorum(ours.cluster_id, ours.controller_quorum_voters), first_id=JVM, heap="256M", settings=settings
        ) as jvm,
    ):
        first = jvm.data_dir(JVM)
        mixed = Mixed(ours.bootstrap_servers, ours.brokers, {})
        for topic in TOPICS:
            mixed.create(topic, JVM, OURS, OTHER)
        wait_until(lambda: len(places(first) | places(more)) == len(TOPICS) * PARTITIONS, "not all logs are there")
        in_first, in_more = places(first), places(more)
        assert len(in_first) == len(in_more)

        def assigned() -> bool:
            known = directories(ours)
            ids = [{known[place] for place in each} for each in (in_first, in_more)]
            return [len(each) for each in ids] == [1, 1] and ids[0] != ids[1]

        wait_until(assigned, "the controller does not know the directories")
        more.rename(tmp_path / "gone")
        more.write_text("no directory")

        def moved() -> bool:
            with Producer(ours.bootstrap_servers, linger_ms=50, request_timeout_ms=3000) as producer:
                for topic, index in in_more:
                    for _ in range(20):  # new segments cannot be made: topics have small ones
                        producer.send(topic, bytes(100_000), partition=index)
            return all(ours.leader_of(*place) in (OURS, OTHER) for place in in_more)

        wait_until(moved, "the leaders in the lost directory stay")
        assert all(ours.leader_of(*place) == JVM for place in in_first)
