"""What the interpreter under the tests is, where that changes what can be expected."""

from __future__ import annotations

import sys
from typing import Any

import pytest

FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()
"""Threads run side by side (PEP 703)."""

copies_loops: Any = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="asyncio of Python 3.14 and later does not run on in a forked child"
)

keeps_locks: Any = pytest.mark.skipif(
    (3, 14) <= sys.version_info < (3, 15), reason="a `with` of Python 3.14 may lose its lock to Ctrl-C (gh-148874)"
)
