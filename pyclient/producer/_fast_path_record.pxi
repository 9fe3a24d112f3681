# Basics of `FastPath`: system calls, big-endian numbers, and the record in flight.

cdef extern from *:
    """
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0 /* macOS has none; Python ignores SIGPIPE as it is */
    #endif
    """

cdef extern from "sys/socket.h" nogil:
    ssize_t socket_send "send"(int socket, const void* data, size_t size, int flags)
    ssize_t socket_receive "recv"(int socket, void* data, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef extern from "time.h":
    int CLOCK_MONOTONIC

cdef enum:
    MAX_BUCKETS = 32  # most buckets of the latency histogram
    FRAME_HEAD = 12  # length, API key, version, correlation id
    LENGTH_BYTES = 5  # most bytes of a batch's length
    RECEIVE_BYTES = 1024  # bytes received at once

cdef double REPORT_SECONDS = 1.0
cdef int MAX_CORRELATION_ID = 0x7FFFFFFF
cdef int LAST_SEQUENCE = 0x7FFFFFFF


cdef inline double seconds(int clock) noexcept:
    cdef timespec now
    clock_gettime(clock, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef inline uint8_t* put_int16(uint8_t* at, int64_t value) noexcept:
    at[0] = <uint8_t>(value >> 8)
    at[1] = <uint8_t>value
    return at + 2


cdef inline uint8_t* put_int32(uint8_t* at, int64_t value) noexcept:
    return put_int16(put_int16(at, value >> 16), value)


cdef inline uint8_t* put_int64(uint8_t* at, int64_t value) noexcept:
    return put_int32(put_int32(at, value >> 32), value)


cdef inline int64_t get_int64(const uint8_t* at) noexcept:
    cdef uint64_t value = 0
    cdef int place
    for place in range(8):
        value = value << 8 | at[place]
    return <int64_t>value


@cython.final
cdef class FastPathRecord:
    """A record that a `FastPath` has sent: an in-flight request of its connection, with the data to take_over it.

    For the connection it is both an `InFlightRequest` and the future in it. `work` is the result of `take_over`.
    """

    cdef readonly object request, version, read
    cdef readonly int correlation_id
    cdef readonly double deadline, timeout
    cdef readonly object key, value
    cdef readonly int64_t timestamp_ms, position
    cdef readonly int sequence
    cdef readonly double created
    cdef readonly object delivery
    cdef public object work
    cdef list calls  # (function, argument) of each callback that came with the record, for the callback thread
    cdef object owner  # None once a response or an error was reported
    cdef int64_t size  # of its batch

    @property
    def future(self):
        return self

    @property
    def no_answer(self):
        """Return the error text of a request timeout."""
        return f"no answer to {self.request.name} v{self.version} within {self.timeout:g} s"

    def done(self):
        """Return True if a response or an error was reported, or will be in the loop's next iteration."""
        return self.owner is None

    def set_result(self, answer):
        """Take the response from the connection, after something unusual."""
        owner, self.owner = self.owner, None
        owner.answered(self, answer, None)

    def set_exception(self, error):
        """Take the error of a connection that has ended."""
        owner, self.owner = self.owner, None
        owner.lost(self, error)


@cython.final
cdef class FastPathMetrics:
    """Metrics of the deliveries on a fast path since they were last reported."""

    cdef readonly Py_ssize_t count
    cdef int64_t _bytes
    cdef double _last, _longest
    cdef list _bounds
    cdef double[MAX_BUCKETS] _limits
    cdef int64_t[MAX_BUCKETS] _buckets
    cdef Py_ssize_t _bucket_count

    def __init__(self, bounds_ms):
        cdef Py_ssize_t at
        self._bucket_count = len(bounds_ms) + 1
        if self._bucket_count > MAX_BUCKETS:
            raise ValueError(f"a histogram of {self._bucket_count} buckets: at most {MAX_BUCKETS} are kept")
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

    cdef tuple take(self):
        """Return and reset count, bytes, time of the last one, longest latency (seconds) and the counts per bucket."""
        cdef Py_ssize_t at
        buckets = [self._buckets[at] for at in range(self._bucket_count)]
        taken = self.count, self._bytes, self._last, self._longest, buckets
        self.reset()
        return taken
