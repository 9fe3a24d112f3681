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
        if (found < 0) return errno == EINTR ? 0 : 2; /* the kernel has no memory: then one waits another way */
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
        self._lane.watch.closed(self)

    def __call__(self):
        if not self._busy and not self._lane.receive(self, True):
            self._busy = True
            try:
                self.usual()
            finally:
                self.free()

    def taken(self):
        """What was handed over has been taken."""
        self.free()

    cdef void free(self) noexcept:
        """What was received is where it belongs. Who waited at the socket may have come or gone meanwhile."""
        self._busy = False
        if self._lane.watch._reader is self and self._lane.armed and self._lane._reader is self:
            self.leave()
        else:
            self.take_back()

    cdef int hand_over(self, bytes data, bint on_loop) except -1:
        """Bytes that were received and are the stream's: until it has them nothing else is received."""
        self._busy = True
        try:
            self._hand_over(self, data, on_loop)
        except BaseException as error:  # Ctrl-C, which leaves nobody with them
            if self._lane.owner is not None:
                self._lane.owner.interrupted(self._lane._connection, error)
            raise
        return 0

    cdef bint can_be_left(self) noexcept:
        return self._gate >= 0 and not self._busy

    cdef bint leave(self) noexcept:
        """The loop does not look at the socket until it is taken back. False if that is not possible."""
        if self._busy:
            return False
        if not self._left and self._gate >= 0 and lane_gate_switch(self._gate, self.fd, 0) == 0:
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
