"""Encode, decode, compress and check record batches; a compiled codec with an equivalent in Python (_pure/).

`BatchBuilder` appends records to a batch, `BatchHeader` has the fields of a batch's header, and a batch is decoded to
`Record` objects or `RecordColumns`. `Compression` has Kafka's codecs. `implementation.py` chooses between the two
record codecs and lists their names.
"""

from __future__ import annotations

from pyclient.records import implementation
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
from pyclient.records.compression import (
    LEVELS,
    MAX_DECOMPRESSED,
    Compression,
    DecompressedTooLarge,
    compress,
    decompress,
    lz4_blocks_depend,
)
from pyclient.records.control import ControlType, control_key, control_type
from pyclient.records.implementation import *
from pyclient.records.implementation import log_pure_codec
from pyclient.records.payload import KEYLESS, MOST_NAMED, OUT_OF_RANGE

__all__ = [
    "HEADER_SIZE",
    "KEYLESS",
    "LEVELS",
    "MAX_BATCH_SIZE",
    "MAX_DECOMPRESSED",
    "MOST_NAMED",
    "OUT_OF_RANGE",
    "BatchHeader",
    "BinaryColumn",
    "Compression",
    "ControlType",
    "DecompressedTooLarge",
    "HeaderColumns",
    "RecordColumns",
    "build_batch",
    "check_crc",
    "compress",
    "control_key",
    "control_type",
    "decode_columns",
    "decode_key_values",
    "decompress",
    "encode_columns",
    "iter_batches",
    "log_pure_codec",
    "lz4_blocks_depend",
    "read_header",
    "stamp_offsets",
    "stamp_producer",
    "stamp_timestamp",
]
__all__ += implementation.__all__
