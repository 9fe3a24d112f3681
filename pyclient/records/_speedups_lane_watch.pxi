# A thread that waits for the responses of a `SendLane` itself: waking it takes as long as all the rest of a delivery.

cdef enum:
    READABLE = 1
    RUNG = 2

cdef double SIGNAL_SECONDS = 0.25  # a signal just before a thread blocks does not wake it


@cython.final
cdef class LaneBell:
    """Wakes a thread that waits at a socket."""

    cdef int _fd
    cdef bint _rings

    def __cinit__(self):
        self._fd = lane_bell_new()

    def __dealloc__(self):
        self.shut()

    cdef void shut(self) noexcept:
        if self._fd >= 0:
            close_descriptor(self._fd)
            self._fd = -1

    cdef int wait_at(self, int fd, double seconds) except -1:
        """Block up to `seconds` (below 0: no limit); return `READABLE`, `RUNG`, both or 0."""
        cdef int ready
        with nogil:
            ready = lane_bell_wait(self._fd, fd, seconds)
        if ready & RUNG:
            self._rings = True  # also if a forked child has rung
        return ready

    cdef bint works(self) noexcept:
        return self._fd >= 0

    cdef void ring(self) noexcept:
        if not self._rings and self._fd >= 0:
            self._rings = True
            lane_bell_ring(self._fd)

    cdef void clear(self) noexcept:
        if self._rings:
            self._rings = False
            lane_bell_clear(self._fd)


@cython.final
cdef class LaneWatch:
    """Lets one thread at a time wait at the lane's socket instead of the loop: the callback thread, or a caller that
    waits for a record.

    Everything but the waiting itself is done under the GIL.
    """

    cdef SendLane _lane
    cdef LaneBell _bell
    cdef LaneReader _reader  # of the stream at whose socket a thread waits, or None
    cdef int64_t _turns  # number of turns so far
    cdef int64_t _turn  # turn of the waiting thread
    cdef bint _taking  # the waiting thread is receiving
    cdef bint _woken
    cdef bint _ended

    def __init__(self, SendLane lane not None):
        self._lane, self._bell = lane, LaneBell()

    @property
    def active(self):
        """True if a thread waits at the socket and the loop does not poll it."""
        return self._reader is not None and self._reader._left

    cdef bint is_possible(self) noexcept:
        return self._lane.armed and self._reader is None and self._lane._reader.can_be_left() and self._bell.works()

    cdef int64_t come(self) noexcept:
        """Make the calling thread the waiting one; return the number of its turn."""
        self._turns += 1
        self._turn = self._turns
        self._reader = self._lane._reader
        return self._turn

    cdef void leave(self, int64_t turn) noexcept:
        if self._reader is None or self._turn != turn:
            return  # another thread came while this one handled a signal
        reader, self._reader = self._reader, None
        (<LaneReader>reader).take_back()
        if self._ended:
            self._bell.shut()

    cdef bint heed_signals(self, LaneReader reader, int64_t turn) except -1:
        """Run signal handlers, which may block or wait for a record. Return False if another thread came meanwhile."""
        self.leave(turn)
        try:
            PyErr_CheckSignals()
        finally:
            alone = self._reader is None
            if alone:
                self._reader, self._turn, self._woken = reader, turn, False
                self._bell.clear()
        return alone

    def for_calls(self, queue):
        """Receive responses in the callback thread until it must check its `queue`: it is not empty, `wake` was called,
        or the lane has stopped.
        """
        cdef int64_t turn
        if not self.is_possible():
            return
        turn = self.come()  # `wake` works from now on, so nothing posted after the next line is missed
        try:
            if queue.empty():
                self.wait(turn, None, -1, None)
        finally:
            self.leave(turn)

    def for_outcome(self, BatchOutcome outcome not None, double timeout):
        """Receive responses in a thread that waits for an outcome, up to `timeout` seconds (below 0: no limit).

        Return True if the outcome is known, False if not; None without any effect if it cannot be waited for here.
        """
        cdef LaneRecord record
        cdef list waiters
        cdef int64_t turn
        cdef bint collects = PyGC_Disable()
        try:
            if not self.is_possible() or self._lane._context_locked():
                return None
            for record in self._lane.records:
                if record.delivery is outcome:
                    break
            else:
                return None
            wake = self.wake
            waiters = outcome._waiters or []
            waiters.append((0, wake))
            outcome._waiters = waiters  # atomic under the GIL: the delivery lock is free
            turn = self.come()
        finally:
            if collects:
                PyGC_Enable()
        try:
            self.wait(turn, outcome, timeout, wake)
        finally:
            self.leave(turn)
            if not outcome._delivered:
                outcome.forget(wake)
        return outcome._state is not self._lane._pending

    cdef int wait(self, int64_t turn, BatchOutcome outcome, double timeout, object wake) except -1:
        """Wait and receive responses until the caller's is there, `wake` was called, time is up or the lane stops.

        Without an `outcome` the caller is the callback thread, for which `wake` is called when there are callbacks.
        """
        cdef SendLane lane = self._lane
        cdef list held = None
        cdef LaneReader reader = self._reader
        cdef double end = seconds(CLOCK_MONOTONIC) + timeout, left = -1
        cdef int ready
        cdef bint taken = True
        self._bell.clear()
        self._woken = False
        while taken and not self._woken and lane.armed and lane._reader is reader:
            if outcome is not None:
                left = SIGNAL_SECONDS
                if timeout >= 0:
                    left = min(left, end - seconds(CLOCK_MONOTONIC))
                if left <= 0 or outcome._state is not lane._pending:
                    break
            if not reader.leave():
                break
            ready = self._bell.wait_at(reader.fd, left)
            if ready & READABLE and not ready & RUNG:
                held = lane.records[:]  # keeps deliveries alive: their finalizer would swallow Ctrl-C
                self._taking = True
                try:
                    taken = (outcome is None or lane.is_quick(wake)) and lane.receive(reader, False)
                finally:
                    self._taking = False
            if ready & RUNG or (outcome is not None and not self.heed_signals(reader, turn)):
                break
            held = None
        return 0

    def wake(self):
        """Wake the thread that waits at the socket; callable from any thread."""
        if self._reader is not None:
            self._woken = True
            if not self._taking:
                self._bell.ring()

    cdef int aimed(self, LaneReader reader) except -1:
        """Handle an `aim` of the lane, perhaps at another stream."""
        if self._reader is reader:
            if self._lane.armed:
                reader.leave()
        elif self._reader is not None:
            self.wake()
        return 0

    cdef void stopped(self) noexcept:
        """Give the socket back to the loop."""
        if self._reader is not None:
            self._reader.take_back()

    cdef int end(self) except -1:
        """Handle the end of the lane."""
        self._ended = True
        if self._reader is None:
            self._bell.shut()
        else:
            self.wake()
        return 0

    cdef int closed(self, LaneReader reader) except -1:
        """Handle the end of the reader's stream."""
        if self._reader is reader:
            self.wake()
        return 0
