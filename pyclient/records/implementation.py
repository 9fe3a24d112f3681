"""Choose the codec: the compiled one if it was built, else (or with PYCLIENT_PURE=1) the one in Python.

`__all__` is the only list of the names that both have; `pyclient.records` exports it.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from pyclient.records.restore import restore_with

if TYPE_CHECKING:
    from pyclient.records._pure import *

__all__ = [
    "IMPLEMENTATION",
    "BatchBuilder",
    "ColumnsBuilder",
    "PlacedBatch",
    "Record",
    "RecordChain",
    "RecordHandle",
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


def load_compiled(module: str, what: str, names: Sequence[str]) -> ModuleType | None:
    """Import a compiled module that has `names`; return None if it was not built, or with PYCLIENT_PURE=1.

    Warn, with `what` it is, if it was built from another version of the sources.
    """
    if os.environ.get("PYCLIENT_PURE") == "1":
        return None
    try:
        loaded = import_module(module)
        for name in names:
            if not hasattr(loaded, name):
                raise ImportError(f"cannot import name {name!r} from {module!r}")
    except (ImportError, TypeError, ValueError) as error:  # the last two: it expects another form of a compiled class
        if not (isinstance(error, ModuleNotFoundError) and error.name == module):
            warnings.warn(
                f"the compiled {what} cannot be used, and the Python one is many times slower: {error}. Build it "
                "again with `python setup.py build_ext --inplace` in the checkout, or install the package again; "
                "PYCLIENT_PURE=1 chooses Python without this warning",
                RuntimeWarning,
                stacklevel=2,
            )
        return None
    return loaded


_codec = load_compiled("pyclient.records._speedups", "record codec", __all__) or import_module("pyclient.records._pure")
globals().update({name: getattr(_codec, name) for name in __all__})
restore_with(_codec.Record)


@cache
def log_pure_codec() -> None:
    """Log once per process, when the first client starts, that the codec in Python is used."""
    if IMPLEMENTATION == "pure":
        text = "the record codec runs in pure Python, many times slower: reinstall with a C compiler to compile it"
        logging.getLogger("pyclient.records").info(text)
