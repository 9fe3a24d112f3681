# Decode the records of a batch to objects.


cdef inline object as_object(Field* field):
    if field.size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>field.data, field.size)


cdef tuple read_headers(const uint8_t* at, const uint8_t* end, int64_t count):
    """Decode headers that `skip_headers` has validated."""
    cdef Field name, value
    cdef list headers = []
    for _ in range(count):
        if read_field(&at, end, 0, &name) or read_field(&at, end, -1, &value):
            raise CorruptRecord("a batch changed while it was read")
        headers.append((PyUnicode_DecodeUTF8(<const char*>name.data, name.size, NULL), as_object(&value)))
    return tuple(headers)


def decode_batch(
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
    """Return the records of the batch at `position` with from_offset <= offset < to_offset, also of a control batch.

    Do not check the CRC of magic 2. Raise `CorruptRecord`, also past `max_size` uncompressed bytes.
    """
    return decode_payload(open_batch(buffer, position, header, topic, partition, max_size), from_offset, to_offset)


def decode_payload(payload, int64_t from_offset=0, int64_t to_offset=INT64_MAX):
    """Return the records with from_offset <= offset < to_offset of a payload from `open_batch`."""
    data = memoryview(payload.data)
    header = payload.header
    cdef const uint8_t* start = <const uint8_t*>PyMemoryView_GET_BUFFER(data).buf
    cdef const uint8_t* end = start + PyMemoryView_GET_BUFFER(data).len
    cdef const uint8_t* at = start
    cdef str name = payload.topic
    cdef int32_t partition = payload.partition
    cdef tuple no_headers = ()
    cdef bint appended = payload.append_timestamp is not None
    cdef int64_t timestamp = payload.append_timestamp if appended else payload.base_timestamp
    cdef int64_t base_offset = payload.base_offset
    cdef int64_t offset, last = payload.last_offset_delta
    cdef int32_t kind = header.timestamp_type
    cdef int32_t epoch = header.leader_epoch
    cdef int64_t number, count = payload.count
    cdef Record record
    cdef Row row
    cdef int problem
    cdef list records = []
    row.offset_delta = -1
    for number in range(count):
        problem = read_row(&at, end, row.offset_delta, last, &row)
        if problem:
            raise payload.bad_record(number, problem)
        offset = base_offset + row.offset_delta
        if offset < from_offset or offset >= to_offset:
            continue
        record = Record.__new__(Record)
        record.topic = name
        record.partition = partition
        record.offset = offset
        record.timestamp_ms = timestamp if appended else add64(timestamp, row.timestamp_delta)
        record.timestamp_type = kind
        record.leader_epoch = epoch
        record.key = as_object(&row.key)
        record.value = as_object(&row.value)
        record.headers = read_headers(row.headers, at, row.header_count) if row.header_count else no_headers
        # An immutable object of bytes and text cannot be in a reference cycle: untrack it from the collector.
        untrack(<void*>record)
        records.append(record)
    if at != end:
        raise payload.bytes_behind(end - at)
    return records


@cython.final
cdef class RecordChain:
    """Iterates over the records in the lists that `sources` return; each source is called on demand.

    An error of a source is raised by `next`; the call after that continues with the next source.
    """

    cdef object _sources
    cdef list _records
    cdef Py_ssize_t _at

    def __init__(self, sources):
        self._sources = iter(sources)
        self._records = []
        self._at = 0

    def __iter__(self):
        return self

    def __next__(self):
        with cython.critical_section(self):
            while self._at >= len(self._records):
                source = next(self._sources)
                self._records = []
                self._at = 0
                self._records = source()
            record = self._records[self._at]
            self._at += 1
            return record
