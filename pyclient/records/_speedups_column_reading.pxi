# Batches into columns.

cdef enum:
    MAX_COLUMN_DATA = 0x7FFFFFFF  # what 32-bit offsets reach
    OUT_OF_MEMORY = 100  # beside the numbers of what is wrong with a record


@cython.final
cdef class Memory:
    """Bytes that grow, and that others can look at once they do not."""

    cdef char* data
    cdef int64_t used
    cdef int64_t capacity

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data if self.data != NULL else <char*>b"", self.used, 1, flags)

    cdef inline int reserve(self, int64_t extra) noexcept nogil:
        """Not 0 when there is no memory."""
        return 0 if self.used + extra <= self.capacity else self.grow(self.used + extra)

    cdef int grow(self, int64_t needed) noexcept nogil:
        cdef int64_t capacity = max(needed, 2 * self.capacity, 64)
        cdef char* grown = <char*>realloc(self.data, capacity)
        if grown == NULL:
            return NO_MEMORY
        self.data = grown
        self.capacity = capacity
        return 0

    cdef inline void push32(self, int32_t value) noexcept nogil:
        (<int32_t*>(self.data + self.used))[0] = value
        self.used += 4

    cdef inline void push64(self, int64_t value) noexcept nogil:
        (<int64_t*>(self.data + self.used))[0] = value
        self.used += 8

    cdef object finish(self):
        cdef char* fitted
        if 0 < self.used < self.capacity:
            fitted = <char*>realloc(self.data, self.used)
            if fitted != NULL:
                self.data = fitted
                self.capacity = self.used
        return memoryview(self)


@cython.final
cdef class BinaryMemory:
    """A column of byte strings that grows."""

    cdef Memory offsets
    cdef Memory data
    cdef Memory validity
    cdef int64_t length
    cdef int64_t nulls

    def __cinit__(self):
        self.offsets = Memory()
        self.data = Memory()
        self.validity = Memory()
        if self.offsets.reserve(4):
            raise MemoryError
        self.offsets.push32(0)

    cdef inline int add(self, Field* field) noexcept nogil:
        """Not 0 when there is no memory."""
        cdef int64_t size = max(field.size, 0)
        cdef int bit = 1 << (self.length & 7)
        cdef char* bits
        if self.offsets.reserve(4) or self.data.reserve(size) or self.validity.reserve(1):
            return NO_MEMORY
        bits = self.validity.data + (self.length >> 3)
        if self.length & 7 == 0:
            bits[0] = 0
        if field.size < 0:
            bits[0] = bits[0] & ~bit
            self.nulls += 1
        else:
            bits[0] = bits[0] | bit
            memcpy(self.data.data + self.data.used, field.data, size)
            self.data.used += size
        self.offsets.push32(<int32_t>self.data.used)
        self.length += 1
        self.validity.used = self.length >> 3
        return 0

    cdef object cut(self, int64_t length, int64_t nulls):
        self.length = length
        self.nulls = nulls
        self.offsets.used = 4 * (length + 1)
        self.data.used = (<int32_t*>self.offsets.data)[length]
        self.validity.used = length >> 3

    cdef object finish(self):
        validity = None
        if self.nulls:
            self.validity.used = (self.length + 7) >> 3
            if self.length & 7:
                self.validity.data[self.validity.used - 1] &= (1 << (self.length & 7)) - 1
            validity = self.validity.finish()
        return BinaryColumn(self.offsets.finish(), self.data.finish(), validity, self.length)


# What is the same for all records of a batch, and which of them are wanted.
cdef struct Batch:
    int64_t count
    int64_t base_offset
    int64_t last_offset_delta
    int64_t timestamp
    int appended
    int64_t from_offset
    int64_t to_offset
    int64_t number  # of the record that is looked at


