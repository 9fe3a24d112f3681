"""Chooses the twin: the compiled one where it was built, the Python one otherwise or with PYCLIENT_PURE=1."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or os.environ.get("PYCLIENT_PURE") == "1":
    from pyclient.records._pure import (
        IMPLEMENTATION,
        BatchBuilder,
        BatchOutcome,
        ColumnsBuilder,
        OutcomeHandle,
        PlacedBatch,
        Record,
        RecordAppender,
        RecordChain,
        RecordHandle,
        RecordSender,
        TopicLanes,
        count_intact,
        decode_batch,
        decode_varint,
        encode_varint,
        find_batches,
        murmur2,
        partition_for_key,
        record_size_bound,
        release_spare_memory,
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
            PlacedBatch,
            Record,
            RecordAppender,
            RecordChain,
            RecordHandle,
            RecordSender,
            TopicLanes,
            count_intact,
            decode_batch,
            decode_varint,
            encode_varint,
            find_batches,
            murmur2,
            partition_for_key,
            record_size_bound,
            release_spare_memory,
            rows_by_partition,
        )
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "pyclient.records._speedups"
        if not absent:  # it was built from other sources
            import warnings

            warnings.warn(
                f"the compiled record codec cannot be used, and the Python one is many times slower: {error}. Build it "
                "again with `python setup.py build_ext --inplace` in the checkout, or install the package again; "
                "PYCLIENT_PURE=1 chooses the Python codec without this warning",
                RuntimeWarning,
                stacklevel=2,
            )
        from pyclient.records._pure import (
            IMPLEMENTATION,
            BatchBuilder,
            BatchOutcome,
            ColumnsBuilder,
            OutcomeHandle,
            PlacedBatch,
            Record,
            RecordAppender,
            RecordChain,
            RecordHandle,
            RecordSender,
            TopicLanes,
            count_intact,
            decode_batch,
            decode_varint,
            encode_varint,
            find_batches,
            murmur2,
            partition_for_key,
            record_size_bound,
            release_spare_memory,
            rows_by_partition,
        )


def compiled_only(name: str) -> Any:
    """Something that only the compiled twin has; None if the Python one serves."""
    if IMPLEMENTATION != "cython":
        return None
    return getattr(import_module("pyclient.records._speedups"), name)


__all__ = [
    "IMPLEMENTATION",
    "BatchBuilder",
    "BatchOutcome",
    "ColumnsBuilder",
    "OutcomeHandle",
    "PlacedBatch",
    "Record",
    "RecordAppender",
    "RecordChain",
    "RecordHandle",
    "RecordSender",
    "TopicLanes",
    "compiled_only",
    "count_intact",
    "decode_batch",
    "decode_varint",
    "encode_varint",
    "find_batches",
    "murmur2",
    "partition_for_key",
    "record_size_bound",
    "release_spare_memory",
    "rows_by_partition",
]
