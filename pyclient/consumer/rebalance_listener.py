"""Callbacks for partitions that are assigned or revoked, and the thread that polls calling them."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from pyclient.consumer.context import ConsumerContext
from pyclient.consumer.member_events import (
    ApplyAssignment,
    AssignmentApplied,
    Event,
    LossAcknowledged,
    Partitions,
    PartitionsLost,
    Released,
    Revoke,
    ThreadTask,
)
from pyclient.types import OffsetAndMetadata, TopicPartition


class RebalanceListener:
    """Give an instance of a subclass to `subscribe(topics, listener=...)`; the methods run in the thread that polls.

    They may commit, seek, pause and ask for positions, but not poll. An exception does not prevent the other callbacks:
    `poll` raises the first one when the rebalance is complete, with a note that says where it was raised, and logs
    later ones. With `AsyncConsumer` they may be `async def`.
    """

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle newly assigned partitions, of which nothing was read yet.

        The last step of every rebalance, also of one without new partitions.
        """
        return None

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that are assigned to another member as soon as this returns: commit what is processed."""
        return None

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that another member already owns, which cannot be committed; default: `on_revoked`."""
        return self.on_revoked(partitions)


@contextmanager
def calling(listener: RebalanceListener, method: str, partitions: Sequence[TopicPartition]) -> Iterator[None]:
    """Add a note to an error of the user's callback: where and when it was raised (PEP 678)."""
    try:
        yield
    except Exception as error:  # the user's own code may raise anything
        names = ", ".join(map(str, partitions)) or "no partitions"
        error.add_note(
            f"raised by {method} of the rebalance listener {listener!r} for {names}; the rebalance is complete"
        )
        raise


@dataclass(eq=False, slots=True)
class Call:
    """A call of a rebalance listener's method with these partitions; `done` is set when it starts."""

    method: str
    partitions: Partitions
    done: bool = False


@dataclass(eq=False, slots=True)
class CommitNow:
    """A commit to wait for; a failure is logged, not raised. `done` is set when it has an outcome."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    done: bool = False


Step = Call | CommitNow


@dataclass(eq=False, slots=True)
class Notice:
    """An event for the group member, delivered once however often it is sent."""

    event: Event
    delivered: bool = False


@dataclass(frozen=True, slots=True)
class _Leave:
    """Leaving the group: auto-commit commits these offsets."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class _Stage(Enum):
    COMMIT = "commit"
    REVOKED = "on_revoked"
    LOST = "on_lost"
    APPLY = "apply"
    ASSIGNED = "on_assigned"


@dataclass(eq=False, slots=True)
class _Progress:
    """A task, its remaining stages, and the step of the first one, if it has started."""

    task: ThreadTask | _Leave
    stages: tuple[_Stage, ...]
    notice: Notice | None = None
    step: Step | None = None
    started: bool = False


class RebalanceListenerInvoker:
    """The loop's tasks, carried out step by step in the polling thread.

    Ctrl-C may end any call, so a task stays first in the queue until its last stage is complete. A callback is complete
    when it starts, other stages when they are done, and those may run twice. The next call continues: an interrupt or
    an error in a callback skips no later stage.

    `notify` delivers events to the group member; `on_assignment` is called when the assignment has changed.
    """

    def __init__(
        self, context: ConsumerContext, *, notify: Callable[[Notice], None], on_assignment: Callable[[], None]
    ) -> None:
        self._subscription = context.subscription
        self._lock = context.lock
        self._auto_commit = bool(context.config.enable_auto_commit)
        self._notify = notify
        self._on_assignment = on_assignment
        self._tasks: deque[_Progress] = deque()

    def add(self, task: ThreadTask) -> None:
        """Add a task; a loss drops tasks that have not started."""
        progress = _Progress(task, _stages(task), Notice(_outcome(task)))
        with self._lock:
            if isinstance(task, PartitionsLost):
                self._drop_not_started()
            self._tasks.append(progress)

    @property
    def waiting(self) -> int:
        """Return the number of tasks that wait for a poll."""
        return len(self._tasks)

    def expected(self) -> tuple[TopicPartition, ...]:
        """Return the assignment after all queued tasks."""
        with self._lock:
            for progress in reversed(self._tasks):
                if isinstance(progress.task, ApplyAssignment):
                    return progress.task.assigned
            return self._subscription.assignment()

    def next_step(self) -> Step | None:
        """Return the next step of the polling thread, None if there is none; the same one until it is `done`."""
        while self._tasks:
            progress = self._tasks[0]
            if not progress.stages:
                with self._lock:
                    if self._tasks and self._tasks[0] is progress:
                        self._tasks.popleft()
                continue
            step = progress.step
            if step is None:
                step = progress.step = self._start_stage(progress)
            if step is not None and not step.done:
                return step
            progress.stages, progress.step = progress.stages[1:], None
        return None

    def leave(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Replace the tasks that have not started by leaving the group; auto-commit commits `offsets`."""
        with self._lock:
            self._drop_not_started()
            if not any(isinstance(progress.task, PartitionsLost | _Leave) for progress in self._tasks):
                self._tasks.append(_Progress(_Leave(offsets), (_Stage.COMMIT, _Stage.REVOKED)))

    def _drop_not_started(self) -> None:
        kept = (progress for progress in self._tasks if progress.started or isinstance(progress.task, PartitionsLost))
        self._tasks = deque(kept)

    def _start_stage(self, progress: _Progress) -> Step | None:
        """Return the step of a task's first stage; None if it has none or was carried out here."""
        progress.started = True
        task = progress.task
        match progress.stages[0]:
            case _Stage.COMMIT:
                return CommitNow(self._to_commit(task)) if self._auto_commit else None
            case _Stage.REVOKED:
                revoked = self._revoked(task)
                return Call("on_revoked", revoked) if revoked else None
            case _Stage.LOST:
                held = self._subscription.assignment()
                return Call("on_lost", held) if held else None
            case _Stage.ASSIGNED:
                return Call("on_assigned", task.added if isinstance(task, ApplyAssignment) else ())
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
        revoked = self._revoked(task)
        return {partition: positions[partition] for partition in revoked if partition in positions}

    def _revoked(self, task: ThreadTask | _Leave) -> Partitions:
        match task:
            case Revoke(partitions):
                return partitions
            case ApplyAssignment():
                return task.revoked
            case _:
                return self._subscription.assignment()

    def _apply(self, task: ThreadTask | _Leave) -> None:
        match task:
            case Revoke(partitions):
                gone = set(partitions)
                self._set_assignment(kept for kept in self._subscription.assignment() if kept not in gone)
            case ApplyAssignment():
                self._set_assignment(task.assigned)
            case PartitionsLost():
                self._set_assignment(())

    def _set_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._subscription.set_assignment(list(partitions))
        self._on_assignment()


def _stages(task: ThreadTask) -> tuple[_Stage, ...]:
    revoking = (_Stage.COMMIT, _Stage.REVOKED)
    match task:
        case Revoke():
            return (*revoking, _Stage.APPLY)
        case ApplyAssignment():
            return (*(revoking if task.revoked else ()), _Stage.APPLY, _Stage.ASSIGNED)
        case PartitionsLost():
            return _Stage.LOST, _Stage.APPLY


def _outcome(task: ThreadTask) -> Event:
    match task:
        case Revoke():
            return Released()
        case ApplyAssignment():
            return AssignmentApplied(task.number)
        case PartitionsLost():
            return LossAcknowledged()
