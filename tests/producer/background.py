"""Blocking calls made in a thread, so that the test can check the producer meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.waiting import until


def in_background(call: Callable[[], Any]) -> Future[Any]:
    """Start the call in a new thread and return its future."""
    outcome: Future[Any] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return outcome


def blocked(client: Any, count: int = 1) -> None:
    """Wait until so many calls wait for memory."""
    until(lambda: client.health()["sends_blocked"] == count, f"there are not {count} calls that wait for memory")
