"""One thread for work that blocks on the disk or computes without the GIL."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.local_log import PendingFlush

Done = Callable[[Any, "Exception | None"], None]
"""Called on the logs' thread with the result of the work or its failure."""

_CLOSE_SECONDS: Final = 30.0


class Dropped(Exception):
    """The work was not done: the thread was closed without waiting for it, or the log was deleted."""


class DiskThread:
    """`submit`, `collect` and `close` belong to the logs' thread; the disk thread is started on first use.

    `wake`, if set, is called from the disk thread after each piece of work, to have `collect` called soon.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], object] | None = None
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._done: deque[tuple[Done, Any, Exception | None]] = deque()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """Run `work` on the disk thread, in the order of submissions; `collect` then calls `done`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyclient-log-disk", daemon=True)
            self._thread.start()
        self._jobs.put((work, done))

    def flush(self, pending: PendingFlush) -> None:
        """Sync a log's files. A failure takes the log offline: the kernel may have dropped the unwritten data."""
        for file in pending.files:
            file.retain()
            file.fileno()  # opened here: the disk thread must not

        def sync() -> None:
            for file in pending.files:
                if pending.owner.deleted:
                    raise Dropped("the log was deleted")
                file.sync()
            if pending.owner.deleted:
                raise Dropped("the log was deleted")
            pending.names()

        def done(_answer: None, failure: Exception | None) -> None:
            for file in pending.files:
                file.release()
            if failure is None:
                pending.done()
            elif not isinstance(failure, Dropped):
                pending.owner.fail(f"a flush failed: {failure}")

        self.submit(sync, done)

    def collect(self) -> None:
        """Call the callbacks of completed work."""
        while self._done:
            done, answer, failure = self._done.popleft()
            done(answer, failure)

    def wait_until_idle(self) -> None:
        """Block until all submitted work is done and its callbacks were called."""
        if self._thread is not None:
            reached = threading.Event()
            self._jobs.put((reached.set, lambda _answer, _failure: None))
            reached.wait(_CLOSE_SECONDS)
        self.collect()

    def close(self, *, wait: bool) -> None:
        """End the thread. Without `wait` only the current work is completed; the rest fails with `Dropped`."""
        while self._thread is not None:
            if not wait:
                self._drop_pending()
            thread, self._thread = self._thread, None
            self._jobs.put(None)
            thread.join(_CLOSE_SECONDS)
            self.collect()  # which may submit more

    def _drop_pending(self) -> None:
        with suppress(queue.Empty):
            while (job := self._jobs.get_nowait()) is not None:
                self._done.append((job[1], None, Dropped("the node ended")))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            answer: Any = None
            failure: Exception | None = None
            try:
                answer = work()
            except Exception as error:
                failure = error
            del work, job
            self._done.append((done, answer, failure))
            wake = self.wake
            if wake is not None:
                wake()
