# Decode batches into columns.

cdef enum:
    MAX_COLUMN_DATA = 0x7FFFFFFF  # the limit of 32-bit offsets
    SMALLEST_ROW = 7
    CODEC = 0x07  # of a batch's attributes
    LOG_APPEND = 0x08


# A growable column of byte strings. `offsets` has one entry more than there are rows.
cdef struct Strings:
    Block offsets
    Block data
    Block validity
    int64_t length
    int64_t nulls
    bint large  # written around the CPU's cache


cdef int begin_strings(Strings* strings) noexcept nogil:
    strings.offsets = strings.data = strings.validity = EMPTY_BLOCK
    strings.length = strings.nulls = 0
    strings.large = False
    if reserve(&strings.offsets, 4):
        return OUT_OF_MEMORY
    push32(&strings.offsets, 0)
    return 0


cdef inline int add_string(Strings* strings, Field* field) noexcept nogil:
    """Return not 0 if out of memory. The caller has reserved space for `offsets` and `validity`."""
    cdef uint8_t* bits = <uint8_t*>strings.validity.data + (strings.length >> 3)
    if strings.length & 7 == 0:
        bits[0] = 0
    if field.size < 0:
        bits[0] = bits[0] & ~(1 << (strings.length & 7))
        strings.nulls += 1
    else:
        bits[0] = bits[0] | 1 << (strings.length & 7)
        if field.size > 0:
            if reserve(&strings.data, field.size):
                return OUT_OF_MEMORY
            if strings.large and field.size >= LONG_STRING:
                copy_around_cache(strings.data.data + strings.data.used, <const char*>field.data, field.size)
            else:
                memcpy(strings.data.data + strings.data.used, field.data, field.size)
            strings.data.used += field.size
    push32(&strings.offsets, <int32_t>strings.data.used)
    strings.length += 1
    return 0


cdef inline int reserve_strings(Strings* strings, int64_t rows) noexcept nogil:
    strings.validity.used = (strings.length + 7) >> 3
    return reserve(&strings.offsets, 4 * rows) or reserve(&strings.validity, (rows >> 3) + 1)


cdef void cut_strings(Strings* strings, int64_t length, int64_t nulls) noexcept nogil:
    strings.length = length
    strings.nulls = nulls
    strings.offsets.used = 4 * (length + 1)
    strings.data.used = as_int32(&strings.offsets)[length]


cdef object finish_strings(Strings* strings):
    cdef int64_t length = strings.length
    validity = None
    strings.validity.used = (length + 7) >> 3
    if strings.nulls:
        if length & 7:
            strings.validity.data[length >> 3] &= (1 << (length & 7)) - 1
        validity = finish(&strings.validity)
    else:
        give_block(&strings.validity)
    return BinaryColumn(finish(&strings.offsets), finish(&strings.data), validity, length)


cdef void free_strings(Strings* strings) noexcept:
    give_block(&strings.offsets)
    give_block(&strings.data)
    give_block(&strings.validity)


# The constants of a batch, the range of offsets to read, and the progress of reading.
cdef struct Batch:
    const uint8_t* at
    const uint8_t* end
    int problem
    int64_t rows  # added so far
    int64_t count
    int64_t base_offset
    int64_t last_offset_delta
    int64_t timestamp
    int appended
    int8_t kind  # of timestamp
    int32_t partition
    int64_t from_offset
    int64_t to_offset
    int64_t number  # of the current record


# All columns of a `ColumnsBuilder`. A batch is read into a copy on the stack, whose fields stay in registers: twice as
# fast.
cdef struct Columns:
    int64_t count
    Block topic_ids
    Block partitions
    Block kinds
    Block offsets
    Block timestamps
    Block header_offsets
    Strings keys
    Strings values
    Strings names
    Strings header_values


