"""Choose the producer's work per record: compiled if that was built and the codec is compiled, too; else in Python.

`__all__` is the only list of the names that both have.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyclient.records import IMPLEMENTATION, log_pure_codec
from pyclient.records.implementation import load_compiled

if TYPE_CHECKING:
    from pyclient.producer._pure import *

__all__ = ["BatchOutcome", "OpenBatches", "OutcomeHandle", "RecordAppender", "RecordSender"]

_compiled = None
if IMPLEMENTATION == "cython":
    _compiled = load_compiled("pyclient.producer._speedups", "part of the producer", __all__)
_chosen = _compiled or import_module("pyclient.producer._pure")
globals().update({name: getattr(_chosen, name) for name in __all__})


def compiled_only(name: str) -> Any:
    """Return an object that only the compiled module has; None if that is not used."""
    return None if _compiled is None else getattr(_compiled, name)


@cache
def log_pure_parts() -> None:
    """Log once per process, when the first producer starts, what of it runs in Python although it can be compiled."""
    log_pure_codec()
    if IMPLEMENTATION == "cython" and _compiled is None:
        text = "the producer's work per record runs in pure Python, many times slower: reinstall with a C compiler"
        logging.getLogger("pyclient.producer").info(text)
