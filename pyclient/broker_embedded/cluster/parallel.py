"""Calls of several brokers at the same time, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


class _Call:
    """A call in a thread, and its error."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="pyclient-cluster-call", daemon=True)

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # raised by `in_parallel` in the caller's thread
            self.error = error


def in_parallel(functions: Sequence[Callable[[], object]]) -> None:
    """Call all functions, each in a thread; one alone in this thread.

    When all have returned, raise the first error; it has a note about each further one.
    """
    if len(functions) == 1:
        functions[0]()
        return
    calls = [_Call(function) for function in functions]
    for call in calls:
        call.thread.start()
    for call in calls:
        call.thread.join()
    failures = [call.error for call in calls if call.error is not None]
    if failures:
        for further in failures[1:]:
            failures[0].add_note(f"another call failed, too: {further!r}")
        raise failures[0]
