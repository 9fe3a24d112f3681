"""A node gets an older copy of its data directory: it must not lead with records missing, and fetches them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from tests.chaos.history import History
from tests.simulation.cluster import Cluster
from tests.simulation.simulation import errors_of_the_log, free_clients_of_dead_processes, simulate
from tests.simulation.watching import Watcher
from tests.simulation.workload import TOPIC, Creator, Producing
from tests.simulation.world import World

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.image import PartitionImage
    from tests.simulation.cluster import Node

SEEDS: Final = 20
GROUPS: Final = 5
_LIMIT: Final = 60.0


@pytest.mark.parametrize("group", range(GROUPS))
def test_older_copies_of_disks_lose_nothing_acknowledged(group: int) -> None:
    restored = 0
    for seed in range(group, SEEDS, GROUPS):
        outcome = simulate(seed, faults=2, older_copies=True)
        assert not outcome.violations, outcome.report()
        restored += len(outcome.restored)
    assert restored


class OlderCopy:
    """A cluster in which the leader of a partition gets a copy of its disk from before the last records."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = Cluster(world)
        self.history = History()
        self.watcher = Watcher(self.cluster, self.history)
        self.producer = Producing(self.cluster, self.history, "producer")
        self.seen: list[PartitionImage] = []

    @property
    def state(self) -> PartitionImage:
        """The partition in the newest metadata."""
        state: PartitionImage = self.cluster.image().topics[TOPIC].partitions[0]
        return state

    def begin(self) -> Node:
        """Start the cluster with a producer. Return the leader."""
        self.cluster.start()
        creator = Creator(self.cluster, self.history, "creator", TOPIC)
        creator.start()
        self.world.run_until(lambda: creator.over, _LIMIT, "the topic's creation")
        self.producer.start()
        self.world.run(1.0)
        leader = self.cluster.leader_of(TOPIC, 0)
        assert leader is not None
        return leader

    def end_of(self, node: Node) -> int:
        """Return the end of a node's log; -1 without one."""
        broker = node.running
        hosted = None if broker is None or broker.replicas is None else broker.replicas.find(TOPIC, 0)
        return -1 if hosted is None or hosted.log is None else hosted.log.end_offset

    def heal(self) -> None:
        """Wait until all replicas are in sync and equal; note what the metadata say of the partition meanwhile."""
        end = self.world.now + _LIMIT
        while (missing := self._look()) is not None:
            assert self.world.now < end, missing
            self.world.run(0.02)

    def stop_producer(self) -> None:
        """Let the producer end, and all replicas get what it sent."""
        self.producer.stopping = True
        self.world.run_until(lambda: self.producer.over, _LIMIT, "the end of the producer")
        self.heal()

    def _look(self) -> str | None:
        image = self.cluster.image()
        if image is not None and TOPIC in image.topics and (not self.seen or self.seen[-1] is not self.state):
            self.seen.append(self.state)
        return self.watcher.unhealed()


@pytest.mark.parametrize("is_stopped", [False, True], ids=["copied-while-it-runs", "copied-after-a-stop"])
@pytest.mark.parametrize("seed", range(2))
def test_leader_with_an_older_copy_follows_first(is_stopped: bool, seed: int) -> None:
    with free_clients_of_dead_processes():
        world = World(seed)
        with errors_of_the_log(world):
            _restore(OlderCopy(world), is_stopped=is_stopped, others_run=True)
        del world


@pytest.mark.parametrize("seed", range(2))
def test_replicas_are_equal_after_all_restart_and_one_has_an_older_copy(seed: int) -> None:
    """The node may register last, and leads then: a running in-sync replica is what protects the records."""
    with free_clients_of_dead_processes():
        world = World(seed)
        with errors_of_the_log(world):
            _restore(OlderCopy(world), is_stopped=True, others_run=False)
        del world


def _restore(scenario: OlderCopy, *, is_stopped: bool, others_run: bool) -> None:
    world, cluster = scenario.world, scenario.cluster
    try:
        node = scenario.begin()
        if is_stopped:  # the copy has the mark of a clean stop, with the epoch that the broker had then
            node.stop()
        copy = node.disk.copy()
        node.start()
        copied_end = max(map(scenario.end_of, cluster.nodes.values()))
        world.run(2.0)
        scenario.stop_producer()
        end = scenario.end_of(node)
        assert end > copied_end
        for each in cluster.nodes.values() if not others_run else [node]:
            each.kill()
        node.disk = copy
        scenario.seen.clear()
        cluster.start()
        scenario.heal()
        assert any(node.node_id not in state.isr for state in scenario.seen), scenario.seen
        if others_run:
            assert all(scenario.end_of(each) == end for each in cluster.nodes.values())
            for before, state in pairwise(scenario.seen):
                is_elected = state.leader == node.node_id and state.leader_epoch > before.leader_epoch
                assert not is_elected or node.node_id in before.isr, scenario.seen
        scenario.watcher.at_end()
        assert [*scenario.watcher.violations, *world.failures] == []
    finally:
        cluster.close()
