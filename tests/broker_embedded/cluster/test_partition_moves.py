"""The new replicas of a broker's partitions when it leaves, and the controller that several brokers name."""

from __future__ import annotations

from typing import Any

import pytest

from pyclient.broker_embedded.cluster.partition_moves import PartitionMoves, Replicas, drained
from pyclient.broker_embedded.cluster.views import controller_of
from pyclient.errors import ConfigError


def without_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_the_least_used_of_the_others_takes_the_place() -> None:
    replicas = {("a", 0): [1, 2], ("a", 1): [2, 3], ("a", 2): [3, 1], ("b", 0): [1]}
    assert drained(1, without_racks(2, 3, 4), replicas) == {("a", 0): [4, 2], ("a", 2): [3, 4], ("b", 0): [2]}


def test_broker_in_a_rack_without_another_replica_comes_first() -> None:
    racks = {2: "a", 3: "b", 4: "a", 5: None}
    assert drained(1, racks, {("a", 0): [1, 2], ("b", 0): [3, 1]}) == {("a", 0): [5, 2], ("b", 0): [3, 4]}
    assert drained(1, racks, {("a", 0): [1, 2, 5]}) == {("a", 0): [3, 2, 5]}
    assert drained(1, racks, {("a", 0): [1, 2, 3, 5]}) == {("a", 0): [4, 2, 3, 5]}  # no rack is left


def test_a_partition_that_is_everywhere_gets_one_replica_fewer() -> None:
    assert drained(2, without_racks(1, 3), {("a", 0): [2, 1, 3]}) == {("a", 0): [1, 3]}


def test_a_broker_without_partitions_leaves_at_once() -> None:
    assert drained(4, without_racks(1), {("a", 0): [1]}) == {}


def test_the_only_broker_cannot_leave() -> None:
    with pytest.raises(ConfigError, match="only broker"):
        drained(1, {}, {("a", 0): [1]})


class Topics:
    """Topics of one partition each, with their replicas."""

    def __init__(self, **replicas: list[int]) -> None:
        self.replicas = replicas

    def topics(self) -> list[Any]:
        """Return them as the controls do."""
        return [
            {"topic": name, "partitions": [{"partition": 0, "replicas": each}]} for name, each in self.replicas.items()
        ]


def test_broker_is_drained_of_topics_that_are_created_meanwhile() -> None:
    topics = Topics(a=[1, 2], b=[2, 3])
    asked: list[Replicas] = []

    class Moves(PartitionMoves):
        def reassign(self, replicas: Replicas, timeout: float) -> None:
            asked.append(replicas)
            for (topic, _partition), ids in replicas.items():
                topics.replicas[topic] = list(ids)
            topics.replicas.setdefault("new", [1, 3])

    views: Any = topics
    Moves(views, lambda: pytest.fail("no broker is asked")).drain(1, without_racks(2, 3), 30.0)
    assert asked == [{("a", 0): [3, 2]}, {("new", 0): [2, 3]}]
    assert not any(1 in replicas for replicas in topics.replicas.values())


def test_the_controller_is_that_of_the_newest_epoch() -> None:
    old = {"controller_epoch": 3, "controller_id": 1}
    new = {"controller_epoch": 4, "controller_id": 2}
    none = {"controller_epoch": 9, "controller_id": None}
    assert controller_of([old, new, none]) == 2
    assert controller_of([none]) is None
