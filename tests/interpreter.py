"""Properties of the Python interpreter on which expectations of tests depend."""

from __future__ import annotations

import sys
from typing import Any

import pytest

FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()
"""True if threads run in parallel (PEP 703)."""

needs_loop_after_fork: Any = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="asyncio of Python 3.14 and later does not run on in a forked child"
)

needs_interrupt_safe_with: Any = pytest.mark.skipif(
    (3, 14) <= sys.version_info < (3, 15), reason="a `with` of Python 3.14 may lose its lock to Ctrl-C (gh-148874)"
)
