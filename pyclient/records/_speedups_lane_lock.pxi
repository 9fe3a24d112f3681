# The producer lock, which stops the `SendLane` when it is acquired.


@cython.final
cdef class LaneLock:
    """A lock that stops the `lane` before its holder reads any state."""

    cdef public SendLane lane
    cdef readonly object acquire, release, locked
    cdef object _lock

    def __init__(self, lock):
        self._lock = lock
        self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked

    def __enter__(self):
        self.acquire()
        if self.lane is not None and (self.lane.armed or self.lane.records or self.lane._notes.count):
            try:
                self.lane.stop()
            except BaseException:
                self.release()
                raise
        return True

    def __exit__(self, *_):
        self.release()
