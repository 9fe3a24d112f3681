"""Chooses the twin: the compiled one where it was built, the Python one otherwise or with PYCLIENT_PURE=1."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

# A library that was built from older sources lacks a name: that is an ImportError, too.
if TYPE_CHECKING or os.environ.get("PYCLIENT_PURE") == "1":
    from pyclient.records._pure import (
        IMPLEMENTATION,
        BatchBuilder,
        BatchOutcome,
        ColumnsBuilder,
        OutcomeHandle,
        Record,
        RecordAppender,
        RecordChain,
        RecordHandle,
        RecordSender,
        TopicLanes,
        decode_batch,
        decode_varint,
        encode_varint,
        murmur2,
        partition_for_key,
        record_size_bound,
        rows_by_partition,
    )
else:
    try:
        from pyclient.records._speedups import (
            IMPLEMENTATION,
            BatchBuilder,
            BatchOutcome,
            ColumnsBuilder,
            OutcomeHandle,
            Record,
            RecordAppender,
            RecordChain,
            RecordHandle,
            RecordSender,
            TopicLanes,
            decode_batch,
            decode_varint,
            encode_varint,
            murmur2,
            partition_for_key,
            record_size_bound,
            rows_by_partition,
        )
    except ImportError:
        from pyclient.records._pure import (
            IMPLEMENTATION,
            BatchBuilder,
            BatchOutcome,
            ColumnsBuilder,
            OutcomeHandle,
            Record,
            RecordAppender,
            RecordChain,
            RecordHandle,
            RecordSender,
            TopicLanes,
            decode_batch,
            decode_varint,
            encode_varint,
            murmur2,
            partition_for_key,
            record_size_bound,
            rows_by_partition,
        )

__all__ = [
    "IMPLEMENTATION",
    "BatchBuilder",
    "BatchOutcome",
    "ColumnsBuilder",
    "OutcomeHandle",
    "Record",
    "RecordAppender",
    "RecordChain",
    "RecordHandle",
    "RecordSender",
    "TopicLanes",
    "decode_batch",
    "decode_varint",
    "encode_varint",
    "murmur2",
    "partition_for_key",
    "record_size_bound",
    "rows_by_partition",
]
