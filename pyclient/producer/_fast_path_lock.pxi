# The producer lock, which stops the `FastPath` when it is acquired.


@cython.final
cdef class FastPathLock:
    """A lock that stops the `fast_path` before its holder reads any state."""

    cdef public FastPath fast_path
    cdef readonly object acquire, release, locked
    cdef object _lock

    def __init__(self, lock):
        self._lock = lock
        self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked

    def __enter__(self):
        self.acquire()
        cdef FastPath fast_path = self.fast_path
        if fast_path is not None and (fast_path.armed or fast_path.records or fast_path.metrics.count):
            try:
                fast_path.stop()
            except BaseException:
                self.release()
                raise
        return True

    def __exit__(self, *_):
        self.release()
