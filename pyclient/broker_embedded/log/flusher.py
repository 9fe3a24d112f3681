"""Files on their way to the disk: synced by the side thread, so that nobody waits for the disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pyclient.broker_embedded.log.filesystem import File
from pyclient.broker_embedded.log.segment import Segment
from pyclient.broker_embedded.log.side_thread import Dropped, SideThread
from pyclient.broker_embedded.log.stored_log import StoredLog

log = logging.getLogger("pyclient.broker_embedded")


class Flusher:
    """Belongs to the logs' thread; the side thread only syncs, and `collect` there takes note of what it did."""

    def __init__(self, side: SideThread) -> None:
        self._side = side

    def submit(self, owner: StoredLog, segment: Segment) -> None:
        """Syncs a segment that `owner` has just closed; then the owner's recovery point moves."""
        self._sync(owner, segment.files(), partial(owner.segment_flushed, segment))

    def _sync(self, owner: StoredLog, files: list[File], then: Callable[[], object]) -> None:
        for file in files:
            file.retain()
            file.fileno()  # opened here: the side thread must not

        def sync() -> None:
            for file in files:
                file.sync()

        def done(_answer: None, failure: Exception | None) -> None:
            for file in files:
                file.release()
            if failure is None:
                then()
            elif not isinstance(failure, Dropped):
                owner.fail(f"a flush failed: {failure}")

        self._side.submit(sync, done)
