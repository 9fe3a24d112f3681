# Receives the responses of a `FastPath`: either the loop or a waiting thread, never both.

cdef extern from *:
    """
    #include <errno.h>
    #include <poll.h>
    #include <stdint.h>
    #include <unistd.h>
    #ifdef __linux__
    #include <sys/epoll.h>
    #include <sys/eventfd.h>

    /* An epoll instance with one socket; it is readable when the socket is, unless that is switched off. */
    static int epoll_gate_open(int fd) {
        struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
        int gate = epoll_create1(EPOLL_CLOEXEC);
        if (gate >= 0 && epoll_ctl(gate, EPOLL_CTL_ADD, fd, &event) < 0) {
            close(gate);
            return -1;
        }
        return gate;
    }
    static int epoll_gate_switch(int gate, int fd, int on) {
        struct epoll_event event = {.events = on ? EPOLLIN : 0, .data = {.fd = fd}};
        return epoll_ctl(gate, EPOLL_CTL_MOD, fd, &event);
    }
    static int event_fd_new(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
    #else
    static int epoll_gate_open(int fd) { return -1; }
    static int epoll_gate_switch(int gate, int fd, int on) { return -1; }
    static int event_fd_new(void) { return -1; }
    #endif
    static void event_fd_set(int fd) { uint64_t one = 1; if (write(fd, &one, 8) < 0) { /* it is set already */ } }
    static void event_fd_clear(int fd) { uint64_t count; if (read(fd, &count, 8) < 0) { /* it is not set */ } }
    static int event_fd_wait(int event_fd, int fd, double seconds) {
        struct pollfd both[2] = {{.fd = fd, .events = POLLIN}, {.fd = event_fd, .events = POLLIN}};
        int found = poll(both, 2, seconds < 0 ? -1 : (int)(seconds * 1000) + 1);
        if (found < 0) return errno == EINTR ? 0 : 2; /* out of kernel memory: the caller waits another way */
        return (both[0].revents ? 1 : 0) | (both[1].revents ? 2 : 0);
    }
    """
    int epoll_gate_open(int fd)
    int epoll_gate_switch(int gate, int fd, int on)
    int event_fd_new()
    void event_fd_set(int fd)
    void event_fd_clear(int fd)
    int event_fd_wait(int event_fd, int fd, double seconds) nogil
    int close_descriptor "close"(int fd)

@cython.final
cdef class FastPathReader:
    """The loop's reader for a stream that a fast path has used, unless a thread waits at the socket itself.

    The loop polls the socket through an epoll instance (the gate), which any thread may switch off and on. Without
    epoll it polls the socket.
    """

    cdef FastPath _fast_path
    cdef readonly object usual
    cdef object _hand_over
    cdef readonly int fd
    cdef int _gate
    cdef bint polling_off  # the gate is off: a thread waits at the socket
    cdef bint busy  # the loop is receiving, or has not yet handled what was received

    def __cinit__(self):
        self._gate = -1

    def __init__(self, FastPath fast_path not None, usual, hand_over, int fd):
        self._fast_path, self.usual, self._hand_over, self.fd = fast_path, usual, hand_over, fd
        self._gate = epoll_gate_open(fd)

    def __dealloc__(self):
        self.shut()

    def fileno(self):
        """Return the descriptor that the loop polls."""
        return self.fd if self._gate < 0 else self._gate

    def close(self):
        """Release the gate after the stream has ended."""
        self.shut()
        self._fast_path.waiter.closed(self)

    def __call__(self):
        if not self.busy and not self._fast_path.receive(self, True):
            self.busy = True
            try:
                self.usual()
            finally:
                self.free()

    def taken(self):
        """Report that the bytes handed over have been handled."""
        self.free()

    cdef void free(self) noexcept:
        """Leave the busy state; a waiting thread may have come or gone meanwhile."""
        self.busy = False
        if self._fast_path.waiter.reader is self and self._fast_path.armed and self._fast_path.reader is self:
            self.stop_polling()
        else:
            self.resume_polling()

    cdef int hand_over(self, bytes data, bint on_loop) except -1:
        """Pass received bytes to the stream; nothing else is received until it has handled them."""
        self.busy = True
        try:
            self._hand_over(self, data, on_loop)
        except BaseException as error:  # Ctrl-C, after which the bytes would be lost
            if self._fast_path.owner is not None:
                self._fast_path.owner.interrupted(self._fast_path.connection, error)
            raise
        return 0

    cdef bint can_stop_polling(self) noexcept:
        return self._gate >= 0 and not self.busy

    cdef bint stop_polling(self) noexcept:
        """Switch the loop's polling off until `resume_polling`. Return False if that is not possible."""
        if self.busy:
            return False
        if not self.polling_off and self._gate >= 0 and epoll_gate_switch(self._gate, self.fd, 0) == 0:
            self.polling_off = True
        return self.polling_off

    cdef void resume_polling(self) noexcept:
        if self.polling_off and not self.busy and self._gate >= 0:
            epoll_gate_switch(self._gate, self.fd, 1)
            self.polling_off = False

    cdef void shut(self) noexcept:
        if self._gate >= 0:
            close_descriptor(self._gate)
            self._gate = -1
