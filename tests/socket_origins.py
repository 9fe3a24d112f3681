"""The text of a socket says where it was made, and so does the warning about one that was not closed.

A garbage collection finds such a socket long after its test, in any other one, and Python's own text names only its
addresses.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any, Final

_FRAMES: Final = 12
_origins: dict[int, list[str]] = {}
"""The test in which each socket of this process was made, and the calls, by `id`; those of freed ones are replaced."""


def note_origins() -> None:
    """Note from now on where sockets are made."""
    initialize, text_of = socket.socket.__init__, socket.socket.__repr__

    def __init__(self: socket.socket, *arguments: Any, **options: Any) -> None:  # noqa: N807
        initialize(self, *arguments, **options)
        _origins[id(self)] = [os.environ.get("PYTEST_CURRENT_TEST", "no test"), *_calls()]

    def __repr__(self: socket.socket) -> str:  # noqa: N807
        return f"{text_of(self)}, made in {'; '.join(_origins.get(id(self), ['?']))}"

    socket.socket.__init__ = __init__  # type: ignore[method-assign]
    socket.socket.__repr__ = __repr__  # type: ignore[method-assign]


def _calls() -> list[str]:
    frame, found = sys._getframe(2), list[str]()  # noqa: SLF001
    while frame is not None and len(found) < _FRAMES:
        found.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return found
