"""The record codec in Python, with the same names, arguments, errors and bytes as the compiled `_speedups`.

Type checkers use it for both.
"""

from __future__ import annotations

from pyclient.records._pure.building import BatchBuilder
from pyclient.records._pure.column_reading import ColumnsBuilder, release_spare_memory
from pyclient.records._pure.encoding import record_size_bound
from pyclient.records._pure.hashing import murmur2, partition_for_key, rows_by_partition
from pyclient.records._pure.placing import PlacedBatch, find_batches
from pyclient.records._pure.reading import RecordChain, decode_batch, decode_payload
from pyclient.records._pure.record import Record, RecordHandle
from pyclient.records._pure.sending import BatchOutcome, OpenBatches, OutcomeHandle, RecordAppender, RecordSender
from pyclient.records._pure.validating import check_rows, count_intact, validate_records
from pyclient.records.varints import decode_varint, encode_varint

IMPLEMENTATION = "pure"

__all__ = [
    "IMPLEMENTATION",
    "BatchBuilder",
    "BatchOutcome",
    "ColumnsBuilder",
    "OpenBatches",
    "OutcomeHandle",
    "PlacedBatch",
    "Record",
    "RecordAppender",
    "RecordChain",
    "RecordHandle",
    "RecordSender",
    "check_rows",
    "count_intact",
    "decode_batch",
    "decode_payload",
    "decode_varint",
    "encode_varint",
    "find_batches",
    "murmur2",
    "partition_for_key",
    "record_size_bound",
    "release_spare_memory",
    "rows_by_partition",
    "validate_records",
]
