# The producer's work per record: find the open batch, append, and read the outcome.

cdef extern from "time.h":
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* time) nogil
    int CLOCK_REALTIME


cdef bint are_plain(object headers):
    """Return True if encoding these headers runs no Python code, during which the batch could be closed."""
    if headers is None:
        return True
    if type(headers) is not list and type(headers) is not tuple:
        return False
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str:
            return False
        if pair[1] is not None and type(pair[1]) is not bytes:
            return False
    return True


@cython.final
cdef class OpenBatches:
    """The open batch of each partition of one topic, and the partition for records without a key.

    `append` is atomic under the GIL and needs no other lock; the other methods, and without the GIL `append`, are not
    thread-safe.
    """

    cdef list _builders  # a BatchBuilder, or None
    cdef object _sticky
    cdef Py_ssize_t sticky_partition
    cdef readonly Py_ssize_t count

    def __cinit__(self):
        self._builders = []
        self.sticky_partition = -1
        self.count = 0

    def resize(self, Py_ssize_t count):
        """Set the number of partitions; open batches of removed partitions are kept."""
        self._builders.extend([None] * (count - len(self._builders)))
        self.count = count

    def open(self, Py_ssize_t partition, builder not None):
        """Append the partition's records to `builder` from now on."""
        self._builders[partition] = builder
        if partition == self.sticky_partition:
            self._sticky = builder

    def close(self, Py_ssize_t partition):
        """Remove the partition's open batch."""
        self._builders[partition] = None
        if partition == self.sticky_partition:
            self._sticky = None

    def stick_to(self, Py_ssize_t partition):
        """Append records without a key to `partition`."""
        self.sticky_partition = partition
        self._sticky = self._builders[partition]

    def append(self, int64_t timestamp_ms, key, value, headers, partition):
        """Append a record to the open batch of its partition; None if it does not fit or no batch is open.

        Without `partition` the key's hash decides. Errors as `BatchBuilder.append`.
        """
        return self.write(timestamp_ms, key, value, headers, partition)

    cdef inline object write(self, int64_t timestamp_ms, object key, object value, object headers, object partition):
        cdef Py_ssize_t number
        if partition is None:
            if key is None:
                found = self._sticky
                return None if found is None else append_record(found, timestamp_ms, key, value, headers)
            if not self.count:
                return None
            number = (hash_object(key) & 0x7FFFFFFF) % <uint32_t>self.count
        else:
            if type(partition) is not int:
                return None
            number = partition
            if not 0 <= number < self.count:
                return None
        found = self._builders[number]
        return None if found is None else append_record(found, timestamp_ms, key, value, headers)


cdef class RecordAppender:
    """Base of the producers: open batches by topic, and the clock for timestamps."""

    cdef public dict _open_batches
    cdef public object _append_lock  # None if the GIL suffices
    cdef object _clock_ms  # None: the system's clock

    def __cinit__(self, *_, **__):
        self._open_batches = {}

    def _stamp_with(self, time_ms, *, system):
        """Take timestamps from `time_ms`; read the `system`'s clock directly (30 ns instead of 140 ns)."""
        self._clock_ms = None if system else time_ms

    def _append(self, topic, timestamp_ms, key, value, headers, partition):
        """Append a record if its partition has an open batch with room; else return None without any effect.

        `timestamp_ms` None means now. Raise the codec's errors for an invalid record.
        """
        return self.try_append(topic, timestamp_ms, key, value, headers, partition)

    cdef inline object try_append(
        self, object topic, object timestamp_ms, object key, object value, object headers, object partition
    ):
        cdef timespec now
        cdef int64_t time
        cdef object open_batches
        if type(topic) is not str or not are_plain(headers):
            return None
        open_batches = self._open_batches.get(topic)
        if open_batches is None:
            return None
        if timestamp_ms is not None:
            time = timestamp_ms
        elif self._clock_ms is None:
            clock_gettime(CLOCK_REALTIME, &now)
            time = <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
        else:
            time = self._clock_ms()
        if self._append_lock is None:
            return (<OpenBatches?>open_batches).write(time, key, value, headers, partition)
        with self._append_lock:
            return (<OpenBatches?>open_batches).write(time, key, value, headers, partition)


