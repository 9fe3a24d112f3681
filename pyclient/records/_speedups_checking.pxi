# CRC-32C of many batches in one step without the GIL, by the processor's own instruction where it has one.

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>

    /* One instruction takes 8 bytes and has to wait for the one before it, so three stretches are summed side by side.
       The sum up to a stretch is then moved behind it: what so many zero bytes make of it, by tables of its bytes. */
    #define CRC_STRETCH 4096
    #define CRC_LINE 64

    static uint32_t crc_behind_stretch[4][256];

    __attribute__((target("sse4.2"))) static uint32_t crc_of_zeros(uint32_t sum) {
        uint64_t crc = sum;
        for (int done = 0; done < CRC_STRETCH; done += 8) crc = _mm_crc32_u64(crc, 0);
        return (uint32_t)crc;
    }

    static int crc_begin(void) {
        if (!__builtin_cpu_supports("sse4.2")) return 0;
        for (int place = 0; place < 4; place++)
            for (uint32_t byte = 1; byte < 256; byte++) {
                uint32_t *row = crc_behind_stretch[place], rest = byte & (byte - 1);
                row[byte] = rest ? row[rest] ^ row[byte ^ rest] : crc_of_zeros(byte << (8 * place));
            }
        return 1;
    }

    static inline uint32_t crc_moved(uint32_t sum) {
        return crc_behind_stretch[0][sum & 255] ^ crc_behind_stretch[1][sum >> 8 & 255]
            ^ crc_behind_stretch[2][sum >> 16 & 255] ^ crc_behind_stretch[3][sum >> 24];
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
                for (int place = 0; place < 3; place++)  /* it comes from main memory, twice as fast when asked for */
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


cdef struct Sum:
    const uint8_t* at
    int64_t size
    uint32_t wanted


def count_intact(batches):
    """How many batches (`PlacedBatch`), from the first on, have the CRC that they say; the GIL is free meanwhile.

    They are `checked` from then on. It ends in front of the first that is wrong or cut, or of an old format:
    `check_crc` says what is wrong with it, if anything is.
    """
    cdef Py_ssize_t number = 0, intact = 0, count = len(batches)
    cdef const uint8_t* at
    cdef PlacedBatch batch
    cdef Sum* sums
    cdef list kept = []
    if not can_sum:
        return count_slowly(batches)
    sums = <Sum*>malloc(max(count, 1) * sizeof(Sum))
    if sums == NULL:
        raise MemoryError
    try:
        for batch in batches:
            view = memoryview(batch.buffer)
            at = place_of(batch, view)
            if at == NULL:
                break
            kept.append(view)
            sums[number].at = at + CHECKED_AT
            sums[number].size = batch.size - CHECKED_AT
            sums[number].wanted = <uint32_t>load32(at + CRC_AT)
            number += 1
        with nogil:
            while intact < number and crc_of(sums[intact].at, sums[intact].size) == sums[intact].wanted:
                intact += 1
    finally:
        free(sums)
    note_checked(batches, intact)
    return intact


cdef const uint8_t* place_of(PlacedBatch batch, view):
    """Where a batch of the present format is in its buffer; NULL if it is another, or not all there."""
    cdef const uint8_t* at = <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf + batch.position
    if batch.position < 0 or batch.size < PLAIN_HEADER:
        return NULL
    if batch.size > PyMemoryView_GET_BUFFER(view).len - batch.position or at[MAGIC_AT] != 2:
        return NULL
    return at


cdef object note_checked(batches, Py_ssize_t intact):
    cdef PlacedBatch batch
    for batch in batches[:intact]:
        batch.checked = True


cdef Py_ssize_t count_slowly(batches) except -1:
    cdef Py_ssize_t intact = 0
    for batch in batches:
        if batch.header.magic != 2:
            break
        try:
            check_crc(batch.buffer, batch.position, batch.header)
        except CorruptRecord:
            break
        intact += 1
    note_checked(batches, intact)
    return intact
