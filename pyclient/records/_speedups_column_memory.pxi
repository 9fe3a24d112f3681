# The memory of columns: growable blocks that are exported as buffers and then reused.

cdef enum:
    OUT_OF_MEMORY = 100  # not a problem number of a record


cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>

    /* A large table does not fit the CPU's cache. Non-temporal stores take half as long: a line is not read before it
       is written, and the source stays in the cache. */
    static inline void copy_around_cache(char *to, const char *from, int64_t size) {
        int64_t head = -(intptr_t)to & 15;
        if (head > size) head = size;
        memcpy(to, from, head);
        to += head, from += head, size -= head;
        for (; size >= 64; size -= 64, to += 64, from += 64) {
            __builtin_prefetch(from + 1024);
            for (int at = 0; at < 64; at += 16)
                _mm_stream_si128((__m128i *)(to + at), _mm_loadu_si128((const __m128i *)(from + at)));
        }
        memcpy(to, from, size);
    }

    static inline void end_of_copies(void) { _mm_sfence(); }
    #else
    static inline void copy_around_cache(char *to, const char *from, int64_t size) { memcpy(to, from, size); }
    static inline void end_of_copies(void) {}
    #endif
    """
    void copy_around_cache(char* to, const char* source, int64_t size) noexcept nogil
    void end_of_copies() noexcept nogil


cdef enum:
    LARGE_TABLE = 2 * 1024 * 1024  # bytes: more than a core's own cache
    LONG_STRING = 256


# A growable array of bytes; `Memory` exports it once it is complete.
cdef struct Block:
    char* data
    int64_t used
    int64_t capacity


# A new page costs more than to fill it with records, so a few blocks are kept for the next columns. The GIL protects
# them; without the GIL a lock of their own does.
cdef enum:
    SPARE_BLOCKS = 16
    SMALLEST_BLOCK = 64
    LARGE_BLOCK = 4 * 1024 * 1024
    SMALLEST_SPARE = 64 * 1024
    FAR_TOO_LARGE = 32
    MOST_SPARE_BYTES = 32 * 1024 * 1024

cdef Block spare_blocks[SPARE_BLOCKS]
cdef int spare_count = 0
cdef int64_t spare_bytes = 0


cdef int take_block(int64_t size, Block* block) noexcept with gil:
    """Return an empty block of at least `size` bytes: the largest spare one that is not far too large, or a new one."""
    global spare_count, spare_bytes
    cdef int at, best = -1
    lock_spare_blocks()
    for at in range(spare_count):
        if size <= spare_blocks[at].capacity <= FAR_TOO_LARGE * size:
            if best < 0 or spare_blocks[at].capacity > spare_blocks[best].capacity:
                best = at
    if best >= 0:
        block[0] = spare_blocks[best]
        spare_count -= 1
        spare_blocks[best] = spare_blocks[spare_count]
        spare_bytes -= block.capacity
    unlock_spare_blocks()
    if best < 0:
        block.capacity = rounded(size)
        block.data = <char*>malloc(block.capacity)
    block.used = 0
    return OUT_OF_MEMORY if block.data == NULL else 0


cdef inline int64_t rounded(int64_t size) noexcept nogil:
    """Round up to one of few sizes, so that spare blocks can be reused."""
    cdef int64_t capacity = SMALLEST_SPARE
    if size <= SMALLEST_SPARE:
        return size
    while capacity < size:
        capacity *= 2
    return capacity


cdef void give_block(Block* block) noexcept with gil:
    global spare_count, spare_bytes
    cdef bint kept
    lock_spare_blocks()
    kept = (
        block.capacity >= SMALLEST_SPARE
        and spare_count < SPARE_BLOCKS
        and spare_bytes + block.capacity <= MOST_SPARE_BYTES
    )
    if kept:
        spare_blocks[spare_count] = block[0]
        spare_count += 1
        spare_bytes += block.capacity
    unlock_spare_blocks()
    if not kept:
        free(block.data)
    block.data = NULL


def release_spare_memory():
    """Free the memory that is kept for the next columns."""
    global spare_count, spare_bytes
    lock_spare_blocks()
    while spare_count:
        spare_count -= 1
        free(spare_blocks[spare_count].data)
    spare_bytes = 0
    unlock_spare_blocks()


cdef int grow(Block* block, int64_t extra) noexcept nogil:
    """Enlarge the block for `extra` more bytes; not 0 if out of memory.

    Unused pages cost nothing but each step copies the block, so it grows in large steps.
    """
    cdef Block larger
    cdef int factor = 4 if block.capacity < LARGE_BLOCK else 2
    if take_block(max(block.used + extra, factor * block.capacity, SMALLEST_BLOCK), &larger):
        return OUT_OF_MEMORY
    larger.used = block.used
    if block.data != NULL:
        memcpy(larger.data, block.data, block.used)
        give_block(block)
    block[0] = larger
    return 0


cdef inline int reserve(Block* block, int64_t extra) noexcept nogil:
    return 0 if extra <= block.capacity - block.used else grow(block, extra)


cdef inline void push32(Block* block, int32_t value) noexcept nogil:
    (<int32_t*>(block.data + block.used))[0] = value
    block.used += 4


cdef inline void push64(Block* block, int64_t value) noexcept nogil:
    (<int64_t*>(block.data + block.used))[0] = value
    block.used += 8


cdef inline int32_t* as_int32(Block* block) noexcept nogil:
    return <int32_t*>block.data


@cython.final
cdef class Memory:
    """A complete block, exported as a buffer."""

    cdef Block block

    def __dealloc__(self):
        if self.block.data != NULL:
            give_block(&self.block)

    def __getbuffer__(self, Py_buffer* view, int flags):
        data = self.block.data if self.block.data != NULL else <char*>b""
        PyBuffer_FillInfo(view, self, data, self.block.used, 1, flags)


cdef object finish(Block* block):
    cdef Memory memory = Memory()
    memory.block = block[0]
    block[0] = EMPTY_BLOCK
    return memoryview(memory)


cdef Block EMPTY_BLOCK  # zero-initialized by C
