"""What the polling thread does when partitions come and go: commits, callbacks, and the new assignment."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass

from pyclient.consumer.coordinator import ThreadTask
from pyclient.consumer.group_events import Adopt, Adopted, Event, Lose, LossNoted, Partitions, Released, Revoke
from pyclient.consumer.subscription import SubscriptionState
from pyclient.types import OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class Call:
    """The face calls this method of the rebalance listener with these partitions."""

    method: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CommitNow:
    """The face commits these offsets and waits; a failure is logged, not raised."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


Step = Call | CommitNow


class Rebalances:
    """Tasks from the loop, carried out step by step by the face in its own thread.

    `feed` tells the group member, `on_assignment` that the assignment has changed.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        lock: threading.Lock,
        *,
        auto_commit: bool,
        feed: Callable[[Event], None],
        on_assignment: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._lock = lock
        self._auto_commit = auto_commit
        self._feed = feed
        self._on_assignment = on_assignment
        self._tasks: deque[ThreadTask] = deque()

    def add(self, task: ThreadTask) -> None:
        """Takes a task; a loss makes void what was not begun before it."""
        with self._lock:
            if isinstance(task, Lose):
                self._tasks = deque(waiting for waiting in self._tasks if isinstance(waiting, Lose))
            self._tasks.append(task)

    def next(self) -> ThreadTask | None:
        """What the polling thread has to carry out before it goes on."""
        if not self._tasks:
            return None
        with self._lock:
            return self._tasks.popleft() if self._tasks else None

    @property
    def waiting(self) -> int:
        """How many tasks wait for the next poll."""
        return len(self._tasks)

    def expected(self) -> tuple[TopicPartition, ...]:
        """The assignment there will be when every task is done."""
        with self._lock:
            for task in reversed(self._tasks):
                if isinstance(task, Adopt):
                    return task.assigned
            return self._subscription.assignment()

    def carry_out(self, task: ThreadTask) -> Generator[Step, None, None]:
        """The steps of a task, in order. Closing this ends the task, whatever a step has raised."""
        match task:
            case Revoke(partitions):
                try:
                    yield from self.give_up(partitions)
                finally:
                    gone = set(partitions)
                    self._hold(kept for kept in self._subscription.assignment() if kept not in gone)
                    self._feed(Released())
            case Adopt():
                try:
                    yield from self.give_up(task.revoked)
                finally:
                    self._hold(task.assigned)
                    self._feed(Adopted(task.number))
                yield Call("on_assigned", task.added)
            case Lose():
                try:
                    held = self._subscription.assignment()
                    if held:
                        yield Call("on_lost", held)
                finally:
                    self._hold(())
                    self._feed(LossNoted())

    def leave(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Generator[Step, None, None]:
        """The steps before the group is left; auto-commit commits `offsets`."""
        lost = [task for task in iter(self.next, None) if isinstance(task, Lose)]
        if lost:
            for task in lost:
                yield from self.carry_out(task)
            return
        if self._auto_commit:
            yield CommitNow(offsets)
        held = self._subscription.assignment()
        if held:
            yield Call("on_revoked", held)

    def give_up(self, partitions: Partitions) -> Generator[Step, None, None]:
        """Partitions that go to others: auto-commit, then the user's callback."""
        if not partitions:
            return
        if self._auto_commit:
            with self._lock:
                positions = self._subscription.positions()
            yield CommitNow({partition: positions[partition] for partition in partitions if partition in positions})
        yield Call("on_revoked", partitions)

    def _hold(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._subscription.set_assignment(list(partitions))
        self._on_assignment()
