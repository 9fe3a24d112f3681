# Encode and decode varints and records, without the GIL; every read is checked against the end first.

# Numbers of `payload.py`.
cdef enum:
    EARLY = 1
    VARINT = 2
    LENGTH = 3
    OFFSET = 4
    HEADERS = 5
    NAME = 6
    LEFTOVER = 7

# The last shift of a varint of 32 and of 64 bits.
cdef enum:
    BITS_32 = 28
    BITS_64 = 63

cdef extern from "Python.h":
    str PyUnicode_DecodeUTF8(const char* data, Py_ssize_t size, const char* errors)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cdef inline int read_varint(const uint8_t** at, const uint8_t* end, int last_shift, int64_t* result) noexcept nogil:
    cdef const uint8_t* position = at[0]
    cdef uint64_t byte, value
    cdef int shift = 0
    if position >= end:
        return EARLY
    byte = position[0]
    position += 1
    value = byte & 0x7F
    while byte > 0x7F:
        shift += 7
        if position >= end:
            return EARLY
        byte = position[0]
        position += 1
        if shift == last_shift and byte >> (4 if last_shift == BITS_32 else 1):
            return VARINT
        value |= (byte & 0x7F) << shift
    result[0] = <int64_t>((value >> 1) ^ (0 - (value & 1)))
    at[0] = position
    return 0


cdef inline int read_length(const uint8_t** at, const uint8_t* end, int smallest, int64_t* size) noexcept nogil:
    cdef int problem = read_varint(at, end, BITS_32, size)
    if problem:
        return problem
    if size[0] < smallest:
        return LENGTH
    if size[0] > end - at[0]:
        return EARLY
    return 0


cdef inline int read_field(const uint8_t** at, const uint8_t* end, int smallest, Field* field) noexcept nogil:
    cdef int problem = read_length(at, end, smallest, &field.size)
    field.data = at[0]
    if not problem and field.size > 0:
        at[0] += field.size
    return problem


cdef extern from *:
    """
    /* Validate UTF-8 as Python's strict decoder does, without the GIL. */
    static int is_utf8(const uint8_t *at, int64_t size) {
        const uint8_t *end = at + size;
        while (at < end) {
            uint8_t first = *at, second;
            int more;
            if (first < 0x80) { at++; continue; }
            if (first < 0xC2 || first > 0xF4) return 0;
            more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
            if (end - at <= more) return 0;
            second = at[1];
            if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
            if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
            for (int place = 1; place <= more; place++) if ((at[place] & 0xC0) != 0x80) return 0;
            at += more + 1;
        }
        return 1;
    }
    """
    int is_utf8(const uint8_t* at, int64_t size) noexcept nogil


cdef inline int skip_headers(const uint8_t** at, const uint8_t* end, int64_t count) noexcept nogil:
    cdef Field field
    cdef int problem
    cdef int64_t number
    for number in range(count):
        problem = read_field(at, end, 0, &field)
        if problem:
            return problem
        if not is_utf8(field.data, field.size):
            return NAME
        problem = read_field(at, end, -1, &field)
        if problem:
            return problem
    return 0


cdef inline int read_row(
    const uint8_t** at, const uint8_t* payload_end, int64_t previous, int64_t last, Row* row
) noexcept nogil:
    """Read and check one record; find problems in the same order as `_pure`."""
    cdef int64_t size
    cdef const uint8_t* position
    cdef const uint8_t* end
    cdef int problem = read_length(at, payload_end, 0, &size)
    if problem:
        return problem
    position = at[0]
    end = position + size
    if position == end:
        return EARLY
    position += 1
    problem = read_varint(&position, end, BITS_64, &row.timestamp_delta)
    if problem:
        return problem
    problem = read_varint(&position, end, BITS_32, &row.offset_delta)
    if problem:
        return problem
    if row.offset_delta <= previous or row.offset_delta > last:
        return OFFSET
    problem = read_field(&position, end, -1, &row.key)
    if problem:
        return problem
    problem = read_field(&position, end, -1, &row.value)
    if problem:
        return problem
    problem = read_varint(&position, end, BITS_32, &row.header_count)
    if problem:
        return problem
    row.headers = position
    if row.header_count:
        if row.header_count < 0 or row.header_count > (end - position) // 2:
            return HEADERS
        problem = skip_headers(&position, end, row.header_count)
        if problem:
            return problem
    if position != end:
        return LEFTOVER
    row.headers_size = end - row.headers
    at[0] = end
    return 0


cdef inline int64_t add64(int64_t left, int64_t right) noexcept nogil:
    """Add with wrap-around."""
    return <int64_t>(<uint64_t>left + <uint64_t>right)


def encode_varint(int64_t value):
    """Encode `value` (64 bits, signed) as a zigzag varint. Raise `OverflowError` if it is wider."""
    cdef uint8_t out[10]
    return PyBytes_FromStringAndSize(<const char*>out, write_varint(out, value) - out)


def decode_varint(data, Py_ssize_t position=0):
    """Return the zigzag varint (up to 64 bits) at `position` and the position after it. Raise `CorruptRecord`."""
    view = memoryview(data)
    cdef const uint8_t* start = <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf
    cdef const uint8_t* end = start + len(view)
    cdef const uint8_t* at = start + position
    cdef int64_t value = 0
    if not 0 <= position <= len(view):
        raise CorruptRecord("a varint ends early")
    problem = read_varint(&at, end, BITS_64, &value)
    if problem:
        raise CorruptRecord("a varint ends early" if problem == EARLY else "a varint has more than 64 bits")
    return value, at - start
