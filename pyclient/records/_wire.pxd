# What the compiled modules of records/ and producer/ share without a call: fields of records in memory, and varints.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    /* Stores before `stores_done` are visible after `loads_begin` in another thread. x86 orders them anyway. */
    static inline void stores_done(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    static inline void loads_begin(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    """
    void stores_done() noexcept
    void loads_begin() noexcept

cdef extern from "Python.h":
    bint has_collector "PyObject_IS_GC" (object handle)
    void untrack "PyObject_GC_UnTrack" (void* object)


cdef inline void untrack_handle(object handle) noexcept:
    """Hide a new handle from the garbage collector, which would traverse millions of them for nothing.

    Only subclasses written in Python are tracked. A handle's own class does without the collector, because releasing an
    object of a class from another compiled module would track it again for a moment (docs/measurements.md, "A compiled
    module for each room").
    """
    if has_collector(handle):
        untrack(<void*>handle)


cdef enum:
    CHECKED_AT = 21  # what a batch's CRC covers begins here, with the attributes
    ROOM_FOR_HEADER = 61  # bytes before a batch's records


cdef struct Field:
    const uint8_t* data
    int64_t size  # -1 for null


cdef struct Row:
    int64_t timestamp_delta
    int64_t offset_delta
    Field key
    Field value
    const uint8_t* headers  # after their count
    int64_t headers_size
    int64_t header_count


cdef inline void point_to(Field* field, object data) noexcept:
    """Point `field` into `data`, which is bytes or None; the caller keeps a reference to it."""
    if data is None:
        field.size = -1
    else:
        field.data = <const uint8_t*>PyBytes_AS_STRING(data)
        field.size = PyBytes_GET_SIZE(data)


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


cdef inline uint8_t* write_varint(uint8_t* at, int64_t value) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while rest > 0x7F:
        at[0] = <uint8_t>(rest | 0x80)
        rest >>= 7
        at += 1
    at[0] = <uint8_t>rest
    return at + 1


cdef inline int64_t field_size(Field* field) noexcept nogil:
    return 1 if field.size < 0 else varint_size(field.size) + field.size


cdef inline uint8_t* write_field(uint8_t* at, Field* field) noexcept nogil:
    at = write_varint(at, field.size)
    if field.size > 0:
        memcpy(at, field.data, field.size)
        at += field.size
    return at