@cython.final
cdef class ColumnsBuilder:
    """Collects the records of many batches, of any topics and partitions, as columns."""

    cdef readonly int64_t count
    cdef dict _topics
    cdef Memory _topic_ids
    cdef Memory _partitions
    cdef Memory _kinds
    cdef Memory _offsets
    cdef Memory _timestamps
    cdef BinaryMemory _keys
    cdef BinaryMemory _values
    cdef Memory _header_offsets
    cdef BinaryMemory _names
    cdef BinaryMemory _header_values
    cdef bint _busy

    def __cinit__(self):
        self.reset()

    cdef object reset(self):
        self.count = 0
        self._topics = {}
        self._topic_ids, self._partitions, self._kinds = Memory(), Memory(), Memory()
        self._offsets, self._timestamps, self._header_offsets = Memory(), Memory(), Memory()
        self._keys, self._values = BinaryMemory(), BinaryMemory()
        self._names, self._header_values = BinaryMemory(), BinaryMemory()
        if self._header_offsets.reserve(4):
            raise MemoryError
        self._header_offsets.push32(0)

    def add(
        self,
        buffer,
        Py_ssize_t position,
        header,
        topic,
        int32_t partition,
        *,
        int64_t from_offset=0,
        int64_t to_offset=INT64_MAX,
        max_size=MAX_DECOMPRESSED,
    ):
        """Add the records with from_offset <= offset < to_offset of the batch at `position`; says how many.

        Raises `CorruptRecord`, and `OverflowError` when a column would pass 2 GiB; then nothing was added.
        """
        payload = open_batch(buffer, position, header, topic, partition, max_size)
        data = memoryview(payload.data)
        used = max(self._keys.data.used, self._values.data.used, self._names.data.used, self._header_values.data.used)
        if used + len(data) > MAX_COLUMN_DATA:
            raise OverflowError("a column holds 2 GiB: finish this one and begin another")
        cdef Batch batch
        batch.count = payload.count
        batch.base_offset = payload.base_offset
        batch.last_offset_delta = payload.last_offset_delta
        batch.appended = payload.append_timestamp is not None
        batch.timestamp = payload.append_timestamp if batch.appended else payload.base_timestamp
        batch.from_offset = from_offset
        batch.to_offset = to_offset
        cdef const uint8_t* at = <const uint8_t*>PyMemoryView_GET_BUFFER(data).buf
        cdef const uint8_t* end = at + len(data)
        cdef int64_t before = self.count
        cdef tuple nulls = (self._keys.nulls, self._values.nulls, self._header_values.nulls)
        cdef int problem
        if self._busy:
            raise RuntimeError("another thread is adding to this ColumnsBuilder")
        self._busy = True
        try:
            self.reserve(batch.count)
            with nogil:
                problem = self.read_rows(&at, end, &batch)
            if problem == OUT_OF_MEMORY:
                raise MemoryError
            if problem:
                raise bad_record(payload.place, batch.number, problem)
            if at != end:
                raise bytes_behind(payload.place, end - at)
            self.fill_constants(topic, partition, payload.timestamp_type, before)
        except BaseException:
            self.cut(before, nulls)
            raise
        finally:
            self._busy = False
        return self.count - before

    cdef int reserve(self, int64_t rows) except -1:
        """Room for what has a fixed width; rows not read yet count by the smallest record, so it is not much."""
        if (
            self._offsets.reserve(8 * rows)
            or self._timestamps.reserve(8 * rows)
            or self._header_offsets.reserve(4 * rows)
            or self._topic_ids.reserve(4 * rows)
            or self._partitions.reserve(4 * rows)
            or self._kinds.reserve(rows)
        ):
            raise MemoryError
        return 0

    cdef int read_rows(self, const uint8_t** at, const uint8_t* end, Batch* batch) noexcept nogil:
        """Add the batch's rows; the number of what is wrong with row `batch.number`, or 0."""
        cdef Row row
        cdef int64_t offset
        cdef int problem
        row.offset_delta = -1
        for batch.number in range(batch.count):
            problem = read_row(at, end, row.offset_delta, batch.last_offset_delta, &row)
            if problem:
                return problem
            offset = batch.base_offset + row.offset_delta
            if offset < batch.from_offset or offset >= batch.to_offset:
                continue
            if self._keys.add(&row.key) or self._values.add(&row.value):
                return OUT_OF_MEMORY
            if row.header_count:
                problem = self.add_headers(&row, at[0])
                if problem:
                    return problem
            self._offsets.push64(offset)
            self._timestamps.push64(
                batch.timestamp if batch.appended else add64(batch.timestamp, row.timestamp_delta)
            )
            self._header_offsets.push32(<int32_t>self._names.length)
            self.count += 1
        return 0

    cdef int add_headers(self, Row* row, const uint8_t* end) noexcept nogil:
        cdef const uint8_t* at = row.headers
        cdef Field name, value
        cdef int64_t number
        cdef int problem
        for number in range(row.header_count):
            problem = read_field(&at, end, 0, &name) or read_field(&at, end, -1, &value)
            if problem:
                return problem
            if self._names.add(&name) or self._header_values.add(&value):
                return OUT_OF_MEMORY
        return 0

    cdef object fill_constants(self, topic, int32_t partition, int8_t kind, int64_t before):
        cdef int64_t row
        cdef int32_t topic_id
        if self.count == before:
            return
        topic_id = self._topics.setdefault(topic, len(self._topics))
        for row in range(before, self.count):
            self._topic_ids.push32(topic_id)
            self._partitions.push32(partition)
            self._kinds.data[row] = kind
        self._kinds.used = self.count

    cdef object cut(self, int64_t count, tuple nulls):
        cdef int64_t headers
        self.count = count
        self._offsets.used = 8 * count
        self._timestamps.used = 8 * count
        self._header_offsets.used = 4 * (count + 1)
        headers = (<int32_t*>self._header_offsets.data)[count]
        self._keys.cut(count, nulls[0])
        self._values.cut(count, nulls[1])
        self._names.cut(headers, 0)
        self._header_values.cut(headers, nulls[2])

    def finish(self):
        """The columns so far; the builder is empty again."""
        columns = RecordColumns(
            self.count,
            tuple(self._topics),
            self._topic_ids.finish(),
            self._partitions.finish(),
            self._offsets.finish(),
            self._timestamps.finish(),
            self._kinds.finish(),
            self._keys.finish(),
            self._values.finish(),
            HeaderColumns(self._header_offsets.finish(), self._names.finish(), self._header_values.finish()),
        )
        self.reset()
        return columns
