"""Opens the logs of a directory in steps: first those that requests wait for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pyclient import errors
from pyclient.broker_embedded.log.incremental_task import IncrementalTask
from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")


class LogRecoveryQueue:
    """The queue of logs to open. `unopened` are the logs not open yet; the steps of `opening(partition)` remove one.

    `wake`, if set, is called when there is work, and runs `steps`. One log is opened at a time. After a log that no
    request waits for, `rest`, if set, is called and the steps end: it calls `wake` later.
    """

    def __init__(
        self, unopened: Mapping[TopicPartition, str], opening: Callable[[TopicPartition], IncrementalTask[object]]
    ) -> None:
        self.wake: Callable[[], object] | None = None
        self.rest: Callable[[], object] | None = None
        self._unopened = unopened
        self._opening = opening
        self._everything = False
        self._wanted: dict[TopicPartition, list[Callable[[], object]]] = {}
        self._begun: dict[TopicPartition, IncrementalTask[object]] = {}
        self._failures: dict[TopicPartition, Exception] = {}

    def want_everything(self) -> None:
        """Open all logs, as is necessary after a crash. A failure is logged, and retried when the log is wanted."""
        self._everything = True
        self._wake()

    def want(self, at: TopicPartition) -> bool:
        """Open this log before others. Return True if it is open. An earlier failure is retried."""
        if at in self._unopened:
            if at not in self._wanted:
                self._failures.pop(at, None)
                self._wanted[at] = []
            self._wake()
        return at not in self._wanted

    def when_over(self, at: TopicPartition, callback: Callable[[], object]) -> None:
        """Call `callback` when a wanted log is open, or cannot be opened, or is deleted."""
        self._wanted[at].append(callback)

    def check(self, at: TopicPartition) -> None:
        """Raise the reason why a log is not open: its failure, or `NotLeaderOrFollower` while it is being opened."""
        failure = self._failures.get(at)
        if failure is not None:
            raise failure.with_traceback(None)
        raise errors.NotLeaderOrFollower(f"{at} is being recovered: try again")

    def forget(self, at: TopicPartition) -> None:
        """Abandon the opening of a log that is opened or deleted by other code."""
        work = self._begun.pop(at, None)
        if work is not None:
            work.close()
        self._failures.pop(at, None)

    def close(self) -> None:
        """Abandon all openings."""
        for at in list(self._begun):
            self.forget(at)
        self.wake = self.rest = None

    def steps(self) -> IncrementalTask[None]:
        """Open the queued logs."""
        while (at := self._next()) is not None:
            waited_for = at in self._wanted
            work = self._begun.get(at)
            if work is None:
                work = self._begun[at] = self._opening(at)
            failure: Exception | None = None
            try:
                if not (yield from _one_step(work)):
                    continue
            except Exception as error:
                failure = error
            if self._begun.get(at) is not work:
                continue  # the log was deleted, or opened by other code, while the last step waited for the disk
            if failure is not None:
                log.error("%s cannot be opened: %s", at, failure)
            waited_for = waited_for or at in self._wanted
            self._end(at, failure)
            if self.rest is not None and not waited_for and not self._wanted:
                self.rest()
                return

    def _next(self) -> TopicPartition | None:
        for at in list(self._wanted):
            if at in self._unopened:
                return at
            self._end(at, None)
        for at in self._begun:
            return at
        if self._everything:
            return next((at for at in self._unopened if at not in self._failures), None)
        return None

    def _end(self, at: TopicPartition, failure: Exception | None) -> None:
        self._begun.pop(at, None)
        if failure is not None and at in self._unopened:
            self._failures[at] = failure
        for callback in self._wanted.pop(at, ()):
            callback()

    def _wake(self) -> None:
        if self.wake is not None:
            self.wake()

    def __repr__(self) -> str:
        return f"<LogRecoveryQueue unopened={len(self._unopened)} wanted={len(self._wanted)} begun={len(self._begun)}>"


def _one_step(work: IncrementalTask[object]) -> IncrementalTask[bool]:
    """Run one step up to its pause. Return True if it was the last one."""
    try:
        step = next(work)
        while step is not None:
            try:
                answer = yield step
            except Exception as error:
                step = work.throw(error)
            else:
                step = work.send(answer)
    except StopIteration:
        return True
    yield None
    return False
