# Batches at positions in a buffer: find consecutive ones in one call, read their full headers on demand.

cdef enum:
    # positions in a batch
    LENGTH_AT = 8
    EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    LAST_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_AT = 43
    COUNT_AT = 57
    PLAIN_HEADER = 61  # bytes before a batch's records
    BEHIND_LENGTH = 12
    OF_TRANSACTIONS = 0x30  # attribute bits: transactional, control
    OF_CONTROL = 0x20
    ABORT_MARKER = 0  # the type of a control record
    UNREADABLE = 0x10000  # above the types that there may be

cdef int64_t MAX_BASE_OFFSET = INT64_MAX - <int64_t>0xFFFFFFFF  # a batch that begins below it ends within 64 bits


cdef inline int64_t load64(const uint8_t* at) noexcept nogil:
    return <int64_t>(<uint64_t><uint32_t>load32(at) << 32 | <uint32_t>load32(at + 4))


cdef inline int32_t load32(const uint8_t* at) noexcept nogil:
    return <int32_t>(<uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3])


cdef inline int32_t load16(const uint8_t* at) noexcept nogil:
    return <int32_t>at[0] << 8 | at[1]


cdef class PlacedBatch:
    """One batch at `position` of a buffer, with the header fields that are needed most often.

    `checked`: its CRC was verified. `readable`: all its records were verified. `payload`: the decompressed batch, which
    replaces a call of `open_batch`. `kept`: for use by a subclass.
    """

    cdef readonly str topic
    cdef readonly int32_t partition
    cdef public object buffer
    cdef readonly Py_ssize_t position
    cdef readonly int64_t base_offset
    cdef readonly int64_t next_offset
    cdef readonly int64_t count
    cdef readonly int64_t size
    cdef readonly int32_t leader_epoch
    cdef readonly bint dense
    cdef public bint checked
    cdef public bint readable
    cdef object _kept, _header, _payload

    def __init__(self, str topic, int32_t partition, buffer, Py_ssize_t position, header):
        self.topic = topic
        self.partition = partition
        self.buffer = buffer
        self.position = position
        self._header = header
        self.base_offset = header.base_offset
        self.next_offset = header.next_offset
        self.count = header.count
        self.size = header.size
        self.leader_epoch = header.leader_epoch
        self.dense = header.magic >= 2 and header.count == header.last_offset_delta + 1

    @property
    def kept(self):
        with cython.critical_section(self):
            return self._kept

    @kept.setter
    def kept(self, kept):
        with cython.critical_section(self):
            self._kept = kept

    @property
    def payload(self):
        with cython.critical_section(self):
            return self._payload

    @payload.setter
    def payload(self, payload):
        with cython.critical_section(self):
            self._payload = payload

    @property
    def header(self):
        """The full header, read on first use."""
        with cython.critical_section(self):
            if self._header is None:
                self._header = read_header(self.buffer, self.position)
            return self._header


cdef inline int marker_of(const uint8_t* at, const uint8_t* end, int64_t last) noexcept nogil:
    """Return the type of the control record in a batch with one record; `UNREADABLE` if it cannot be read so."""
    cdef const uint8_t* position = at + PLAIN_HEADER
    cdef Row row
    if load32(at + COUNT_AT) != 1 or load16(at + CHECKED_AT) & CODEC:
        return UNREADABLE
    if read_row(&position, end, -1, last, &row) or position != end or row.key.size < 4 or row.key.data[0] > 0x7F:
        return UNREADABLE
    return load16(row.key.data + 2)


def find_batches(
    type kind, str topic, int32_t partition, buffer, Py_ssize_t position, int64_t next_offset, list found,
    list upcoming=None, set aborted=None,
):
    """Append the batches from `position` on to `found`, as instances of `kind`, for a reader at `next_offset`.

    Return the position where it stopped, the offset after the last batch, and the leader epoch of the last one that
    was left out and has one, else -1. Stop at the end and before a batch that is incomplete, invalid, of an old
    format, empty, or before `next_offset`; without `upcoming` and `aborted` also before one of a transaction.

    `upcoming` has the first offset and the producer id of each aborted transaction, the nearest one last, and `aborted`
    the ids of producers inside of one; both are kept up to date. Control batches and those of aborted transactions are
    left out. Stop before an unreadable control batch of a producer in `aborted`.
    """
    cdef int64_t end_offset = next_offset
    cdef int32_t left_out = -1
    view = memoryview(buffer)
    cdef Py_ssize_t end = PyMemoryView_GET_BUFFER(view).len
    cdef const uint8_t* start = <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf
    cdef const uint8_t* at
    cdef int64_t size, base, last, count
    cdef int32_t attributes
    cdef int marker
    cdef bint is_left_out
    cdef PlacedBatch batch
    if not issubclass(kind, PlacedBatch):
        raise TypeError(f"{kind.__name__} is no PlacedBatch")
    while 0 <= position <= end - PLAIN_HEADER:
        at = start + position
        size = <int64_t>load32(at + LENGTH_AT) + BEHIND_LENGTH
        base = load64(at)
        last = load32(at + LAST_DELTA_AT)
        count = load32(at + COUNT_AT)
        attributes = load16(at + CHECKED_AT)
        if at[MAGIC_AT] != 2 or size < PLAIN_HEADER:
            break
        if size > end - position or count <= 0 or not 0 <= base < MAX_BASE_OFFSET or base + last + 1 <= end_offset:
            break
        if attributes & OF_TRANSACTIONS:
            if upcoming is None or aborted is None:
                break
            while upcoming and <int64_t>upcoming[len(upcoming) - 1][0] <= base + last:
                aborted.add(upcoming.pop()[1])
            if aborted and load64(at + PRODUCER_AT) in aborted:
                if attributes & OF_CONTROL:
                    marker = marker_of(at, at + size, last)
                    if marker == UNREADABLE:
                        break
                    if marker == ABORT_MARKER:
                        aborted.discard(load64(at + PRODUCER_AT))
                is_left_out = True
            else:
                is_left_out = attributes & OF_CONTROL
            if is_left_out:
                if load32(at + EPOCH_AT) >= 0:
                    left_out = load32(at + EPOCH_AT)
                end_offset = base + last + 1
                position += size
                continue
        batch = kind.__new__(kind)
        batch.topic = topic
        batch.partition = partition
        batch.buffer = buffer
        batch.position = position
        batch.base_offset = base
        batch.next_offset = end_offset = base + last + 1
        batch.count = count
        batch.size = size
        batch.leader_epoch = load32(at + EPOCH_AT)
        batch.dense = count == last + 1
        found.append(batch)
        position += size
    return position, end_offset, left_out
