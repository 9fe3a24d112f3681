# A thread that waits for the responses of a `FastPath` itself: waking it takes as long as all the rest of a delivery.

cdef enum:
    READABLE = 1
    NOTIFIED = 2

cdef double SIGNAL_SECONDS = 0.25  # a signal just before a thread blocks does not wake it


@cython.final
cdef class EventFd:
    """Wakes a thread that waits at a socket."""

    cdef int _fd
    cdef bint _notified

    def __cinit__(self):
        self._fd = event_fd_new()

    def __dealloc__(self):
        self.shut()

    cdef void shut(self) noexcept:
        if self._fd >= 0:
            close_descriptor(self._fd)
            self._fd = -1

    cdef int wait_with(self, int fd, double seconds) except -1:
        """Block up to `seconds` (below 0: no limit); return `READABLE`, `NOTIFIED`, both or 0."""
        cdef int ready
        with nogil:
            ready = event_fd_wait(self._fd, fd, seconds)
        if ready & NOTIFIED:
            self._notified = True  # also if a forked child did it
        return ready

    cdef bint is_open(self) noexcept:
        return self._fd >= 0

    cdef void notify(self) noexcept:
        if not self._notified and self._fd >= 0:
            self._notified = True
            event_fd_set(self._fd)

    cdef void clear(self) noexcept:
        if self._notified:
            self._notified = False
            event_fd_clear(self._fd)


@cython.final
cdef class FastPathWaiter:
    """Lets one thread at a time wait at the fast path's socket instead of the loop.

    That is the callback thread, or a caller that waits for a record.

    Everything but the waiting itself is done under the GIL.
    """

    cdef FastPath _fast_path
    cdef EventFd _event_fd
    cdef FastPathReader reader  # of the stream at whose socket a thread waits, or None
    cdef int64_t _turns  # number of turns so far
    cdef int64_t _turn  # turn of the waiting thread
    cdef bint _taking  # the waiting thread is receiving
    cdef bint _woken
    cdef bint _ended

    def __init__(self, FastPath fast_path not None):
        self._fast_path, self._event_fd = fast_path, EventFd()

    @property
    def active(self):
        """True if a thread waits at the socket and the loop does not poll it."""
        return self.reader is not None and self.reader.polling_off

    cdef bint is_possible(self) noexcept:
        if not self._fast_path.armed or self.reader is not None or not self._event_fd.is_open():
            return False
        return self._fast_path.reader.can_stop_polling()

    cdef int64_t begin_turn(self) noexcept:
        """Make the calling thread the waiting one; return the number of its turn."""
        self._turns += 1
        self._turn = self._turns
        self.reader = self._fast_path.reader
        return self._turn

    cdef void end_turn(self, int64_t turn) noexcept:
        if self.reader is None or self._turn != turn:
            return  # another thread came while this one handled a signal
        reader, self.reader = self.reader, None
        (<FastPathReader>reader).resume_polling()
        if self._ended:
            self._event_fd.shut()

    cdef bint handle_signals(self, FastPathReader reader, int64_t turn) except -1:
        """Run signal handlers, which may block or wait for a record. Return False if another thread came meanwhile."""
        self.end_turn(turn)
        try:
            PyErr_CheckSignals()
        finally:
            alone = self.reader is None
            if alone:
                self.reader, self._turn, self._woken = reader, turn, False
                self._event_fd.clear()
        return alone

    def for_calls(self, queue):
        """Receive responses in the callback thread until it must check its `queue`.

        That is when it is not empty, `wake` was called, or the fast path has stopped.
        """
        cdef int64_t turn
        if not self.is_possible():
            return
        turn = self.begin_turn()  # `wake` works from now on, so nothing posted after the next line is missed
        try:
            if queue.empty():
                self.wait(turn, None, -1, None)
        finally:
            self.end_turn(turn)

    def for_outcome(self, BatchOutcome outcome not None, double timeout):
        """Receive responses in a thread that waits for an outcome, up to `timeout` seconds (below 0: no limit).

        Return True if the outcome is known, False if not; None without any effect if it cannot be waited for here.
        """
        cdef FastPathRecord record
        cdef list waiters = []
        cdef int64_t turn
        wake = self.wake
        entry = (0, wake)
        # Nothing is created from here on that could start a garbage collection, in which other threads run.
        if not self.is_possible() or self._fast_path.context_locked():
            return None
        for record in self._fast_path.records:
            if record.delivery is outcome:
                break
        else:
            return None
        if outcome.waiters is None:
            outcome.waiters = waiters  # atomic under the GIL: the delivery lock is free
        outcome.waiters.append(entry)
        turn = self.begin_turn()
        try:
            self.wait(turn, outcome, timeout, wake)
        finally:
            self.end_turn(turn)
            if not outcome.is_delivered():
                outcome.forget(wake)
        return not outcome.is_pending(self._fast_path.pending)

    cdef int wait(self, int64_t turn, BatchOutcome outcome, double timeout, object wake) except -1:
        """Wait and receive responses until the caller's is there, `wake` was called, time is up or the fast path stops.

        Without an `outcome` the caller is the callback thread, for which `wake` is called when there are callbacks.
        """
        cdef FastPath fast_path = self._fast_path
        cdef list held = None
        cdef FastPathReader reader = self.reader
        cdef double end = seconds(CLOCK_MONOTONIC) + timeout, left = -1
        cdef int ready
        cdef bint taken = True
        self._event_fd.clear()
        self._woken = False
        while taken and not self._woken and fast_path.armed and fast_path.reader is reader:
            if outcome is not None:
                left = SIGNAL_SECONDS
                if timeout >= 0:
                    left = min(left, end - seconds(CLOCK_MONOTONIC))
                if left <= 0 or not outcome.is_pending(fast_path.pending):
                    break
            if not reader.stop_polling():
                break
            ready = self._event_fd.wait_with(reader.fd, left)
            if ready & READABLE and not ready & NOTIFIED:
                held = fast_path.records[:]  # keeps deliveries alive: their finalizer would swallow Ctrl-C
                self._taking = True
                try:
                    taken = (outcome is None or fast_path.is_quick(wake)) and fast_path.receive(reader, False)
                finally:
                    self._taking = False
            if ready & NOTIFIED or (outcome is not None and not self.handle_signals(reader, turn)):
                break
            held = None
        return 0

    def wake(self):
        """Wake the thread that waits at the socket; callable from any thread."""
        if self.reader is not None:
            self._woken = True
            if not self._taking:
                self._event_fd.notify()

    cdef int started(self, FastPathReader reader) except -1:
        """Handle a `start` of the fast path, perhaps with another stream."""
        if self.reader is reader:
            if self._fast_path.armed:
                reader.stop_polling()
        elif self.reader is not None:
            self.wake()
        return 0

    cdef void stopped(self) noexcept:
        """Give the socket back to the loop."""
        if self.reader is not None:
            self.reader.resume_polling()

    cdef int end(self) except -1:
        """Handle the end of the fast path."""
        self._ended = True
        if self.reader is None:
            self._event_fd.shut()
        else:
            self.wake()
        return 0

    cdef int closed(self, FastPathReader reader) except -1:
        """Handle the end of the reader's stream."""
        if self.reader is reader:
            self.wake()
        return 0
