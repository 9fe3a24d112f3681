"""One thread beside the logs' own, for what waits for a disk or computes without the GIL."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

Done = Callable[[Any, "Exception | None"], None]
"""Told, on the logs' thread, what the work gave or how it failed."""

_CLOSE_SECONDS: Final = 30.0


class SideThread:
    """`submit`, `collect` and `close` belong to the logs' thread; the side thread is started at the first use.

    `wake`, when it is set, is called from the side thread after each piece of work, so that `collect` follows soon.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], object] | None = None
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._done: deque[tuple[Done, Any, Exception | None]] = deque()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """Has `work` done, in the order of the submissions; `collect` then calls `done`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyclient-log-disk", daemon=True)
            self._thread.start()
        self._jobs.put((work, done))

    def collect(self) -> None:
        """Tells of what is done by now."""
        while self._done:
            done, answer, failure = self._done.popleft()
            done(answer, failure)

    def close(self, *, wait: bool) -> None:
        """Ends the thread; `wait` until what was submitted is done, and until no more comes of it."""
        while self._thread is not None:
            thread, self._thread = self._thread, None
            self._jobs.put(None)
            if not wait:
                break
            thread.join(_CLOSE_SECONDS)
            self.collect()  # which may submit more

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
