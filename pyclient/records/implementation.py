"""Chooses the twin: the compiled one where it was built, the Python one otherwise or with PYCLIENT_PURE=1."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

PURE_WANTED: Final = os.environ.get("PYCLIENT_PURE") == "1"

if TYPE_CHECKING or PURE_WANTED:
    from pyclient.records import _pure as twin

    IMPLEMENTATION = "pure"
else:
    try:
        from pyclient.records import _speedups as twin

        IMPLEMENTATION = twin.IMPLEMENTATION
    except (ImportError, AttributeError):
        from pyclient.records import _pure as twin

        IMPLEMENTATION = "pure"

Record = twin.Record
RecordHandle = twin.RecordHandle
BatchBuilder = twin.BatchBuilder
ColumnsBuilder = twin.ColumnsBuilder
decode_batch = twin.decode_batch
decode_varint = twin.decode_varint
encode_varint = twin.encode_varint
murmur2 = twin.murmur2
partition_for_key = twin.partition_for_key
record_size_bound = twin.record_size_bound