cdef int reserve_rows(Columns* columns, int64_t rows, int64_t size) noexcept nogil:
    """Reserve space for the fixed-width columns (a record has at least 7 bytes) and an estimate for the values."""
    if columns.values.data.data == NULL and reserve(&columns.values.data, size):
        return OUT_OF_MEMORY
    return (
        reserve(&columns.topic_ids, 4 * rows)
        or reserve(&columns.partitions, 4 * rows)
        or reserve(&columns.kinds, rows)
        or reserve(&columns.offsets, 8 * rows)
        or reserve(&columns.timestamps, 8 * rows)
        or reserve(&columns.header_offsets, 4 * rows)
        or reserve_strings(&columns.keys, rows)
        or reserve_strings(&columns.values, rows)
    )


cdef int reserve_batches(Batch* batches, Py_ssize_t count, Columns* columns) noexcept nogil:
    """Reserve space for all batches before the GIL is released: taking a block needs it."""
    cdef int64_t rows = 0, size = 0
    cdef Py_ssize_t number
    for number in range(count):
        rows += batches[number].count
        size += batches[number].end - batches[number].at
    columns.values.large = size >= LARGE_TABLE
    return reserve_rows(columns, rows, size) if count else 0


cdef Py_ssize_t add_batches(Batch* batches, Py_ssize_t count, Columns* columns) noexcept nogil:
    """Add batches until one cannot be added, of which nothing is kept; return how many were added."""
    cdef int64_t before, key_nulls, value_nulls, header_nulls
    cdef Py_ssize_t number
    cdef Batch* batch
    for number in range(count):
        batch = batches + number
        before = columns.count
        key_nulls, value_nulls, header_nulls = columns.keys.nulls, columns.values.nulls, columns.header_values.nulls
        batch.problem = read_rows(batch, columns)
        if batch.problem or batch.at != batch.end:
            cut(columns, before, key_nulls, value_nulls, header_nulls)
            count = number
            break
        batch.rows = columns.count - before
    end_of_copies()
    return count


cdef int read_rows(Batch* batch, Columns* target) noexcept nogil:
    """Add the batch's rows to the columns; return the problem of row `batch.number`, or 0."""
    cdef Columns columns = target[0]
    cdef const uint8_t* at = batch.at
    cdef const uint8_t* end = batch.end
    cdef int64_t offset, number = 0
    cdef int problem = reserve_rows(&columns, batch.count, end - at)
    cdef Row row
    row.offset_delta = -1
    while not problem and number < batch.count:
        problem = read_row(&at, end, row.offset_delta, batch.last_offset_delta, &row)
        if problem:
            break
        number += 1
        offset = batch.base_offset + row.offset_delta
        if offset < batch.from_offset or offset >= batch.to_offset:
            continue
        problem = add_string(&columns.keys, &row.key) or add_string(&columns.values, &row.value)
        if row.header_count and not problem:
            problem = add_headers(&columns, &row, at)
        push64(&columns.offsets, offset)
        push64(&columns.timestamps, batch.timestamp if batch.appended else add64(batch.timestamp, row.timestamp_delta))
        push32(&columns.header_offsets, <int32_t>columns.names.length)
        columns.count += 1
    batch.number = number
    batch.at = at
    target[0] = columns
    return problem


