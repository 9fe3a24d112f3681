# cython: language_level=3, wraparound=False, cdivision=True, freethreading_compatible=True
"""The compiled record codec, with the same names, arguments, errors and bytes as `_pure`."""

import sys
import types
from array import array as new_array

cimport cython
from cpython cimport array
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from pyclient.records._wire cimport (
    CHECKED_AT, Field, ROOM_FOR_HEADER, Row, field_size, point_to, untrack, untrack_handle, varint_size, write_field,
    write_varint,
)

from pyclient.errors import CorruptRecord
from pyclient.records.batch import CONTROL, HEADER_SIZE, MAX_BATCH_SIZE, TRANSACTIONAL, check_crc, read_header, seal_batch
from pyclient.records.checks import as_bytes, header_pair, no_such_row, rows_outside
from pyclient.records.columns import BinaryColumn, HeaderColumns, RecordColumns
from pyclient.records.compression import MAX_DECOMPRESSED, Compression
from pyclient.records.crc import crc32c
from pyclient.records.payload import bad_record_text, bytes_behind_text, open_batch
from pyclient.records.restore import restore_record

IMPLEMENTATION = "cython"

cdef array.array INT32 = new_array("i")

include "_speedups_free_threading.pxi"
include "_speedups_wire.pxi"
include "_speedups_record.pxi"
include "_speedups_placing.pxi"
include "_speedups_checking.pxi"
include "_speedups_reading.pxi"
include "_speedups_column_rows.pxi"
include "_speedups_building.pxi"
include "_speedups_column_memory.pxi"
include "_speedups_column_reading.pxi"
include "_speedups_validating.pxi"
include "_speedups_hashing.pxi"
