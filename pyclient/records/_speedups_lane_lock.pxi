# Who calls a `SendLane`: the loop when there is an answer, and whoever takes the lock.


@cython.final
cdef class LaneReader:
    """What the loop calls when there is something to read for a stream that a lane has used."""

    cdef SendLane _lane
    cdef readonly object usual
    cdef readonly int fd

    def __init__(self, SendLane lane not None, usual, int fd):
        self._lane, self.usual, self.fd = lane, usual, fd

    def __call__(self):
        self._lane.receive(self)


@cython.final
cdef class LaneLock:
    """A lock that stops the `lane` before its holder looks at anything."""

    cdef public SendLane lane
    cdef readonly object acquire, release, locked
    cdef object _lock

    def __init__(self, lock):
        self._lock = lock
        self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked

    def __enter__(self):
        self.acquire()
        if self.lane is not None and (self.lane.armed or self.lane.records):
            try:
                self.lane.stop()
            except BaseException:
                self.release()
                raise
        return True

    def __exit__(self, *_):
        self.release()
