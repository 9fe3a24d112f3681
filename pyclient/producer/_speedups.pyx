# cython: language_level=3, wraparound=False, cdivision=True, freethreading_compatible=True
"""The producer's work per record, compiled: the names of `_pure.py`, and the fast path of single records."""

import types
from os import strerror

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject, PyTypeObject
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pyclient.records._speedups cimport RecordHandle, append_record, checksum_of, has_checksum, hash_object
from pyclient.records._wire cimport (
    CHECKED_AT, ROOM_FOR_HEADER, Row, field_size, loads_begin, point_to, stores_done, untrack_handle, varint_size,
    write_field, write_varint,
)

from pyclient.records._speedups import ATOMIC
from pyclient.types import RecordMetadata

cdef bint atomic = ATOMIC
cdef tuple NO_ARGUMENTS = ()

include "_sending.pxi"
include "_fast_path_record.pxi"
include "_fast_path_reader.pxi"
include "_fast_path_waiter.pxi"
include "_fast_path.pxi"
include "_fast_path_lock.pxi"
