# A thread that waits for the answers of a `SendLane` itself: to be woken for one takes as long as all else about it.

cdef enum:
    READABLE = 1
    RUNG = 2

cdef double SIGNAL_SECONDS = 0.25  # a signal that comes just before a thread blocks does not wake it


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
        """What there is, `READABLE` or `RUNG` or both, after up to so many seconds (below 0: no limit)."""
        cdef int ready
        with nogil:
            ready = lane_bell_wait(self._fd, fd, seconds)
        if ready & RUNG:
            self._rings = True  # also when a child that was forked has rung
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
    """Where one thread at a time waits at the lane's socket, in place of the loop: the one that runs callbacks, or one
    that waits for a record.

    All but the waiting itself happens under the interpreter's lock.
    """

    cdef SendLane _lane
    cdef LaneBell _bell
    cdef LaneReader _reader  # of the stream at whose socket a thread waits, or None
    cdef int64_t _turns  # how many threads have come
    cdef int64_t _turn  # of the one that waits
    cdef bint _taking  # it takes one this very moment
    cdef bint _woken
    cdef bint _ended

    def __init__(self, SendLane lane not None):
        self._lane, self._bell = lane, LaneBell()

    @property
    def active(self):
        """Whether a thread waits at the socket, and the loop does not look at it."""
        return self._reader is not None and self._reader._left

    cdef bint is_possible(self) noexcept:
        return self._lane.armed and self._reader is None and self._lane._reader.can_be_left() and self._bell.works()

    cdef int64_t come(self) noexcept:
        """From now on it is the calling thread that waits; the number of its turn."""
        self._turns += 1
        self._turn = self._turns
        self._reader = self._lane._reader
        return self._turn

    cdef void leave(self, int64_t turn) noexcept:
        if self._reader is None or self._turn != turn:
            return  # while it handled a signal another one came
        reader, self._reader = self._reader, None
        (<LaneReader>reader).take_back()
        if self._ended:
            self._bell.shut()

    cdef bint heed_signals(self, LaneReader reader, int64_t turn) except -1:
        """Lets signals be handled: that may take long, or wait for a record. False if meanwhile another thread came."""
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
        """Takes answers in the thread that runs callbacks, until it has to look into its `queue`: there are some in it,
        after a `wake`, or as the lane has stopped.
        """
        cdef int64_t turn
        if not self.is_possible():
            return
        turn = self.come()  # from now on `wake` is heard: what comes after the next line is not missed
        try:
            if queue.empty():
                self.wait(turn, None, -1, None)
        finally:
            self.leave(turn)

    def for_outcome(self, BatchOutcome outcome not None, double timeout):
        """Takes answers in a thread that waits for an outcome, up to `timeout` seconds (below 0: no limit).

        Returns whether the outcome is known; None if it is not to be waited for here, and nothing has happened.
        """
        cdef LaneRecord record
        cdef list waiters
        cdef int64_t turn
        cdef bint collects = PyGC_Disable()
        try:
            if not self.is_possible() or self._lane._desk_locked():
                return None
            for record in self._lane.records:
                if record.delivery is outcome:
                    break
            else:
                return None
            wake = self.wake
            waiters = outcome._waiters or []
            waiters.append((0, wake))
            outcome._waiters = waiters  # at one moment under the interpreter's lock: nobody has the desk's
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
        """Waits and takes answers, until one was for the caller, `wake` was called, time is up or the lane stops.

        Without an `outcome` it is the thread that runs callbacks, for which `wake` is called when there are some.
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
                held = lane.records[:]  # a delivery that nobody else holds ends in Python, which swallows Ctrl-C
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
        """Who waits at the socket is to look what else there is; from any thread."""
        if self._reader is not None:
            self._woken = True
            if not self._taking:
                self._bell.ring()

    cdef int aimed(self, LaneReader reader) except -1:
        """The lane goes on, perhaps with another stream."""
        if self._reader is reader:
            if self._lane.armed:
                reader.leave()
        elif self._reader is not None:
            self.wake()
        return 0

    cdef void stopped(self) noexcept:
        """The loop looks at the socket again."""
        if self._reader is not None:
            self._reader.take_back()

    cdef int end(self) except -1:
        """The lane is never used again."""
        self._ended = True
        if self._reader is None:
            self._bell.shut()
        else:
            self.wake()
        return 0

    cdef int closed(self, LaneReader reader) except -1:
        """The reader's stream has ended."""
        if self._reader is reader:
            self.wake()
        return 0
