"""Bits of committed records are flipped before faults: the nodes find and repair them, and nothing is lost."""

from __future__ import annotations

from typing import Final

import pytest

from tests.chaos.history import History
from tests.simulation.cluster import Cluster
from tests.simulation.damage import Damage, FlippedBit
from tests.simulation.disk import Inode
from tests.simulation.simulation import free_clients_of_dead_processes, simulate
from tests.simulation.watching import Watcher
from tests.simulation.workload import TOPIC, Creator, Producing
from tests.simulation.world import World

SEEDS: Final = 20
GROUPS: Final = 5


@pytest.mark.parametrize("group", range(GROUPS))
def test_damage_of_one_node_at_a_time_loses_nothing(group: int) -> None:
    damaged = acknowledged = 0
    for seed in range(group, SEEDS, GROUPS):
        outcome = simulate(seed, faults=3, damage=True)
        assert not outcome.violations, outcome.report()
        damaged += len(outcome.damaged)
        acknowledged += outcome.acknowledged
    assert damaged >= SEEDS // GROUPS
    assert acknowledged > 50


def test_bit_is_there_until_its_batch_is_cut_or_written_again() -> None:
    inode = Inode(b"abcd")
    flipped = FlippedBit(1, inode, 2, ord("b"))
    assert not flipped.is_there
    inode.data[2] = ord("b")
    assert flipped.is_there
    inode.truncate(1)
    assert not flipped.is_there


def test_bit_stays_where_no_check_looks() -> None:
    """Without the periodic checks nothing reads the batch again: runs with damage make them often."""
    with free_clients_of_dead_processes():
        world = World(1)
        cluster, history = Cluster(world, config={"internal.replica.check.interval.ms": 0}), History()
        damage = Damage(cluster)
        try:
            cluster.start()
            assert not damage.flip(cluster.nodes[1])
            creator = Creator(cluster, history, "creator", TOPIC)
            creator.start()
            world.run_until(lambda: creator.over, 30.0, "the topic's creation")
            producer = Producing(cluster, history, "producer")
            producer.start()
            world.run(1.0)
            producer.stopping = True
            world.run_until(lambda: producer.over, 30.0, "the end of the producer")
            watcher = Watcher(cluster, history)
            world.run_until(lambda: watcher.unhealed() is None, 30.0, "replicas in sync")
            assert damage.flip(cluster.nodes[1])
            world.run(5.0)
            assert not damage.is_repaired
        finally:
            cluster.close()
        del world
