# Validate the records of a batch before a broker appends it, without decoding them.

cdef extern from *:
    """
    typedef struct {
        int64_t timestamp_delta;
        int has_key;
    } PlainRow;

    /* A varint of at most three bytes, not unzigzagged; NULL if it is longer. */
    static inline const uint8_t *short_varint(const uint8_t *at, uint32_t *value) {
        uint32_t byte = *at++;
        *value = byte;
        if (byte < 0x80) return at;
        byte = *at++;
        *value += (byte << 7) - 0x80;
        if (byte < 0x80) return at;
        byte = *at++;
        *value += (byte << 14) - 0x4000;
        return byte < 0x80 ? at : NULL;
    }

    /* Return the end of a valid record without headers and with short numbers; NULL for others, for `read_row`. Reads
       before the check of the record's end stay in the batch: it has at least 16 more bytes. */
    static inline const uint8_t *plain_record(
        const uint8_t *at, const uint8_t *batch_end, int64_t number, PlainRow *row
    ) {
        uint32_t size, timestamp, offset, length;
        const uint8_t *end;
        if (batch_end - at < 16 || !(at = short_varint(at, &size)) || size & 1) return NULL;
        if ((int64_t)(size >> 1) > batch_end - at) return NULL;
        end = at + (size >> 1);
        if (!(at = short_varint(at + 1, &timestamp)) || !(at = short_varint(at, &offset))) return NULL;
        if (offset != 2 * (uint64_t)number || !(at = short_varint(at, &length))) return NULL;
        row->timestamp_delta = (int64_t)(timestamp >> 1) ^ -(int64_t)(timestamp & 1);
        row->has_key = !(length & 1);
        if (length & 1) {
            if (length != 1) return NULL;
        } else {
            if ((int64_t)(length >> 1) > end - at) return NULL;
            at += length >> 1;
        }
        if (batch_end - at < 3 || !(at = short_varint(at, &length))) return NULL;
        if (length & 1) {
            if (length != 1) return NULL;
            length = 0;
        }
        if ((int64_t)(length >> 1) + 1 != end - at || at[length >> 1]) return NULL;
        return end;
    }
    """
    ctypedef struct PlainRow:
        int64_t timestamp_delta
        int has_key

    const uint8_t* plain_record(const uint8_t* at, const uint8_t* end, int64_t number, PlainRow* row) noexcept nogil


cdef struct Validated:
    int64_t max_timestamp
    int64_t refused  # records that violate a topic option
    int64_t number  # of valid records
    int problem  # of the next record


cdef enum:
    KEYLESS = 1
    OUT_OF_RANGE = 2
    MOST_NAMED = 1000
    WITHOUT_GIL = 1048576


cdef inline bint out_of_range(int64_t timestamp, int64_t now, int64_t before, int64_t after) noexcept nogil:
    """Compare as Kafka does, including overflow; -1 means no timestamp."""
    cdef int64_t age = <int64_t>(<uint64_t>now - <uint64_t>timestamp)
    return timestamp != -1 and (age > before or <int64_t>(0 - <uint64_t>age) > after)


cdef const uint8_t* walk_records(
    const uint8_t* at, const uint8_t* end, int64_t count, int64_t base, bint keyed, int64_t now, int64_t before,
    int64_t after, Validated* found
) noexcept nogil:
    """Return the end of the last readable record."""
    cdef Row row
    cdef PlainRow plain
    cdef const uint8_t* next_row
    cdef int64_t timestamp, latest = -1, refused = 0, number = 0
    cdef int problem = 0
    while number < count:
        next_row = plain_record(at, end, number, &plain)
        if next_row != NULL:
            at = next_row
        else:
            problem = read_row(&at, end, number - 1, number, &row)
            if problem:
                break
            plain.timestamp_delta = row.timestamp_delta
            plain.has_key = row.key.size >= 0
        timestamp = add64(base, plain.timestamp_delta)
        if timestamp > latest:
            latest = timestamp
        refused += (keyed and not plain.has_key) or out_of_range(timestamp, now, before, after)
        number += 1
    found.max_timestamp = latest
    found.refused = refused
    found.number = number
    found.problem = problem
    return at


def validate_records(
    data,
    Py_ssize_t position,
    int64_t count,
    int64_t base_timestamp,
    bint needs_keys,
    int64_t now_ms,
    int64_t before_ms,
    int64_t after_ms,
):
    """Check that `data` contains exactly `count` records from `position` to its end, and check each of them.

    Return the latest timestamp (-1 if none has one), the number of refused records, and the first thousand of them as
    (index, `KEYLESS` or `OUT_OF_RANGE`, timestamp). Offset deltas must be 0, 1, 2, ...; timestamps may be at most
    `before_ms` before and `after_ms` after `now_ms`; -1 means no timestamp. The GIL is released for 1 MiB or more.
    Raise `CorruptRecord` for an unreadable record and for a different number of records.
    """
    view = memoryview(data)
    cdef Py_ssize_t size = PyMemoryView_GET_BUFFER(view).len
    cdef const uint8_t* start = <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf
    cdef const uint8_t* at
    cdef const uint8_t* end = start + size
    cdef Validated found
    if not 0 <= position <= size:
        raise CorruptRecord("the batch ends early")
    if count < 0 or count > (size - position) // SMALLEST_ROW:
        raise CorruptRecord(f"{count} records cannot be in {size - position} bytes")
    start += position
    if size - position < WITHOUT_GIL:
        at = walk_records(start, end, count, base_timestamp, needs_keys, now_ms, before_ms, after_ms, &found)
    else:
        with nogil:
            at = walk_records(start, end, count, base_timestamp, needs_keys, now_ms, before_ms, after_ms, &found)
    if found.problem:
        raise CorruptRecord(bad_record_text(found.number, found.problem))
    if at != end:
        raise CorruptRecord(bytes_behind_text(end - at))
    if not found.refused:
        return found.max_timestamp, 0, ()
    named = name_refused(start, end, count, base_timestamp, needs_keys, now_ms, before_ms, after_ms)
    return found.max_timestamp, found.refused, named


cdef tuple name_refused(
    const uint8_t* at, const uint8_t* end, int64_t count, int64_t base, bint keyed, int64_t now, int64_t before,
    int64_t after
):
    cdef Row row
    cdef int64_t number, timestamp
    cdef list named = []
    for number in range(count):
        if len(named) == MOST_NAMED or read_row(&at, end, number - 1, number, &row):
            break
        timestamp = add64(base, row.timestamp_delta)
        if keyed and row.key.size < 0:
            named.append((number, KEYLESS, timestamp))
        elif out_of_range(timestamp, now, before, after):
            named.append((number, OUT_OF_RANGE, timestamp))
    return tuple(named)
