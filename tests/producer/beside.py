"""Blocking calls made in a thread, so that the test can check the producer meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.waiting import until


def beside(call: Callable[[], Any]) -> Future[Any]:
    """Makes the call in a thread of its own; its outcome."""
    outcome: Future[Any] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return outcome


def blocked(face: Any, count: int = 1) -> None:
    """Waits until so many calls wait for memory."""
    until(lambda: face.health()["sends_blocked"] == count, f"there are not {count} calls that wait for memory")
