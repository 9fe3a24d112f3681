# Append records to a batch under construction.

cdef enum:
    PIECE = 16  # bytes copied at once; a length and a timestamp delta have at most 15
    MANY_PIECES = 512  # bytes above which one memcpy is faster
    RECORD_OVERHEAD = 21  # length, attributes, timestamp delta and offset delta at their widest
    LENGTH_END = 12  # the batch's length counts the bytes after itself
    SUM_AT = 17  # the checksum
    MAGIC = 2

cdef tuple NO_ARGUMENTS = ()


def record_size_bound(key, value, headers):
    """Return the most bytes that this record takes in a batch, without the batch's header."""
    cdef Field field
    cdef int64_t size = RECORD_OVERHEAD
    cdef Scratch scratch
    set_field(&field, key, "key")
    size += field_size(&field)
    set_field(&field, value, "value")
    size += field_size(&field)
    if not headers:
        return size + 1
    scratch = Scratch()
    scratch.fill(headers)
    return size + varint_size(scratch.count) + scratch.size


@cython.final
cdef class BatchBuilder:
    """Appends records to the caller's buffer, after space for the header, until one does not fit.

    `batch` is the object that the handles refer to. Raise `ValueError` for a buffer too small for a header or too large
    for a batch's length field. `full` is set once a record did not fit. Not thread-safe, except that `append`,
    `append_columns` and `close` are atomic under the GIL.
    """

    cdef object _memory  # a view, which also prevents resizing of the buffer
    cdef uint8_t* _data
    cdef int64_t _capacity
    cdef object _batch
    cdef object _handle_type
    cdef Scratch _scratch
    cdef bint _closed
    cdef readonly bint full
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    def __cinit__(self, buffer, batch, handle_type=RecordHandle):
        if not isinstance(buffer, bytearray) or not issubclass(handle_type, RecordHandle):
            raise TypeError("a BatchBuilder needs a bytearray and a RecordHandle class")
        if not HEADER_SIZE <= len(buffer) <= MAX_BATCH_SIZE:
            raise ValueError(f"a buffer of {len(buffer)} bytes cannot hold a batch")
        self._memory = memoryview(buffer)
        self._data = <uint8_t*>PyMemoryView_GET_BUFFER(self._memory).buf
        self._capacity = len(buffer)
        self._batch = batch
        self._handle_type = handle_type
        self.count = 0
        self.size = ROOM_FOR_HEADER
        self.base_timestamp = -1
        self.max_timestamp = -1

    def close(self):
        """Refuse all further records: `append` returns None in every thread."""
        self._closed = True

    def append(self, int64_t timestamp_ms, key, value, headers):
        """Append one record and return its handle; None if it does not fit. `headers`: (str, bytes-like or None) pairs.

        Raise `TypeError` for values of other types.
        """
        return self.append_one(timestamp_ms, key, value, headers)

    cdef inline object append_one(self, int64_t timestamp_ms, object key, object value, object headers):
        cdef Py_ssize_t number
        if not self.add(timestamp_ms, key, value, headers):
            return None
        number = self.count - 1  # read first: creating the handle may run garbage collection, and with it any code
        cdef RecordHandle handle = <RecordHandle>(
            (<PyTypeObject*>self._handle_type).tp_new(<type>self._handle_type, <PyObject*>NO_ARGUMENTS, NULL)
        )
        untrack_handle(handle)
        handle.batch = self._batch
        handle.index = number
        handle.timestamp_ms = timestamp_ms
        return handle

    def append_many(self, timestamp_ms, keys, values, headers, Py_ssize_t start, Py_ssize_t stop, rows=None):
        """Append `values[start:stop]` with their keys, headers and timestamps; return how many were appended.

        With `rows` (int32) append the records that `rows[start:stop]` number. Raise `TypeError` if the first record is
        invalid, `ValueError` if it does not exist; stop before a later record of that kind.
        """
        cdef object times = None if isinstance(timestamp_ms, int) else timestamp_ms
        cdef int64_t timestamp = timestamp_ms if times is None else 0
        cdef Words numbers = None if rows is None else Words(rows, 4)
        cdef Py_ssize_t at = start
        cdef Py_ssize_t row
        cdef Py_ssize_t shortest = min([len(column) for column in (keys, values, headers, times) if column is not None])
        cdef Py_ssize_t available = shortest if numbers is None else numbers.length
        if not 0 <= start <= stop <= available:
            raise rows_outside(start, stop, available)
        try:
            while at < stop:
                row = at if numbers is None else numbers.int32(at)
                if not 0 <= row < shortest:
                    raise no_such_row(row, shortest)
                if times is not None:
                    timestamp = times[row]
                if not self.add(
                    timestamp,
                    None if keys is None else keys[row],
                    values[row],
                    None if headers is None else headers[row],
                ):
                    break
                at += 1
        except (TypeError, ValueError, OverflowError):
            if at == start:
                raise
        return at - start

    cdef bint add(self, int64_t timestamp_ms, object key, object value, object headers) except -1:
        cdef Row row
        cdef Scratch scratch = None
        cdef bint written
        cdef object key_held = set_field(&row.key, key, "key")
        cdef object value_held = set_field(&row.value, value, "value")
        row.header_count = 0
        row.headers_size = 0
        if headers is not None and headers:
            scratch, self._scratch = self._scratch, None  # filling it may run Python code, even another append
            if scratch is None:
                scratch = Scratch()
            scratch.fill(headers)
            row.header_count = scratch.count
            row.headers_size = scratch.size
            row.headers = scratch.data
        written = self.write(timestamp_ms, &row)
        if scratch is not None:
            self._scratch = scratch
        return written

    cdef inline bint write(self, int64_t timestamp_ms, Row* row) noexcept nogil:
        """Append the record to the batch; 0 if it does not fit."""
        cdef int64_t base = timestamp_ms if self.count == 0 else self.base_timestamp
        cdef int64_t timestamp_delta = <int64_t>(<uint64_t>timestamp_ms - <uint64_t>base)
        cdef uint8_t* at
        cdef int64_t size = (
            1
            + varint_size(timestamp_delta)
            + varint_size(self.count)
            + field_size(&row.key)
            + field_size(&row.value)
            + varint_size(row.header_count)
            + row.headers_size
        )
        if self._closed:
            return 0
        if size + varint_size(size) > self._capacity - self.size:
            self.full = True
            return 0
        at = write_varint(self._data + self.size, size)
        at[0] = 0
        at = write_varint(at + 1, timestamp_delta)
        at = write_varint(at, self.count)
        at = write_field(at, &row.key)
        at = write_field(at, &row.value)
        at = write_varint(at, row.header_count)
        if row.headers_size:
            memcpy(at, row.headers, row.headers_size)
            at += row.headers_size
        self.size = at - self._data
        if self.count == 0 or timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        self.base_timestamp = base
        self.count += 1
        return 1

    def append_columns(
        self, timestamps, keys, values, headers, Py_ssize_t start, Py_ssize_t stop, rows=None
    ):
        """Append rows `start` to `stop` of the columns, or the rows that `rows[start:stop]` (int32) number.

        `timestamps` is one int for all, or a buffer of int64. Return how many rows were appended. Raise `ValueError`
        for inconsistent columns; stop before an invalid row after the first.
        """
        cdef ColumnRows columns = ColumnRows(timestamps, keys, values, headers)
        cdef Words numbers = None if rows is None else Words(rows, 4)
        cdef int64_t available = columns.length if numbers is None else numbers.length
        cdef int64_t number = 0, at = start
        cdef int problem = 0
        cdef Row row
        if not 0 <= start <= stop <= available:
            raise rows_outside(start, stop, available)
        # Keep the GIL: it makes this atomic with respect to an append by another thread.
        if numbers is None and columns.are_values_alone():
            at = self.write_values(columns, at, stop)
        while at < stop:
            number = at if numbers is None else numbers.int32(at)
            problem = columns.read(number, &row)
            if problem or not self.write(columns.timestamp(number), &row):
                break
            at += 1
        if problem and at == start:
            raise columns.error(number, problem)
        return at - start

    cdef int64_t write_values(self, ColumnRows columns, int64_t at, int64_t stop) noexcept:
        """Append rows of values only, at one timestamp, while there is spare room; return the row where it stopped.

        `write` handles the rest. The constant parts of the records are encoded once and copied in pieces of fixed size
        that may write past their end (measured with values of 100 bytes: a third of the time).
        """
        cdef Binary values = columns.values
        cdef const uint8_t* offsets = values.offsets.data + 4 * values.start
        cdef const uint8_t* source
        cdef int64_t timestamp = columns.one_timestamp
        cdef int64_t base = timestamp if self.count == 0 else self.base_timestamp
        cdef int64_t delta = <int64_t>(<uint64_t>timestamp - <uint64_t>base)
        cdef int64_t size, whole = 0, made_for = -1, made_until = -1, number = self.count
        cdef uint8_t[PIECE] front, middle
        cdef int64_t front_size = 0, middle_size = 0, done
        cdef uint8_t* position = self._data + self.size
        cdef uint8_t* last = self._data + self._capacity - 4 * PIECE  # where a record may end
        cdef int32_t begin, end
        if self._closed or at >= stop:
            return at
        memcpy(&begin, offsets + 4 * at, 4)
        while at < stop:
            memcpy(&end, offsets + 4 * at + 4, 4)
            size = <int64_t>end - begin
            if begin < 0 or size < 0 or end > values.data_size:
                break
            if size != made_for or number >= made_until:
                whole = 3 + varint_size(delta) + varint_size(number) + varint_size(size) + size
                made_until = <int64_t>1 << (7 * varint_size(number) - 1)
                made_for = size
                front_size = write_varint(front, whole) - front
                front[front_size] = 0
                front_size = write_varint(front + front_size + 1, delta) - front
                middle_size = write_varint(write_varint(middle, -1), size) - middle
            if whole > last - position:
                break
            memcpy(position, front, PIECE)
            position = write_varint(position + front_size, number)
            memcpy(position, middle, PIECE)
            position += middle_size
            source = values.data + begin
            if size <= MANY_PIECES and end <= values.data_size - PIECE:
                done = 0
                while done < size:
                    memcpy(position + done, source + done, PIECE)
                    done += PIECE
            else:
                memcpy(position, source, size)
            position += size
            position[0] = 0
            position += 1
            number += 1
            at += 1
            begin = end
        if number > self.count:
            self.size = position - self._data
            if self.count == 0 or timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
            self.base_timestamp = base
            self.count = number
        return at

    def seal(
        self,
        *,
        compression=Compression.NONE,
        level=None,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        transactional=False,
        control=False,
    ):
        """Return the whole batch with its CRC: a writable view, of the buffer itself if not compressed.

        May be called again. Raise `ValueError` without records.
        """
        flags = (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
        if self.count and compression == 0:
            try:
                return self.seal_plain(producer_id, producer_epoch, base_sequence, flags)
            except (TypeError, OverflowError):
                pass  # `seal_batch` says what is wrong
        return seal_batch(
            self._memory, self.size, self.count, self.base_timestamp, self.max_timestamp, compression, level,
            producer_id, producer_epoch, base_sequence, flags,
        )

    cdef object seal_plain(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, int16_t attributes):
        """Do as `seal_batch` without compression, in a fifth of its time (checksum excluded)."""
        cdef object batch = self._memory[: self.size]
        cdef uint8_t* at = self._data
        at = write_big(at, 0, 8)  # base offset
        at = write_big(at, self.size - LENGTH_END, 4)
        at = write_big(at, -1, 4)  # leader epoch
        at = write_big(at, MAGIC, 1)
        at = write_big(at + 4, attributes, 2)  # after the checksum
        at = write_big(at, self.count - 1, 4)
        at = write_big(at, self.base_timestamp, 8)
        at = write_big(at, self.max_timestamp, 8)
        at = write_big(at, producer_id, 8)
        at = write_big(at, producer_epoch, 2)
        at = write_big(at, base_sequence, 4)
        write_big(at, self.count, 4)
        write_big(self._data + SUM_AT, <int64_t>crc32c(batch[SUM_AT + 4 :]), 4)
        return batch


cdef object append_record(object builder, int64_t timestamp_ms, object key, object value, object headers):
    """Append a record as `BatchBuilder.append` does; for the compiled part of the producer."""
    return (<BatchBuilder?>builder).append_one(timestamp_ms, key, value, headers)


cdef inline uint8_t* write_big(uint8_t* at, int64_t value, int size) noexcept nogil:
    """Write the lowest `size` bytes of a number in big-endian order; return the position after them."""
    cdef int place
    for place in range(size):
        at[place] = <uint8_t>(<uint64_t>value >> (8 * (size - 1 - place)))
    return at + size
