# The fast path for single records: from the caller's thread directly to the socket, and from the socket to the future.


@cython.final
cdef class FastPath:
    """Sends single records of one partition while the producer is otherwise idle, and handles ordinary responses.

    `start` sets the partition, under the producer's lock and with nothing in flight, until another thread takes the
    lock: `FastPathLock` then stops the fast path and its `owner` takes over the records in flight. Connection and
    stream do not know the fast path, so their public state (`InFlightRequests`, `FrameStream`, `FrameAssembler`) is
    checked for every record, under the stream's gate. What happens after a check is atomic under the GIL, also with
    respect to Ctrl-C: nothing is called there that runs code of Python, and no object that the garbage collector
    tracks is created, since that may start a collection, which runs finalizers and other threads. Up to `depth` records
    are in flight, so that a late response does not force the next records onto the slow path.
    """

    cdef readonly bint armed
    cdef public list records  # in flight, in order
    cdef Py_ssize_t _depth
    cdef public object owner
    cdef object _handle_type, _delivery_type, _context, context_locked, _callbacks, pending, _delivered
    cdef double _delivery_timeout, _request_timeout, _until, _next_round
    cdef bint _idempotent
    cdef object _topic, _partition, _request, _version, _read
    cdef Py_ssize_t _number
    cdef OpenBatches _open_batches
    cdef object _queue, _sequence, connection, _requests, _stream, _frames, _gate, _gate_free, _gate_owned
    cdef FastPathReader reader
    cdef int _fd
    cdef bytes _prefix, _tail, _answer
    cdef int64_t _numbers, _behind, _producer_id
    cdef int _epoch
    cdef int64_t _bytes_left
    cdef bint _compact
    cdef bytearray _memory
    cdef bint _posting  # its content is being written to the socket
    cdef int64_t _generation  # number of `start` calls
    cdef FastPathMetrics metrics
    cdef double _reported_at
    cdef bint _report_due
    cdef readonly FastPathWaiter waiter

    def __init__(self, owner, context, kinds, limits, latency_bounds_ms):
        """`kinds` are `FastPathKinds`, `limits` are `FastPathLimits`."""
        self.owner = owner
        self.records, self._depth = [], limits.depth
        self._handle_type, self._delivery_type = kinds.future, kinds.delivery
        self._context, self.context_locked, self._callbacks = context, context.lock.locked, context.callbacks
        self.pending, self._delivered = kinds.pending, kinds.delivered
        self._idempotent = limits.idempotent
        self._delivery_timeout, self._request_timeout = limits.delivery_timeout, limits.request_timeout
        self._memory = bytearray(<int64_t?>limits.largest)
        self.metrics, self.waiter = FastPathMetrics(latency_bounds_ms), FastPathWaiter(self)

    def start(
        self, queue, connection, stream, FastPathReader reader not None, request, template, *, until, next_round,
        bytes_left,
    ):
        """Send records of the queue's partition from now on; the caller holds the producer's lock.

        `until` and `next_round` are monotonic seconds: when other work is due, and when the loop checks for expired
        records. After `bytes_left` bytes of batches the sticky partition may change.
        """
        cdef int64_t overhead
        sequence = queue.sequence
        self._queue, self._sequence = queue, sequence
        self.connection, self._stream, self.reader = connection, stream, reader
        self._gate, self._gate_free = stream.gate.acquire, stream.gate.release
        self._gate_owned = stream.has_gate
        self._requests, self._frames = connection.in_flight_requests, stream.frames
        self._fd = reader.fd
        self._generation += 1
        self._topic, self._partition, self._open_batches = queue.topic.name, queue.partition, queue.topic.open_batches
        self._number = queue.partition
        self._request, self._version, self._read = request, template.version, template.answer
        self._prefix, self._tail, self._compact = template.prefix, template.tail, template.compact
        self._answer, self._numbers, self._behind = template.sample, template.numbers, template.after_numbers
        self._producer_id = sequence.producer_id if self._idempotent else -1
        self._epoch = sequence.epoch if self._idempotent else -1
        self._until, self._next_round, self._bytes_left = until, next_round, bytes_left
        self._reported_at, self._report_due = seconds(CLOCK_MONOTONIC), False
        self.armed = has_checksum() and len(self._answer) + 4 <= RECEIVE_BYTES
        self.waiter.started(reader)

    def stop(self):
        """Stop sending and receiving until the next `start`; the caller holds the producer's lock."""
        self.armed = False
        self.waiter.stopped()
        while self.records:
            self.owner.take_over(self.records[0])
        if self.metrics.count:
            self.owner.count_delivered(*self.metrics.take())

    def close(self):
        """Stop for good and drop all references."""
        self.armed = False
        self.waiter.end()
        self.owner = self._queue = self._sequence = self.connection = self._stream = self.reader = None
        self._requests = self._frames = self._gate = self._gate_free = self._gate_owned = self._read = None

    cdef object send(
        self, object topic, object key, object value, object partition, object timestamp_ms, object on_delivery
    ):
        """Send a record and return its future; None without any effect if that is not possible here."""
        cdef Row row
        cdef int64_t size, batch, time, generation = self._generation
        cdef double now
        cdef timespec wall
        cdef int64_t written
        cdef uint8_t* frame
        cdef FastPathRecord record
        cdef RecordHandle handle
        if len(self.records) >= self._depth or not isinstance(topic, str) or topic != self._topic:
            return None
        if partition is None:
            if key is None:
                if self._open_batches.sticky_partition != self._number:
                    return None
            elif type(key) is not bytes or not self._open_batches.count or (
                (hash_object(key) & 0x7FFFFFFF) % <uint32_t>self._open_batches.count != self._number
            ):
                return None
        elif type(partition) is not int or partition != self._partition:
            return None
        if (key is not None and type(key) is not bytes) or (value is not None and type(value) is not bytes):
            return None
        point_to(&row.key, key)
        point_to(&row.value, value)
        size = 4 + field_size(&row.key) + field_size(&row.value)  # attributes, two deltas of 0, no headers
        batch = ROOM_FOR_HEADER + varint_size(size) + size
        if self.frame_size(batch) > len(self._memory):
            return None
        now = seconds(CLOCK_MONOTONIC)
        if now >= self._until or now + self._delivery_timeout < self._next_round:
            return None
        if timestamp_ms is None:
            clock_gettime(CLOCK_REALTIME, &wall)
            time = <int64_t>wall.tv_sec * 1000 + wall.tv_nsec // 1000000
        else:
            time = timestamp_ms
        gate, release = self._gate, self._gate_free  # `start` may replace them while this gate is held
        record = self.new_record(key, value, time, now, batch)
        handle = self.new_handle(record, on_delivery)
        if self._gate_owned() or not gate(False):
            return None
        try:
            if (
                self._generation != generation or not self.armed or self._posting
                or len(self.records) >= self._depth or batch > self._bytes_left or not self.is_free(now)
            ):
                return None
            frame = self.register(record, &row, size, &written)
            owner, connection, stream = self.owner, self.connection, self._stream
            try:
                self.post(stream, frame, written)
            except BaseException as error:
                owner.interrupted(connection, error)
                raise
            return handle
        finally:
            release()

    cdef int64_t frame_size(self, int64_t batch) noexcept:
        return FRAME_HEAD + len(self._prefix) + LENGTH_BYTES + batch + len(self._tail)

    cdef bint is_free(self, double now) except -1:
        """Return True if nothing else is in flight, queued or blocks writes, and request timeouts will be detected."""
        requests, stream = self._requests, self._stream
        if requests.ended or requests.on_hold or requests.held or requests.timer_at is None:
            return False
        if len(requests.queue) != len(self.records):
            return False
        if requests.throttled_until > now or now + self._request_timeout < requests.timer_at:
            return False
        return not (stream.queue or stream.is_writing or stream.is_corked or stream.closed)

    cdef FastPathRecord new_record(self, object key, object value, int64_t time, double now, int64_t batch):
        """Return a record with its delivery; `register` puts it in flight."""
        cdef BatchOutcome delivery = <BatchOutcome>(
            (<PyTypeObject*>self._delivery_type).tp_new(<type>self._delivery_type, <PyObject*>NO_ARGUMENTS, NULL)
        )
        cdef FastPathRecord record = FastPathRecord.__new__(FastPathRecord)
        delivery.begin(self._topic, self._partition, self._context, self.pending)
        record.request, record.version, record.read = self._request, self._version, self._read
        record.timeout, record.deadline = self._request_timeout, now + self._request_timeout
        record.key, record.value, record.timestamp_ms = key, value, time
        record.created, record.size = now, batch
        record.delivery, record.owner = delivery, self.owner
        return record

    cdef RecordHandle new_handle(self, FastPathRecord record, object on_delivery):
        """Return the future of a record, with its first callback."""
        cdef BatchOutcome delivery = <BatchOutcome>record.delivery
        cdef RecordHandle handle = <RecordHandle>(
            (<PyTypeObject*>self._handle_type).tp_new(<type>self._handle_type, <PyObject*>NO_ARGUMENTS, NULL)
        )
        untrack_handle(handle)
        handle.batch, handle.index, handle.timestamp_ms = delivery, 0, record.timestamp_ms
        if on_delivery is not None:
            delivery.callbacks, record.calls = [0, on_delivery, handle], [(on_delivery, handle)]
        return handle

    cdef uint8_t* register(self, FastPathRecord record, Row* row, int64_t size, int64_t* written) except NULL:
        """Put a record in flight, and encode its frame for `post`."""
        cdef int correlation_id = (<int>self._requests.correlation_id + 1) & MAX_CORRELATION_ID
        cdef int sequence = <int>self._sequence.next if self._idempotent else -1
        cdef uint8_t* frame
        record.correlation_id, record.position, record.sequence = correlation_id, self._queue.records, sequence
        frame = self.fill(row, size, record.size, record.timestamp_ms, sequence, correlation_id, written)
        self._requests.correlation_id = correlation_id
        self._requests.queue.append(record)
        self._queue.records = record.position + 1
        if self._idempotent:
            self._sequence.next = (sequence + 1) & LAST_SEQUENCE
        self._bytes_left -= record.size
        self.records.append(record)
        return frame

    cdef uint8_t* fill(
        self, Row* row, int64_t size, int64_t batch, int64_t time, int sequence, int correlation_id, int64_t* whole
    ) noexcept:
        """Encode the frame; return its start and store its size."""
        cdef uint8_t* begin = <uint8_t*>self._memory
        cdef uint8_t* at = put_int16(put_int16(begin + 4, 0), <int64_t>self._version)
        cdef uint8_t* start
        cdef uint64_t length = batch + 1
        at = put_int32(at, correlation_id)
        memcpy(at, <const uint8_t*>self._prefix, len(self._prefix))
        at += len(self._prefix)
        if self._compact:
            while length >= 0x80:
                at[0] = <uint8_t>(length | 0x80)
                at += 1
                length >>= 7
            at[0] = <uint8_t>length
            at += 1
        else:
            at = put_int32(at, batch)
        start = at
        at = put_int32(put_int32(put_int64(at, 0), batch - 12), -1)
        at[0] = 2
        at = put_int32(put_int16(at + 5, 0), 0)  # skips the CRC, which is written last
        at = put_int64(put_int64(at, time), time)
        at = put_int32(put_int32(put_int16(put_int64(at, self._producer_id), self._epoch), sequence), 1)
        at = write_varint(at, size)
        at[0] = at[1] = at[2] = 0
        at = write_field(write_field(at + 3, &row.key), &row.value)
        at[0] = 0
        put_int32(start + CHECKED_AT - 4, checksum_of(start + CHECKED_AT, batch - CHECKED_AT))
        at += 1
        memcpy(at, <const uint8_t*>self._tail, len(self._tail))
        whole[0] = at + len(self._tail) - begin
        put_int32(begin, whole[0] - 4)
        return begin

    cdef int post(self, object stream, const uint8_t* frame, int64_t size) except -1:
        """Write the frame to the socket; leave what the kernel does not accept to the loop."""
        cdef int64_t sent
        cdef int problem = 0
        cdef int fd = self._fd
        cdef bytes left = b""
        self._posting = True
        with nogil:
            sent = socket_send(fd, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0:
                problem = errno
        try:
            if sent < size:
                left = (<const char*>frame)[max(sent, 0):size]
        finally:
            self._posting = False
        if not left:
            return 0
        if sent < 0 and problem != EAGAIN and problem != EINTR:
            stream.lost_here(OSError(problem, strerror(problem)))
        else:
            stream.left_here(left)
        return 0

    cdef bint receive(self, FastPathReader reader, bint on_loop) except -1:
        """Receive responses from the socket. Return False without any effect if the usual path must receive them."""
        cdef uint8_t[RECEIVE_BYTES] data
        cdef uint8_t* at = data
        cdef uint8_t* found
        cdef Py_ssize_t count, size
        cdef FastPathRecord record
        if reader.busy or not self.is_next(reader):
            return False
        frames, stream = self._frames, self._stream
        if stream.closed or frames.paused or frames.tail or frames.large_frame is not None:
            return False
        count = socket_receive(self._fd, data, RECEIVE_BYTES, MSG_DONTWAIT)
        if count <= 0:
            return False
        reader.busy = True  # later bytes must not be received before these are handled
        try:
            while count:
                size = len(self._answer)  # again: completing a record may call `start`
                if count < size + 4 or not self.is_next(reader):
                    break
                record = <FastPathRecord>self.records[0]
                if not self.is_plain(at, record.correlation_id):
                    break
                self._requests.queue.popleft()
                found = at + self._numbers
                at += size + 4
                count -= size + 4
                self.complete(record, get_int64(found + 4), get_int64(found + 12))
                # The last reference to a delivery without a future: its finalizer may run other threads, one of
                # which may stop the fast path. In the next assignment that would come between `is_next` and its use.
                record = None
        finally:
            if count:
                if self.reader is reader:
                    self.armed = False
                reader.hand_over((<const char*>at)[:count], on_loop)
            else:
                reader.free()
        if (
            self.armed and not count and not self.records and not self._report_due
            and seconds(CLOCK_MONOTONIC) - self._reported_at > REPORT_SECONDS
        ):
            self._report_due = True
            self.owner.schedule_reopen()
        return True

    cdef bint is_next(self, FastPathReader reader) except -1:
        """Return True if the reader's stream is this one and the next response belongs to one of its records."""
        if not self.armed or not self.records or self.reader is not reader or self._requests.timer_at is None:
            return False  # without a timer the connection is checking for request timeouts
        waiting = self._requests.queue
        return bool(waiting) and waiting[0] is self.records[0]

    cdef bint is_plain(self, const uint8_t* frame, int correlation_id) noexcept:
        """Return True if the frame is the response to this request and reports plain success."""
        cdef const uint8_t* answer = <const uint8_t*>self._answer
        cdef int64_t size = len(self._answer), numbers = self._numbers, behind = self._behind
        return (
            get_int64(frame) == <int64_t>(<uint64_t>size << 32 | <uint32_t>correlation_id)
            and memcmp(frame + 8, answer + 4, numbers - 4) == 0
            and memcmp(frame + 4 + behind, answer + behind, size - behind) == 0
        )

    cdef bint is_quick(self, object wake) except -1:
        """Return True if completing the records in flight runs no Python code but `wake`: Ctrl-C may interrupt any."""
        cdef FastPathRecord record
        cdef BatchOutcome delivery
        if self.context_locked():
            return False
        for record in self.records:
            delivery = <BatchOutcome>record.delivery
            if delivery.callbacks and self._callbacks.post is None:
                return False
            if delivery.waiters and (len(delivery.waiters) > 1 or delivery.waiters[0][1] is not wake):
                return False
        return True

    cdef int remove_first(self, FastPathRecord record, double now) except -1:
        record.owner = None
        del self.records[0]
        self.metrics.add(now, now - record.created, record.size)
        return 0

    cdef int complete(self, FastPathRecord record, int64_t base_offset, int64_t log_append_time_ms) except -1:
        cdef BatchOutcome delivery = <BatchOutcome>record.delivery
        cdef double now = seconds(CLOCK_MONOTONIC)
        cdef list waiters, calls = record.calls, callbacks = delivery.callbacks
        cdef Py_ssize_t prepared = 0 if calls is None else 3 * len(calls)
        cdef Py_ssize_t wanted = 0 if callbacks is None else len(callbacks)
        # Another thread adds a callback or a waiter, there are callbacks for which no call was prepared, or the thread
        # for callbacks does not run yet.
        if self.context_locked() or prepared != wanted or (wanted and self._callbacks.post is None):
            self._context.unnotified[delivery] = None
            self.remove_first(record, now)
            try:
                delivery.deliver(1, base_offset, log_append_time_ms)
            finally:
                self._context.notified(delivery)
            return 0
        self.remove_first(record, now)
        waiters = delivery.complete_alone(self._delivered, base_offset, log_append_time_ms)
        if calls is not None:  # posted before another thread can see the delivery and wait for them
            self._callbacks.post(calls)
            self.waiter.wake()
        if waiters:
            for _, wake in waiters:
                wake()
        return 0
