"""Closed segments on their way to the disk: one side thread that syncs files, so that nobody waits for the disk."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from typing import Final

from pyclient.broker_embedded.log.filesystem import File
from pyclient.broker_embedded.log.segment import Segment
from pyclient.broker_embedded.log.stored_log import StoredLog

log = logging.getLogger("pyclient.broker_embedded")

_Job = tuple[StoredLog, Segment, list[File]]
_CLOSE_SECONDS: Final = 30.0


class Flusher:
    """`submit` and `collect` belong to the logs' thread; the side thread, started at the first use, only syncs."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: deque[tuple[_Job, OSError | None]] = deque()
        self._thread: threading.Thread | None = None

    def submit(self, owner: StoredLog, segment: Segment) -> None:
        """Syncs a segment that `owner` has just closed; `collect` moves the owner's recovery point afterwards."""
        files = segment.files()
        for file in files:
            file.retain()
            file.fileno()  # opened here: the side thread must not
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyclient-log-flush", daemon=True)
            self._thread.start()
        self._jobs.put((owner, segment, files))

    def collect(self) -> None:
        """Takes note of what is on the disk by now."""
        while self._done:
            (owner, segment, files), error = self._done.popleft()
            for file in files:
                file.release()
            if error is None:
                owner.segment_flushed(segment)
            else:
                log.error("%r: %s: the flush failed: %s", owner, segment.log.path, error)
                owner.fail(f"a flush failed: {error}")

    def close(self, *, wait: bool) -> None:
        """Ends the thread; `wait` until what was submitted is done."""
        if self._thread is not None:
            self._jobs.put(None)
            if wait:
                self._thread.join(_CLOSE_SECONDS)
            self._thread = None
        self.collect()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: OSError | None = None
            try:
                for file in job[2]:
                    file.sync()
            except OSError as failed:
                error = failed
            self._done.append((job, error))