cdef int add_headers(Columns* columns, Row* row, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* at = row.headers
    cdef Field name, value
    cdef int problem = reserve_strings(&columns.names, row.header_count)
    cdef int64_t number
    problem = problem or reserve_strings(&columns.header_values, row.header_count)
    for number in range(row.header_count):
        problem = problem or read_field(&at, end, 0, &name) or read_field(&at, end, -1, &value)
        if problem:
            break
        problem = add_string(&columns.names, &name) or add_string(&columns.header_values, &value)
    return problem


cdef void cut(
    Columns* columns, int64_t count, int64_t key_nulls, int64_t value_nulls, int64_t header_nulls
) noexcept nogil:
    cdef int64_t headers = as_int32(&columns.header_offsets)[count]
    columns.count = count
    columns.offsets.used = columns.timestamps.used = 8 * count
    columns.header_offsets.used = 4 * (count + 1)
    cut_strings(&columns.keys, count, key_nulls)
    cut_strings(&columns.values, count, value_nulls)
    cut_strings(&columns.names, headers, 0)
    cut_strings(&columns.header_values, headers, header_nulls)


cdef void fill_constants(Columns* columns, int64_t rows, int32_t topic_id, int32_t partition, int8_t kind) noexcept:
    """Fill the constant columns of the next `rows` rows."""
    cdef int64_t first = columns.kinds.used
    cdef int32_t* topic_ids = as_int32(&columns.topic_ids)
    cdef int32_t* partitions = as_int32(&columns.partitions)
    cdef int8_t* kinds = <int8_t*>columns.kinds.data
    cdef int64_t row
    for row in range(first, first + rows):
        topic_ids[row] = topic_id
        partitions[row] = partition
        kinds[row] = kind
    columns.topic_ids.used = columns.partitions.used = 4 * (first + rows)
    columns.kinds.used = first + rows


@cython.final
cdef class ColumnsBuilder:
    """Collects the records of many batches of any topics and partitions as columns."""

    cdef dict _topics
    cdef Columns _columns
    cdef bint _busy

    def __cinit__(self):
        self.reset()

    def __dealloc__(self):
        cdef Columns* columns = &self._columns
        give_block(&columns.topic_ids)
        give_block(&columns.partitions)
        give_block(&columns.kinds)
        give_block(&columns.offsets)
        give_block(&columns.timestamps)
        give_block(&columns.header_offsets)
        free_strings(&columns.keys)
        free_strings(&columns.values)
        free_strings(&columns.names)
        free_strings(&columns.header_values)

    @property
    def count(self):
        return self._columns.count

    cdef object reset(self):
        cdef Columns* columns = &self._columns
        self._topics = {}
        columns.count = 0
        columns.topic_ids = columns.partitions = columns.kinds = EMPTY_BLOCK
        columns.offsets = columns.timestamps = columns.header_offsets = EMPTY_BLOCK
        if (
            begin_strings(&columns.keys)
            or begin_strings(&columns.values)
            or begin_strings(&columns.names)
            or begin_strings(&columns.header_values)
            or reserve(&columns.header_offsets, 4)
        ):
            raise MemoryError
        push32(&columns.header_offsets, 0)

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
        """Add the records with from_offset <= offset < to_offset of the batch at `position`; return their number.

        Raise `CorruptRecord`, or `OverflowError` if a column would exceed 2 GiB; then nothing was added.
        """
        payload = open_batch(buffer, position, header, topic, partition, max_size)
        data = memoryview(payload.data)
        cdef Columns* columns = &self._columns
        cdef Batch batch
        self.begin()
        try:
            self.check_room(len(data))
            self.describe(payload, data, from_offset, to_offset, &batch)
            if reserve_batches(&batch, 1, columns):
                raise MemoryError
            with nogil:
                add_batches(&batch, 1, columns)
            if batch.problem == OUT_OF_MEMORY:
                raise MemoryError
            if batch.problem:
                raise payload.bad_record(batch.number, batch.problem)
            if batch.at != batch.end:
                raise payload.bytes_behind(batch.end - batch.at)
            self.name(topic, &batch)
        finally:
            self._busy = False
        return batch.rows

    def add_many(self, pieces, max_size=MAX_DECOMPRESSED):
        """Add as many of the pieces as possible, releasing the GIL once for all; return how many were added.

        A piece is (`PlacedBatch`, from_offset, to_offset). Stop before the first that cannot be added; `add` raises its
        error.
        """
        cdef Columns* columns = &self._columns
        cdef Py_ssize_t number = 0, added = 0, count = len(pieces)
        cdef int64_t size = 0, from_offset, to_offset
        cdef Batch* batches
        cdef Batch* batch
        cdef PlacedBatch placed
        cdef list kept = []
        self.begin()
        batches = <Batch*>malloc(max(count, 1) * sizeof(Batch))
        try:
            if batches == NULL:
                raise MemoryError
            for placed, from_offset, to_offset in pieces:
                batch = batches + number
                try:
                    view = self.describe_plain(placed, from_offset, to_offset, batch)
                    if view is None:
                        payload = placed.payload
                        if payload is None:
                            payload = open_batch(
                                placed.buffer, placed.position, placed.header, placed.topic, placed.partition, max_size
                            )
                        view = memoryview(payload.data)
                        self.describe(payload, view, from_offset, to_offset, batch)
                    size += batch.end - batch.at
                    self.check_room(size)
                except (CorruptRecord, OverflowError):
                    break
                kept.append(view)
                number += 1
            if reserve_batches(batches, number, columns):
                raise MemoryError
            with nogil:
                added = add_batches(batches, number, columns)
            for number in range(added):
                placed = pieces[number][0]
                self.name(placed.topic, batches + number)
        finally:
            self._busy = False
            free(batches)
        return added

    cdef object describe(self, payload, data, int64_t from_offset, int64_t to_offset, Batch* batch):
        batch.at = <const uint8_t*>PyMemoryView_GET_BUFFER(data).buf
        batch.end = batch.at + PyMemoryView_GET_BUFFER(data).len
        batch.count = payload.count
        batch.base_offset = payload.base_offset
        batch.last_offset_delta = payload.last_offset_delta
        batch.appended = payload.append_timestamp is not None
        batch.timestamp = payload.append_timestamp if batch.appended else payload.base_timestamp
        batch.kind = payload.header.timestamp_type
        batch.partition = payload.partition
        batch.from_offset = from_offset
        batch.to_offset = to_offset

    cdef object describe_plain(self, PlacedBatch placed, int64_t from_offset, int64_t to_offset, Batch* batch):
        """Do as `describe` from the header bytes of an uncompressed, valid batch; return its memory, else None."""
        view = memoryview(placed.buffer)
        cdef const uint8_t* at = place_of(placed, view)
        if at == NULL:
            return None
        cdef int32_t attributes = load16(at + CHECKED_AT)
        cdef int64_t last = load32(at + LAST_DELTA_AT)
        cdef int64_t base = placed.base_offset
        cdef int64_t count = placed.count
        cdef int64_t size = placed.size
        if attributes & CODEC or not 0 <= count <= (size - PLAIN_HEADER) // SMALLEST_ROW:
            return None
        if count - 1 > last or not 0 <= base <= INT64_MAX - max(last, 0):
            return None
        batch.at = at + PLAIN_HEADER
        batch.end = at + size
        batch.count = count
        batch.base_offset = base
        batch.last_offset_delta = last
        batch.appended = batch.kind = attributes & LOG_APPEND != 0
        batch.timestamp = load64(at + (MAX_TIMESTAMP_AT if batch.appended else BASE_TIMESTAMP_AT))
        batch.partition = placed.partition
        batch.from_offset = from_offset
        batch.to_offset = to_offset
        return view

    cdef object name(self, topic, Batch* batch):
        """Fill the topic, partition and timestamp type columns of the batch's rows."""
        if batch.rows:
            topic_id = self._topics.setdefault(topic, len(self._topics))
            fill_constants(&self._columns, batch.rows, topic_id, batch.partition, batch.kind)

    cdef object begin(self):
        """Set `_busy`. Raise `RuntimeError` if another thread is using the builder."""
        with cython.critical_section(self):
            busy, self._busy = self._busy, True
        if busy:
            raise RuntimeError("another thread is using this ColumnsBuilder")

    cdef object check_room(self, int64_t extra):
        cdef Columns* columns = &self._columns
        cdef int64_t used = max(
            columns.keys.data.used, columns.values.data.used, columns.names.data.used, columns.header_values.data.used
        )
        if used + extra > MAX_COLUMN_DATA:
            raise OverflowError("a column holds 2 GiB: finish this one and begin another")

    def finish(self):
        """Return the collected columns and empty the builder."""
        cdef Columns* columns = &self._columns
        self.begin()
        try:
            result = RecordColumns(
                columns.count,
                tuple(self._topics),
                finish(&columns.topic_ids),
                finish(&columns.partitions),
                finish(&columns.offsets),
                finish(&columns.timestamps),
                finish(&columns.kinds),
                finish_strings(&columns.keys),
                finish_strings(&columns.values),
                HeaderColumns(
                    finish(&columns.header_offsets), finish_strings(&columns.names), finish_strings(&columns.header_values)
                ),
            )
            self.reset()
        finally:
            self._busy = False
        return result
