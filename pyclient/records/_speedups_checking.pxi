# Check CRC-32C and records of many batches in one call, with the processor's CRC instruction if it has one.

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>

    /* Each instruction takes 8 bytes and depends on the previous one, so three stretches are computed in parallel. The
       CRC up to a stretch is then shifted past it (the CRC of that many zero bytes), with a table per byte. */
    #define CRC_STRETCH 4096
    #define CRC_LINE 64

    static uint32_t crc_after_stretch[4][256];

    __attribute__((target("sse4.2"))) static uint32_t crc_of_zeros(uint32_t sum) {
        uint64_t crc = sum;
        for (int done = 0; done < CRC_STRETCH; done += 8) crc = _mm_crc32_u64(crc, 0);
        return (uint32_t)crc;
    }

    static int crc_begin(void) {
        if (!__builtin_cpu_supports("sse4.2")) return 0;
        for (int place = 0; place < 4; place++)
            for (uint32_t byte = 1; byte < 256; byte++) {
                uint32_t *row = crc_after_stretch[place], rest = byte & (byte - 1);
                row[byte] = rest ? row[rest] ^ row[byte ^ rest] : crc_of_zeros(byte << (8 * place));
            }
        return 1;
    }

    static inline uint32_t crc_moved(uint32_t sum) {
        return crc_after_stretch[0][sum & 255] ^ crc_after_stretch[1][sum >> 8 & 255]
            ^ crc_after_stretch[2][sum >> 16 & 255] ^ crc_after_stretch[3][sum >> 24];
    }

    static inline uint64_t crc_word(const uint8_t *at) {
        uint64_t word;
        memcpy(&word, at, 8);
        return word;
    }

    __attribute__((target("sse4.2"))) static uint32_t crc_of(const uint8_t *at, int64_t size) {
        uint64_t first = 0xFFFFFFFF;
        for (; size >= 3 * CRC_STRETCH; size -= 3 * CRC_STRETCH, at += 3 * CRC_STRETCH) {
            uint64_t second = 0, third = 0;
            for (int done = 0; done < CRC_STRETCH; done += CRC_LINE) {
                const uint8_t *line = at + done;
                for (int place = 0; place < 3; place++)  /* prefetching from main memory doubles the speed */
                    __builtin_prefetch(line + (3 + place) * CRC_STRETCH);
                for (const uint8_t *end = line + CRC_LINE; line < end; line += 8) {
                    first = _mm_crc32_u64(first, crc_word(line));
                    second = _mm_crc32_u64(second, crc_word(line + CRC_STRETCH));
                    third = _mm_crc32_u64(third, crc_word(line + 2 * CRC_STRETCH));
                }
            }
            first = crc_moved(crc_moved((uint32_t)first) ^ (uint32_t)second) ^ (uint32_t)third;
        }
        for (; size >= 8; size -= 8, at += 8) first = _mm_crc32_u64(first, crc_word(at));
        for (; size > 0; size--, at++) first = _mm_crc32_u8((uint32_t)first, *at);
        return ~(uint32_t)first;
    }
    #else
    static int crc_begin(void) { return 0; }
    static uint32_t crc_of(const uint8_t *at, int64_t size) { return 0; }
    #endif
    """
    int crc_begin() noexcept nogil
    uint32_t crc_of(const uint8_t* at, int64_t size) noexcept nogil

cdef bint can_sum = crc_begin()


cdef bint has_checksum() noexcept:
    """Return True if the processor has what `checksum_of` needs."""
    return can_sum


cdef uint32_t checksum_of(const uint8_t* at, int64_t size) noexcept nogil:
    """Return the CRC-32C of memory."""
    return crc_of(at, size)


cdef enum:
    # Checking so many takes 10 us. The consumer's network thread needs the GIL to read the socket, and `poll` releases
    # it nowhere else. With 512 KiB a poll of 500 records of 1 KB (500 KB) kept it: network and user took turns
    # (docs/measurements.md, "Records of 1 KB as objects").
    WITHOUT_GIL_BYTES = 128 * 1024


cdef struct Checked:
    const uint8_t* at
    const uint8_t* end
    const uint8_t* rows  # the records, if they are not compressed; else NULL
    int64_t count
    int64_t last
    uint32_t wanted
    bint sums


def count_intact(batches, crcs=True):
    """Return how many batches (`PlacedBatch`), counted from the first, have a correct CRC and readable records.

    Mark them as `checked`, and as `readable` unless they are compressed. Stop before the first that is corrupt,
    incomplete or of an old format; `check_crc` and `check_rows` raise the error for it. With `crcs` False check only
    the records. Release the GIL for 512 KiB or more.
    """
    cdef Py_ssize_t number = 0, intact = 0, count = len(batches)
    cdef int64_t size = 0
    cdef bint sums = crcs
    cdef PlacedBatch batch
    cdef Checked* checked
    cdef list kept = []
    if sums and not can_sum:
        return count_slowly(batches)
    checked = <Checked*>malloc(max(count, 1) * sizeof(Checked))
    if checked == NULL:
        raise MemoryError
    try:
        for batch in batches:
            view = memoryview(batch.buffer)
            if not describe_checked(batch, view, sums, checked + number):
                break
            kept.append(view)
            size += batch.size
            number += 1
        if size < WITHOUT_GIL_BYTES:
            while intact < number and is_intact(checked + intact):
                intact += 1
        else:
            with nogil:
                while intact < number and is_intact(checked + intact):
                    intact += 1
        for number in range(intact):
            batch = batches[number]
            batch.checked = batch.checked or sums
            batch.readable = batch.readable or checked[number].rows != NULL
    finally:
        free(checked)
    return intact


cdef bint describe_checked(PlacedBatch batch, view, bint sums, Checked* checked) except -1:
    """Return False for a batch of another format, an incomplete one, or an impossible record count."""
    cdef const uint8_t* at = place_of(batch, view)
    if at == NULL:
        return False
    checked.at = at
    checked.end = at + batch.size
    checked.sums = sums and not batch.checked
    checked.wanted = <uint32_t>load32(at + CRC_AT)
    checked.rows = NULL
    if load16(at + CHECKED_AT) & CODEC or batch.readable:
        return True
    checked.rows = at + PLAIN_HEADER
    checked.count = batch.count
    checked.last = load32(at + LAST_DELTA_AT)
    if not 0 <= checked.count <= (batch.size - PLAIN_HEADER) // SMALLEST_ROW or checked.count - 1 > checked.last:
        return False
    return 0 <= batch.base_offset <= INT64_MAX - max(checked.last, 0)


cdef bint is_intact(Checked* checked) noexcept nogil:
    cdef int64_t number
    cdef const uint8_t* at = checked.rows
    if checked.sums and crc_of(checked.at + CHECKED_AT, checked.end - checked.at - CHECKED_AT) != checked.wanted:
        return False
    return at == NULL or not find_bad_row(&at, checked.end, checked.count, checked.last, &number)


cdef extern from *:
    """
    /* Read a number of up to three bytes into `x`; return NULL for longer ones, which `read_row` handles. */
    #define SMALL_VARINT(x) do { \
        uint32_t byte = *at++; \
        x = byte & 0x7F; \
        if (byte > 0x7F) { \
            byte = *at++; \
            x |= (byte & 0x7F) << 7; \
            if (byte > 0x7F) { \
                byte = *at++; \
                x |= (byte & 0x7F) << 14; \
                if (byte > 0x7F) return NULL; \
            } \
        } } while (0)

    /* Return the position of the next record if this one is valid, without headers and with short numbers; else NULL,
       and `read_row` decides. Takes a third of its time. Nothing past `end` is read: the numbers up to the key's size
       fit the 16 bytes checked first, and the check of the record's end covers the fields. */
    static inline const uint8_t *skip_simple_row(
        const uint8_t *at, const uint8_t *end, int64_t *previous, int64_t last
    ) {
        uint32_t size, delta, ignored, key, value;
        const uint8_t *next_row;
        if (end - at < 16) return NULL;
        SMALL_VARINT(size);
        if (size & 1 || (size >>= 1) > end - at) return NULL;
        next_row = at + size;
        at++;
        SMALL_VARINT(ignored);
        SMALL_VARINT(delta);
        if (delta & 1 || (delta >>= 1) <= *previous || delta > last) return NULL;
        SMALL_VARINT(key);
        if (key != 1) {
            if (key & 1 || at > next_row || (key >>= 1) > next_row - at) return NULL;
            at += key;
        }
        if (end - at < 4) return NULL;
        SMALL_VARINT(value);
        if (value != 1) {
            if (value & 1 || at > next_row || (value >>= 1) > next_row - at) return NULL;
            at += value;
        }
        if (at >= end || *at++ || at != next_row) return NULL;
        *previous = delta;
        return next_row;
    }
    """
    const uint8_t* skip_simple_row(
        const uint8_t* at, const uint8_t* end, int64_t* previous, int64_t last
    ) noexcept nogil


cdef int find_bad_row(
    const uint8_t** at, const uint8_t* end, int64_t count, int64_t last, int64_t* number
) noexcept nogil:
    """Return the problem of row `number`, LEFTOVER with row `count` for bytes after the last, 0 if all are valid."""
    cdef Row row
    cdef int problem
    cdef int64_t seen = 0, previous = -1
    cdef const uint8_t* next
    cdef const uint8_t* position = at[0]
    number[0] = 0
    while seen < count:
        next = skip_simple_row(position, end, &previous, last)
        if next == NULL:
            problem = read_row(&position, end, previous, last, &row)
            if problem:
                number[0] = seen
                return problem
            previous = row.offset_delta
        else:
            position = next
        seen += 1
    number[0] = seen
    at[0] = position
    return 0 if position == end else LEFTOVER


def check_rows(payload):
    """Raise `CorruptRecord` unless every record of a payload is readable; create no `Record` objects."""
    data = memoryview(payload.data)
    cdef const uint8_t* at = <const uint8_t*>PyMemoryView_GET_BUFFER(data).buf
    cdef const uint8_t* end = at + PyMemoryView_GET_BUFFER(data).len
    cdef int64_t number, count = payload.count
    cdef int problem = find_bad_row(&at, end, count, payload.last_offset_delta, &number)
    if problem and number < count:
        raise payload.bad_record(number, problem)
    if problem:
        raise payload.bytes_behind(end - at)


cdef const uint8_t* place_of(PlacedBatch batch, view):
    """Return the address of a batch; NULL if it is of an old format or incomplete."""
    cdef const uint8_t* at = <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf + batch.position
    if batch.position < 0 or batch.size < PLAIN_HEADER:
        return NULL
    if batch.size > PyMemoryView_GET_BUFFER(view).len - batch.position or at[MAGIC_AT] != 2:
        return NULL
    return at


cdef Py_ssize_t count_slowly(batches) except -1:
    cdef Py_ssize_t intact = 0
    cdef PlacedBatch batch
    for batch in batches:
        if batch.header.magic != 2:
            break
        try:
            if not batch.checked:
                check_crc(batch.buffer, batch.position, batch.header)
        except CorruptRecord:
            break
        if count_intact([batch], crcs=False) == 0:
            break
        batch.checked = True
        intact += 1
    return intact
