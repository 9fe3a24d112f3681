"""A broker in memory for the transaction coordinator: its log, its markers, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyclient.broker_embedded.transactions.config import TransactionConfig
from pyclient.broker_embedded.transactions.coordinator import TransactionCoordinator
from pyclient.broker_embedded.transactions.events import Outcome
from pyclient.broker_embedded.transactions.promise import Promise
from pyclient.broker_embedded.transactions.runtime import Marker
from pyclient.records import check_crc, decode_key_values, read_header
from pyclient.testing.clock import ManualClock
from pyclient.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = 3


class Timer:
    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due, self.callback, self.cancelled = due, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class Node:
    """A runtime in memory. With `held`, writes are committed when `commit` is called."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.config = TransactionConfig(transaction_max_timeout_ms=60_000)
        self.transaction_version = 2
        self.log: list[list[tuple[Any, Any]]] = [[], []]
        self.leaders: dict[TopicPartition, int | None] = {A: 1, B: 1}
        self.marker_errors: dict[TopicPartition, int] = {}
        self.markers: list[tuple[TopicPartition, Marker]] = []
        self.timers: list[Timer] = []
        self.held = False
        self.waiting: list[Callable[[int], None]] = []
        self.next_id = 0
        self.no_ids = 0
        self.restart()

    def restart(self) -> None:
        self.timers.clear()
        self.waiting.clear()
        self.coordinator = TransactionCoordinator(self)
        for partition in range(len(self.log)):
            self.coordinator.load(partition, EPOCH)

    def schedule(self, delay: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.clock.monotonic() + delay, callback))
        return self.timers[-1]

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for timer in [each for each in self.timers if each.due <= self.clock.monotonic()]:
            self.timers.remove(timer)
            if not timer.cancelled:
                timer.callback()

    def partition_count(self) -> int:
        return len(self.log)

    def append(self, partition: int, epoch: int, batch: bytes, done: Callable[[int], None]) -> None:
        assert epoch == EPOCH
        header = read_header(batch)
        check_crc(batch, 0, header)
        rows = [(key, value) for _, _, key, value in decode_key_values(batch, 0, header)]

        def commit(code: int) -> None:
            if not code:
                self.log[partition] += rows
            done(code)

        if self.held:
            self.waiting.append(commit)
        else:
            commit(0)

    def commit(self, code: int = 0) -> None:
        """Decide the writes that wait."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each(code)

    def read_partition(self, partition: int) -> Iterator[tuple[Any, Any]]:
        return iter(list(self.log[partition]))

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        self.next_id += 1
        done(self.no_ids, -1 if self.no_ids else self.next_id)

    def leader_of(self, partition: TopicPartition) -> int | None:
        return self.leaders.get(partition)

    def write_markers(
        self,
        leader: int,
        marker: Marker,
        partitions: Iterable[TopicPartition],
        done: Callable[[TopicPartition, int], None],
    ) -> None:
        for partition in partitions:
            assert self.leaders[partition] == leader
            code = self.marker_errors.get(partition, 0)
            if not code:
                self.markers.append((partition, marker))
            done(partition, code)


def value(promise: Promise[Outcome]) -> Outcome:
    outcome = promise.value
    assert outcome is not None, "not answered"
    return outcome


def begun(node: Node, name: str = "x") -> tuple[int, int]:
    """Begin a transaction with two partitions; return the producer's id and epoch."""
    found = value(node.coordinator.init_producer_id(name, 1000, None))
    producer = found.producer_id, found.producer_epoch
    assert not found.error
    added = node.coordinator.add_partitions(name, *producer, frozenset({A, B}), client_version=2)
    assert value(added).error == 0
    return producer


def state(node: Node, name: str = "x") -> str:
    return node.coordinator.describe(name).state.label
