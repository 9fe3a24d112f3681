"""Choose the codec: the compiled one if it was built, else (or with PYCLIENT_PURE=1) the one in Python."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

_compiled = False  # True when every name was imported
if not TYPE_CHECKING and os.environ.get("PYCLIENT_PURE") != "1":
    try:
        from pyclient.records._speedups import (
            IMPLEMENTATION,
            BatchBuilder,
            BatchOutcome,
            ColumnsBuilder,
            OpenBatches,
            OutcomeHandle,
            PlacedBatch,
            Record,
            RecordAppender,
            RecordChain,
            RecordHandle,
            RecordSender,
            check_rows,
            count_intact,
            decode_batch,
            decode_payload,
            decode_varint,
            encode_varint,
            find_batches,
            murmur2,
            partition_for_key,
            record_size_bound,
            release_spare_memory,
            rows_by_partition,
            validate_records,
        )

        _compiled = True
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "pyclient.records._speedups"
        if not absent:  # it was built from another version of the sources
            import warnings

            warnings.warn(
                f"the compiled record codec cannot be used, and the Python one is many times slower: {error}. Build it "
                "again with `python setup.py build_ext --inplace` in the checkout, or install the package again; "
                "PYCLIENT_PURE=1 chooses the Python codec without this warning",
                RuntimeWarning,
                stacklevel=2,
            )
if TYPE_CHECKING or not _compiled:
    from pyclient.records._pure import (
        IMPLEMENTATION,
        BatchBuilder,
        BatchOutcome,
        ColumnsBuilder,
        OpenBatches,
        OutcomeHandle,
        PlacedBatch,
        Record,
        RecordAppender,
        RecordChain,
        RecordHandle,
        RecordSender,
        check_rows,
        count_intact,
        decode_batch,
        decode_payload,
        decode_varint,
        encode_varint,
        find_batches,
        murmur2,
        partition_for_key,
        record_size_bound,
        release_spare_memory,
        rows_by_partition,
        validate_records,
    )


@cache
def log_pure_codec() -> None:
    """Log once per process, when the first client starts, that the codec in Python is used."""
    if IMPLEMENTATION == "pure":
        text = "the record codec runs in pure Python, many times slower: reinstall with a C compiler to compile it"
        logging.getLogger("pyclient.records").info(text)


def compiled_only(name: str) -> Any:
    """Return an object that only the compiled codec has; None if the codec in Python is used."""
    if IMPLEMENTATION != "cython":
        return None
    return getattr(import_module("pyclient.records._speedups"), name)


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
    "compiled_only",
    "count_intact",
    "decode_batch",
    "decode_payload",
    "decode_varint",
    "encode_varint",
    "find_batches",
    "log_pure_codec",
    "murmur2",
    "partition_for_key",
    "record_size_bound",
    "release_spare_memory",
    "rows_by_partition",
    "validate_records",
]
