# Who takes the answers of a `SendLane`: the loop, or a thread that waits for one of them, and never both.

cdef extern from *:
    """
    #include <errno.h>
    #include <poll.h>
    #include <stdint.h>
    #include <unistd.h>
    #ifdef __linux__
    #include <sys/epoll.h>
    #include <sys/eventfd.h>

    /* An epoll instance with one socket in it, which is itself readable when the socket is, unless that is switched off. */
    static int lane_gate_open(int fd) {
        struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
        int gate = epoll_create1(EPOLL_CLOEXEC);
        if (gate >= 0 && epoll_ctl(gate, EPOLL_CTL_ADD, fd, &event) < 0) {
            close(gate);
            return -1;
        }
        return gate;
    }
    static int lane_gate_switch(int gate, int fd, int on) {
        struct epoll_event event = {.events = on ? EPOLLIN : 0, .data = {.fd = fd}};
        return epoll_ctl(gate, EPOLL_CTL_MOD, fd, &event);
    }
    static int lane_bell_new(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
    #else
    static int lane_gate_open(int fd) { return -1; }
    static int lane_gate_switch(int gate, int fd, int on) { return -1; }
    static int lane_bell_new(void) { return -1; }
    #endif
    static void lane_bell_ring(int fd) { uint64_t one = 1; if (write(fd, &one, 8) < 0) { /* it rings already */ } }
    static void lane_bell_clear(int fd) { uint64_t rung; if (read(fd, &rung, 8) < 0) { /* it does not ring */ } }
    static int lane_bell_wait(int bell, int fd, double seconds) {
        struct pollfd both[2] = {{.fd = fd, .events = POLLIN}, {.fd = bell, .events = POLLIN}};
        int found = poll(both, 2, seconds < 0 ? -1 : (int)(seconds * 1000) + 1);
        if (found < 0) return errno == EINTR ? 0 : -errno;
        return (both[0].revents ? 1 : 0) | (both[1].revents ? 2 : 0);
    }
    """
    int lane_gate_open(int fd)
    int lane_gate_switch(int gate, int fd, int on)
    int lane_bell_new()
    void lane_bell_ring(int fd)
    void lane_bell_clear(int fd)
    int lane_bell_wait(int bell, int fd, double seconds) nogil
    int close_descriptor "close"(int fd)

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
        if self._fd >= 0:
            close_descriptor(self._fd)

    cdef int wait_at(self, int fd, double seconds) except -1:
        """What there is, `READABLE` or `RUNG` or both, after up to so many seconds (below 0: no limit)."""
        cdef int ready
        with nogil:
            ready = lane_bell_wait(self._fd, fd, seconds)
        if ready < 0:
            raise OSError(-ready, strerror(-ready))
        if ready == 0:
            PyErr_CheckSignals()
        return ready

    cdef void ring(self) noexcept:
        if not self._rings:
            self._rings = True
            lane_bell_ring(self._fd)

    cdef void clear(self) noexcept:
        if self._rings:
            self._rings = False
            lane_bell_clear(self._fd)


@cython.final
cdef class LaneReader:
    """What the loop watches and calls for a stream that a lane has used, unless a thread waits at the socket itself.

    The loop watches the socket through a gate that any thread may close and open: an epoll instance with the socket in
    it. Where there is none it watches the socket.
    """

    cdef SendLane _lane
    cdef readonly object usual
    cdef object _hand_over
    cdef readonly int fd
    cdef int _gate
    cdef bint _left  # the gate is closed: somebody else waits at the socket
    cdef bint _busy  # the loop receives, or is about to take what was received

    def __cinit__(self):
        self._gate = -1

    def __init__(self, SendLane lane not None, usual, hand_over, int fd):
        self._lane, self.usual, self._hand_over, self.fd = lane, usual, hand_over, fd
        self._gate = lane_gate_open(fd)

    def __dealloc__(self):
        self.shut()

    def fileno(self):
        """What the loop watches."""
        return self.fd if self._gate < 0 else self._gate

    def close(self):
        """The stream has ended, and the loop watches it no more."""
        self.shut()
        if self._lane._watched is self:
            self._lane.wake()

    def __call__(self):
        if not self._busy and not self._lane.receive(self):
            self._busy = True
            try:
                self.usual()
            finally:
                self._busy = False

    def taken(self):
        """What was handed over has been taken."""
        self._busy = False
        self.take_back()

    cdef int hand_over(self, bytes data) except -1:
        """Bytes that were received and are the stream's: until it has them nothing else is received."""
        self._busy = True
        self._hand_over(self, data, not self._left)
        return 0

    cdef bint can_be_left(self) noexcept:
        return self._gate >= 0 and self._lane._bell._fd >= 0 and not self._busy

    cdef bint leave(self) noexcept:
        """The loop does not look at the socket until it is taken back. False if that is not possible."""
        if not self._left and self._gate >= 0 and not self._busy and lane_gate_switch(self._gate, self.fd, 0) == 0:
            self._left = True
        return self._left

    cdef void take_back(self) noexcept:
        if self._left and not self._busy and self._gate >= 0:
            lane_gate_switch(self._gate, self.fd, 1)
            self._left = False

    cdef void shut(self) noexcept:
        if self._gate >= 0:
            close_descriptor(self._gate)
            self._gate = -1


@cython.final
cdef class LaneNotes:
    """What was delivered on a lane since it was told last."""

    cdef readonly Py_ssize_t count
    cdef int64_t _bytes
    cdef double _last, _longest
    cdef list _bounds
    cdef double[NOTED_BUCKETS] _limits
    cdef int64_t[NOTED_BUCKETS] _buckets
    cdef Py_ssize_t _bucket_count

    def __init__(self, bounds_ms):
        cdef Py_ssize_t at
        self._bucket_count = len(bounds_ms) + 1
        if self._bucket_count > NOTED_BUCKETS:
            raise ValueError(f"a histogram of {self._bucket_count} buckets: at most {NOTED_BUCKETS} are kept")
        for at in range(self._bucket_count - 1):
            self._limits[at] = bounds_ms[at]
        self.reset()

    cdef void reset(self) noexcept:
        cdef Py_ssize_t at
        self.count = self._bytes = 0
        self._last = self._longest = 0
        for at in range(self._bucket_count):
            self._buckets[at] = 0

    cdef void add(self, double now, double latency, int64_t size) noexcept:
        cdef Py_ssize_t at = 0
        while at < self._bucket_count - 1 and latency * 1000 > self._limits[at]:
            at += 1
        self._buckets[at] += 1
        self.count += 1
        self._bytes += size
        self._last = now
        self._longest = max(self._longest, latency)

    cdef tuple taken(self):
        """How many, their bytes, when the last one was, the longest latency in seconds, and how many in each bucket."""
        cdef Py_ssize_t at
        buckets = [self._buckets[at] for at in range(self._bucket_count)]
        taken = self.count, self._bytes, self._last, self._longest, buckets
        self.reset()
        return taken
