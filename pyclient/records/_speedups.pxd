# What the compiled part of the producer uses of the codec; the classes and functions are in the .pxi files.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t


@cython.no_gc
cdef class RecordHandle:
    cdef public object batch
    cdef public Py_ssize_t index
    cdef public int64_t timestamp_ms


cdef object append_record(object builder, int64_t timestamp_ms, object key, object value, object headers)
cdef uint32_t hash_object(object key) except? 0
cdef bint has_checksum() noexcept
cdef uint32_t checksum_of(const uint8_t* at, int64_t size) noexcept nogil
