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
    request waits for, `pause`, if set, is called and the steps end: it calls `wake` later.
    """

    def __init__(
        self, unopened: Mapping[TopicPartition, str], opening: Callable[[TopicPartition], IncrementalTask[object]]
    ) -> None:
        self.wake: Callable[[], object] | None = None
        self.pause: Callable[[], object] | None = None
        self._unopened = unopened
        self._opening = opening
        self._all_requested = False
        self._requested: dict[TopicPartition, list[Callable[[], object]]] = {}
        self._in_progress: dict[TopicPartition, IncrementalTask[object]] = {}
        self._failures: dict[TopicPartition, Exception] = {}

    def request_all(self) -> None:
        """Open all logs, as is necessary after a crash. A failure is logged, and retried when the log is requested."""
        self._all_requested = True
        self._wake()

    def request(self, partition: TopicPartition) -> bool:
        """Open this log before others. Return True if it is open. An earlier failure is retried."""
        if partition in self._unopened:
            if partition not in self._requested:
                self._failures.pop(partition, None)
                self._requested[partition] = []
            self._wake()
        return partition not in self._requested

    def on_completion(self, partition: TopicPartition, callback: Callable[[], object]) -> None:
        """Call `callback` when a requested log is open, or cannot be opened, or is deleted."""
        self._requested[partition].append(callback)

    def check(self, partition: TopicPartition) -> None:
        """Raise the reason why a log is not open: its failure, or `NotLeaderOrFollower` while it is being opened."""
        failure = self._failures.get(partition)
        if failure is not None:
            raise failure.with_traceback(None)
        raise errors.NotLeaderOrFollower(f"{partition} is being recovered: try again")

    def forget(self, partition: TopicPartition) -> None:
        """Abandon the opening of a log that is opened or deleted by other code."""
        work = self._in_progress.pop(partition, None)
        if work is not None:
            work.close()
        self._failures.pop(partition, None)

    def close(self) -> None:
        """Abandon the logs that are being opened."""
        for partition in list(self._in_progress):
            self.forget(partition)
        self.wake = self.pause = None

    def steps(self) -> IncrementalTask[None]:
        """Open the queued logs."""
        while (partition := self._next()) is not None:
            waited_for = partition in self._requested
            work = self._in_progress.get(partition)
            if work is None:
                work = self._in_progress[partition] = self._opening(partition)
            failure: Exception | None = None
            try:
                if not (yield from _one_step(work)):
                    continue
            except Exception as error:
                failure = error
            if self._in_progress.get(partition) is not work:
                continue  # the log was deleted, or opened by other code, while the last step waited for the disk
            if failure is not None:
                foreseen = isinstance(failure, errors.BrokerError | OSError)
                log.error("%s cannot be opened: %s", partition, failure, exc_info=None if foreseen else failure)
            waited_for = waited_for or partition in self._requested
            self._complete(partition, failure)
            if self.pause is not None and not waited_for and not self._requested:
                self.pause()
                return

    def _next(self) -> TopicPartition | None:
        for partition in list(self._requested):
            if partition in self._unopened:
                return partition
            self._complete(partition, None)
        for partition in self._in_progress:
            return partition
        if self._all_requested:
            return next((partition for partition in self._unopened if partition not in self._failures), None)
        return None

    def _complete(self, partition: TopicPartition, failure: Exception | None) -> None:
        self._in_progress.pop(partition, None)
        if failure is not None and partition in self._unopened:
            self._failures[partition] = failure
        for callback in self._requested.pop(partition, ()):
            callback()

    def _wake(self) -> None:
        if self.wake is not None:
            self.wake()

    def __repr__(self) -> str:
        queued = f"requested={len(self._requested)} in_progress={len(self._in_progress)}"
        return f"<LogRecoveryQueue unopened={len(self._unopened)} {queued}>"


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
