"""What the polling thread does when partitions come and go: commits, callbacks, and the new assignment."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyclient.consumer.coordinator import ThreadTask
from pyclient.consumer.group_events import Adopt, Adopted, Event, Lose, LossNoted, Partitions, Released, Revoke
from pyclient.consumer.subscription import SubscriptionState
from pyclient.types import OffsetAndMetadata, TopicPartition


@dataclass(eq=False, slots=True)
class Call:
    """The client calls this method of the rebalance listener with these partitions; `done` when it begins to."""

    method: str
    partitions: Partitions
    done: bool = False


@dataclass(eq=False, slots=True)
class CommitNow:
    """The client commits these offsets and waits; a failure is logged, not raised. `done` when it has an outcome."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    done: bool = False


Step = Call | CommitNow


@dataclass(eq=False, slots=True)
class Notice:
    """An event for the group member, taken in once however often it is sent."""

    event: Event
    delivered: bool = False


@dataclass(frozen=True, slots=True)
class _Leave:
    """The user leaves the group: auto-commit commits these offsets."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class _Stage(Enum):
    COMMIT = "commit"
    REVOKED = "on_revoked"
    LOST = "on_lost"
    APPLY = "apply"
    ASSIGNED = "on_assigned"


@dataclass(eq=False, slots=True)
class _Progress:
    """A task, the stages that are left of it, and the step of the first one, once there is one."""

    task: ThreadTask | _Leave
    stages: tuple[_Stage, ...]
    notice: Notice | None = None
    step: Step | None = None
    begun: bool = False


class Rebalances:
    """Tasks from the loop, carried out step by step in the polling thread.

    Ctrl-C may come at any call. So a task stays first in the queue until its last stage is over; a callback is over
    when it begins, everything else when it is done, and may be done twice. What the next call finds it goes on with:
    an interrupt or an error in a callback keeps no later stage from its turn.

    `notify` tells the group member, `on_assignment` that the assignment has changed.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        lock: threading.Lock,
        *,
        auto_commit: bool,
        notify: Callable[[Notice], None],
        on_assignment: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._lock = lock
        self._auto_commit = auto_commit
        self._notify = notify
        self._on_assignment = on_assignment
        self._tasks: deque[_Progress] = deque()

    def add(self, task: ThreadTask) -> None:
        """Takes a task; a loss makes void what was not begun before it."""
        progress = _Progress(task, _stages(task), Notice(_outcome(task)))
        with self._lock:
            if isinstance(task, Lose):
                self._drop_what_is_not_begun()
            self._tasks.append(progress)

    @property
    def waiting(self) -> int:
        """How many tasks wait for the next poll."""
        return len(self._tasks)

    def expected(self) -> tuple[TopicPartition, ...]:
        """The assignment there will be when every task is done."""
        with self._lock:
            for progress in reversed(self._tasks):
                if isinstance(progress.task, Adopt):
                    return progress.task.assigned
            return self._subscription.assignment()

    def next_step(self) -> Step | None:
        """What the polling thread has to do before it goes on; the same step until that is `done`."""
        while self._tasks:
            progress = self._tasks[0]
            if not progress.stages:
                with self._lock:
                    if self._tasks and self._tasks[0] is progress:
                        self._tasks.popleft()
                continue
            step = progress.step
            if step is None:
                step = progress.step = self._begin(progress)
            if step is not None and not step.done:
                return step
            progress.stages, progress.step = progress.stages[1:], None
        return None

    def leave(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Replaces the tasks that are not begun by the last steps in the group; auto-commit commits `offsets`."""
        with self._lock:
            self._drop_what_is_not_begun()
            if not any(isinstance(progress.task, Lose | _Leave) for progress in self._tasks):
                self._tasks.append(_Progress(_Leave(offsets), (_Stage.COMMIT, _Stage.REVOKED)))

    def _drop_what_is_not_begun(self) -> None:
        kept = (progress for progress in self._tasks if progress.begun or isinstance(progress.task, Lose))
        self._tasks = deque(kept)

    def _begin(self, progress: _Progress) -> Step | None:
        """The step of a task's first stage; None if it has none, or was done right here."""
        progress.begun = True
        task = progress.task
        match progress.stages[0]:
            case _Stage.COMMIT:
                return CommitNow(self._to_commit(task)) if self._auto_commit else None
            case _Stage.REVOKED:
                given_up = self._given_up(task)
                return Call("on_revoked", given_up) if given_up else None
            case _Stage.LOST:
                held = self._subscription.assignment()
                return Call("on_lost", held) if held else None
            case _Stage.ASSIGNED:
                return Call("on_assigned", task.added if isinstance(task, Adopt) else ())
            case _Stage.APPLY:
                self._apply(task)
                if progress.notice is not None:
                    self._notify(progress.notice)
                return None

    def _to_commit(self, task: ThreadTask | _Leave) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if isinstance(task, _Leave):
            return task.offsets
        with self._lock:
            positions = self._subscription.positions()
        given_up = self._given_up(task)
        return {partition: positions[partition] for partition in given_up if partition in positions}

    def _given_up(self, task: ThreadTask | _Leave) -> Partitions:
        match task:
            case Revoke(partitions):
                return partitions
            case Adopt():
                return task.revoked
            case _:
                return self._subscription.assignment()

    def _apply(self, task: ThreadTask | _Leave) -> None:
        match task:
            case Revoke(partitions):
                gone = set(partitions)
                self._hold(kept for kept in self._subscription.assignment() if kept not in gone)
            case Adopt():
                self._hold(task.assigned)
            case Lose():
                self._hold(())

    def _hold(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._subscription.set_assignment(list(partitions))
        self._on_assignment()


def _stages(task: ThreadTask) -> tuple[_Stage, ...]:
    giving_up = (_Stage.COMMIT, _Stage.REVOKED)
    match task:
        case Revoke():
            return (*giving_up, _Stage.APPLY)
        case Adopt():
            return (*(giving_up if task.revoked else ()), _Stage.APPLY, _Stage.ASSIGNED)
        case Lose():
            return _Stage.LOST, _Stage.APPLY


def _outcome(task: ThreadTask) -> Event:
    match task:
        case Revoke():
            return Released()
        case Adopt():
            return Adopted(task.number)
        case Lose():
            return LossNoted()