cdef class RecordSender(RecordAppender):
    """`send` for records that fit an open batch; the subclass's `_send` handles all other cases."""

    __class_getitem__ = classmethod(types.GenericAlias)

    cdef public bint _direct  # records need no serializer, partitioner or interceptor
    cdef public FastPath _fast_path  # sends a record immediately if nothing is queued; or None

    def send(
        self, topic, value=None, *, key=None, headers=None, partition=None, timestamp_ms=None, on_delivery=None
    ):
        """Queue one record for delivery and return its future, usually without blocking.

        Block up to `max_block_ms` for metadata of a new topic and for buffer space together, then raise `KafkaTimeout`
        or `BufferExhausted`. `key` and `value` are bytes or None, or any type that the serializers accept; `headers` a
        mapping or (str, bytes or None) pairs; `timestamp_ms` epoch milliseconds, by default now. Without `partition`
        the key decides as in every Kafka client (murmur2); records without a key are distributed (KIP-794).
        `on_delivery(future)` is called on the client's callback thread when the outcome is known.

        Also raise `InvalidTopic`; `UnknownTopicOrPartition` if the topic has no such `partition`, `ValueError` if it is
        not a number from 0; `PartitionerError` if the partitioner fails or returns an invalid partition;
        `MessageTooLarge`; `SerializationError` for a key, value, header or `timestamp_ms` that cannot be encoded;
        `TypeError` if `on_delivery` is not callable; `ClosedError`; `ForkError`; and the cluster's errors for the
        topic, e.g. `TopicAuthorizationFailed`.
        """
        cdef object handle = None
        if on_delivery is not None:
            check_callback(on_delivery, "on_delivery")
        if self._direct and (timestamp_ms is None or type(timestamp_ms) is int and timestamp_ms >= 0):
            if type(headers) is dict:
                headers = list(headers.items())
            try:
                if headers is None or type(headers) is list or type(headers) is tuple:
                    handle = self.try_append(topic, timestamp_ms, key, value, headers, partition)
                    if handle is None and self._fast_path is not None and self._fast_path.armed and not headers:
                        handle = self._fast_path.send(topic, key, value, partition, timestamp_ms, on_delivery)
                        if handle is not None:
                            return handle
            except (TypeError, UnicodeEncodeError, OverflowError):
                pass  # an invalid record: `_send` raises the error
        if handle is None:
            handle = self._send(topic, value, key, headers, partition, timestamp_ms)
        if on_delivery is not None:
            handle.add_done_callback(on_delivery)
        return handle


cdef inline int check_callback(object callback, str name) except -1:
    """Raise `TypeError` unless `callback` is callable."""
    if not callable(callback):
        raise TypeError(f"{name}={callback!r} is not possible: it takes a function that is called with the future")
    return 0


cdef class BatchOutcome:
    """The outcome of a batch: the fields that its records' futures read often."""

    cdef public str topic
    cdef public object partition
    cdef public int64_t base_offset
    cdef public int64_t log_append_time_ms
    cdef public Py_ssize_t count
    cdef public object context, error, record_errors, failure, parts, starts, waiters
    cdef public list callbacks  # three items each: record index, callback, its argument; None once taken
    cdef object _state
    cdef bint _delivered

    cdef void begin(self, str topic, object partition, object context, object pending):
        """Set the fields of a batch of one record that `FastPath` is about to send."""
        self.topic, self.partition, self.context, self._state = topic, partition, context, pending
        self.base_offset = self.log_append_time_ms = -1
        self.parts = self.starts = NO_ARGUMENTS

    cdef list complete_alone(self, object delivered, int64_t base_offset, int64_t log_append_time_ms):
        """Set the outcome of a batch of one record; return what waits for it. Atomic under the GIL."""
        waiters = self.waiters
        self.count, self.base_offset, self.log_append_time_ms = 1, base_offset, log_append_time_ms
        self._state, self._delivered = delivered, True
        self.callbacks = self.waiters = None
        return waiters

    cdef inline bint is_pending(self, object pending) noexcept:
        return self._state is pending

    cdef inline bint is_delivered(self) noexcept:
        cdef bint delivered = self._delivered
        loads_begin()
        return delivered

    @property
    def delivered(self):
        return self.is_delivered()

    @delivered.setter
    def delivered(self, bint delivered):
        stores_done()  # a thread that sees `delivered` reads the other fields without a lock
        self._delivered = delivered

    @property
    def state(self):
        state = self._state
        loads_begin()
        return state

    @state.setter
    def state(self, state):
        stores_done()
        self._state = state


cdef inline bint is_timeout(object timeout) except -1:
    """Return True for None and a number from 0; for other values the slow path raises the error."""
    return timeout is None or ((type(timeout) is int or type(timeout) is float) and timeout >= 0)


@cython.no_gc
cdef class OutcomeHandle(RecordHandle):
    """A handle whose `batch` is a `BatchOutcome`; the subclass handles batches that are not delivered."""

    def done(self):
        """Return True if the outcome is known."""
        return True if (<BatchOutcome?>self.batch).is_delivered() else self._done()

    def exception(self, timeout=None):
        """Return the delivery's error, None if it succeeded; block up to `timeout` seconds (None: no limit).

        Raise `KafkaTimeout` if the outcome is not known in time.
        """
        if (<BatchOutcome?>self.batch).is_delivered() and is_timeout(timeout):
            return None
        return self._exception(timeout)

    def add_done_callback(self, callback):
        """Call `callback(future)` when the outcome is known, on the client's callback thread or the event loop."""
        cdef list callbacks = (<BatchOutcome?>self.batch).callbacks if atomic else None
        check_callback(callback, "callback")
        if callbacks is None:
            self._add_done_callback(callback)
            return
        # Atomic under the GIL: a thread that takes the list sees all three or none. A lock would take longer than the
        # append (docs/measurements.md, "Appending without a lock").
        number = self.index
        callbacks.append(number)
        callbacks.append(callback)
        callbacks.append(self)

    def result(self, timeout=None):
        """Return the record's metadata; block up to `timeout` seconds (None: no limit).

        Raise the delivery's error if it failed, `KafkaTimeout` if the outcome is not known in time.
        """
        cdef BatchOutcome outcome = <BatchOutcome?>self.batch
        if not outcome.is_delivered() or not is_timeout(timeout):
            return self._result(timeout)
        offset = outcome.base_offset + self.index if outcome.base_offset >= 0 else -1
        time = self.timestamp_ms if outcome.log_append_time_ms < 0 else outcome.log_append_time_ms
        return tuple.__new__(RecordMetadata, (outcome.topic, outcome.partition, offset, time))
