"""Record batches: writing, reading, compressing and checking them. Compiled where possible, the same in Python."""

from __future__ import annotations

from pyclient.records.batch import (
    HEADER_SIZE,
    MAX_BATCH_SIZE,
    BatchHeader,
    check_crc,
    iter_batches,
    read_header,
    stamp_offsets,
    stamp_producer,
    stamp_timestamp,
)
from pyclient.records.builder import build_batch, decode_columns, decode_key_values, encode_columns
from pyclient.records.columns import BinaryColumn, HeaderColumns, RecordColumns
from pyclient.records.compression import LEVELS, MAX_DECOMPRESSED, Compression, compress, decompress
from pyclient.records.control import ControlType, control_key, control_type
from pyclient.records.implementation import (
    IMPLEMENTATION,
    BatchBuilder,
    ColumnsBuilder,
    Record,
    RecordHandle,
    decode_batch,
    decode_varint,
    encode_varint,
    murmur2,
    partition_for_key,
    record_size_bound,
    rows_by_partition,
)

__all__ = [
    "HEADER_SIZE",
    "IMPLEMENTATION",
    "LEVELS",
    "MAX_BATCH_SIZE",
    "MAX_DECOMPRESSED",
    "BatchBuilder",
    "BatchHeader",
    "BinaryColumn",
    "ColumnsBuilder",
    "Compression",
    "ControlType",
    "HeaderColumns",
    "Record",
    "RecordColumns",
    "RecordHandle",
    "build_batch",
    "check_crc",
    "compress",
    "control_key",
    "control_type",
    "decode_batch",
    "decode_columns",
    "decode_key_values",
    "decode_varint",
    "decompress",
    "encode_columns",
    "encode_varint",
    "iter_batches",
    "murmur2",
    "partition_for_key",
    "read_header",
    "record_size_bound",
    "rows_by_partition",
    "stamp_offsets",
    "stamp_producer",
    "stamp_timestamp",
]
