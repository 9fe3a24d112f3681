"""Nodes that lose their power, with all that was not synced: each alone, and all at the same moment."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyclient import AsyncAdmin, NewTopic
from tests.chaos.history import History
from tests.simulation.cluster import Cluster
from tests.simulation.disk import Disk, MemoryFileSystem
from tests.simulation.simulation import errors_of_the_log, free_clients_of_dead_processes, simulate
from tests.simulation.watching import Watcher
from tests.simulation.workload import PARTITIONS, TOPIC, Creator, Producing
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS: Final = 50
GROUPS: Final = 10
_ALL: Final[dict[str, Any]] = {"faults": 2, "power_of_all": True}
_LOSING_SEEDS: Final = range(102, 112)
_LIMIT: Final = 120.0
_KAFKA_OPTIONS: Final = {"leader.imbalance.check.interval.seconds": 5}


@pytest.mark.parametrize("group", range(GROUPS))
def test_power_loss_of_all_nodes_keeps_what_was_synced(group: int) -> None:
    acknowledged = 0
    for seed in range(group, SEEDS, GROUPS):
        outcome = simulate(seed, **_ALL)
        assert not outcome.violations, outcome.report()
        assert outcome.faults[-1] == "power of all"
        assert outcome.powerless
        acknowledged += outcome.acknowledged
    assert acknowledged > 50


def test_power_loss_of_all_nodes_loses_what_was_not_synced() -> None:
    def is_lost(seed: int) -> bool:
        return any(each.startswith("lost: ") for each in simulate(seed, **_ALL, unsynced=True).violations)

    assert any(map(is_lost, _LOSING_SEEDS))


def test_nodes_that_lose_power_one_after_the_other_lose_nothing() -> None:
    most = 0
    for seed in range(4):
        outcome = simulate(seed, faults=3, power_in_turn=True)
        assert not outcome.violations, outcome.report()
        most = max(most, len(set(outcome.powerless)))
    assert most > 1


class ConfiguredTopics(Creator):
    """Creates topics with options."""

    async def work(self) -> None:
        await super().work()
        async with AsyncAdmin(self.cluster.bootstrap) as admin:
            configs = {"retention.ms": "123456", "flush.messages": "7"}
            await admin.create_topics([NewTopic("configured", PARTITIONS, 3, configs=configs)])


@pytest.mark.parametrize("seed", range(3))
def test_power_loss_of_all_nodes_keeps_topics_and_leaders(seed: int) -> None:
    with free_clients_of_dead_processes():
        world = World(seed)
        with errors_of_the_log(world):
            _lose_power_of_all(world)
        del world


def _lose_power_of_all(world: World) -> None:
    cluster, history = Cluster(world, profile="kafka", config=_KAFKA_OPTIONS), History()
    watcher = Watcher(cluster, history)
    try:
        cluster.start()
        creator = ConfiguredTopics(cluster, history, "creator", TOPIC)
        creator.start()
        world.run_until(lambda: creator.over, _LIMIT, "the topics' creation")
        producer = Producing(cluster, history, "producer")
        producer.start()
        world.run(1.0)
        _wait_until_healed(world, watcher)
        before, leaders = dict(_topics(cluster)), dict(_leaders(cluster))
        for node in cluster.nodes.values():
            node.kill(power=True)
        for node in cluster.nodes.values():
            world.after(world.rng.uniform(0.05, 1.0), node.start)
        _wait_until_healed(world, watcher)
        producer.stopping = True
        world.run_until(lambda: producer.over, _LIMIT, "the end of the producer")
        assert dict(_topics(cluster)) == before
        world.run_until(lambda: dict(_leaders(cluster)) == leaders, _LIMIT, f"the leaders {leaders}")
        assert world.failures == []
    finally:
        cluster.close()


def _wait_until_healed(world: World, watcher: Watcher) -> None:
    end = world.now + _LIMIT
    world.run(1.1)  # all nodes have been started
    while (missing := watcher.unhealed()) is not None:
        assert world.now < end, missing
        world.run(0.1)


def _topics(cluster: Cluster) -> Iterator[tuple[str, object]]:
    image = cluster.image()
    for topic in image.topics.values():
        yield topic.name, topic.topic_id
        for index, state in topic.partitions.items():
            yield f"{topic.name}-{index}", (state.replicas, sorted(state.isr))
    for resource, values in image.configs.items():
        yield f"options of {resource}", dict(values)


def _leaders(cluster: Cluster) -> Iterator[tuple[str, int]]:
    image = cluster.image()
    for topic in () if image is None else image.topics.values():
        yield from ((f"{topic.name}-{index}", state.leader) for index, state in topic.partitions.items())


# The disk


def _disk() -> tuple[Disk, MemoryFileSystem]:
    disk = Disk()
    fs = MemoryFileSystem(disk, lambda: 0)
    fs.make_directory("/data")
    fs.sync_directory("/")
    return disk, fs


class _Everything(Random):
    """Loses everything."""

    def random(self) -> float:
        return 0.0


def test_disk_forgets_bytes_that_were_not_synced() -> None:
    disk, fs = _disk()
    file = fs.file("/data/log")
    file.pwrite(b"synced", 0)
    file.sync()
    fs.sync_directory("/data")
    file.pwrite(b" and not", 6)
    assert disk.lose_unsynced(_Everything()) == len(b" and not")
    assert fs.read("/data/log") == b"synced"


def test_disk_undoes_a_truncation_that_was_not_synced() -> None:
    disk, fs = _disk()
    file = fs.file("/data/log")
    file.pwrite(b"first second", 0)
    file.sync()
    fs.sync_directory("/data")
    file.truncate(9)
    file.truncate(6)
    file.pwrite(b"other", 6)
    disk.lose_unsynced(_Everything())
    assert fs.read("/data/log") == b"first second"
    file = fs.file("/data/log")
    file.truncate(6)
    file.sync()
    disk.lose_unsynced(_Everything())
    assert fs.read("/data/log") == b"first "


def test_disk_forgets_names_whose_directory_was_not_synced() -> None:
    disk, fs = _disk()
    fs.replace("/data/checkpoint", b"old")
    fs.replace("/data/checkpoint", b"new", sync=False)
    fs.make_directory("/data/log")
    fs.file("/data/log/segment").sync()
    fs.sync_directory("/data/log")
    disk.lose_unsynced(_Everything())
    assert fs.read("/data/checkpoint") == b"old"
    assert not fs.exists("/data/log")
    fs.make_directory("/data/log")
    fs.replace("/data/log/segment", b"kept")
    fs.sync_directory("/data")
    fs.rename("/data/log", "/data/renamed")
    fs.remove("/data/checkpoint")
    disk.lose_unsynced(_Everything())
    assert fs.read("/data/log/segment") == b"kept"
    assert fs.read("/data/checkpoint") == b"old"
    assert not fs.exists("/data/renamed")
    fs.rename("/data/log", "/data/renamed")
    fs.sync_directory("/data")
    disk.lose_unsynced(_Everything())
    assert fs.read("/data/renamed/segment") == b"kept"
    assert not fs.exists("/data/log")
