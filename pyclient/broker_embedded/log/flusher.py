"""Syncs files on the side thread, so that the loop does not block on the disk."""

from __future__ import annotations

from pyclient.broker_embedded.log.disk_thread import DiskThread, Dropped
from pyclient.broker_embedded.log.local_log import PendingFlush


class Flusher:
    """Belongs to the logs' thread; the side thread only syncs, and completion is handled on the logs' thread."""

    def __init__(self, side: DiskThread) -> None:
        self._side = side

    def submit(self, pending: PendingFlush) -> None:
        """Sync a log's files. A failure takes the log offline: the kernel may have dropped the unwritten data."""
        for file in pending.files:
            file.retain()
            file.fileno()  # opened here: the side thread must not

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

        self._side.submit(sync, done)
