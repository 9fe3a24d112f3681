"""Signals that end a cluster in the foreground."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

import pytest

from pyclient.broker_embedded.cluster.foreground import opens
from pyclient.net.latch import Latch
from tests.waiting import PATIENCE

LATCHES: Final = Latch.wait.__code__.co_filename


@pytest.fixture
def handler() -> Iterator[None]:
    """Restore the handler of SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def opened_by_signals() -> Latch:
    latch = Latch()
    signal.signal(signal.SIGTERM, opens(latch))
    return latch


class SignalAt:
    """Raises SIGTERM at one bytecode of the module of latches, in the `with` block."""

    def __init__(self, number: int) -> None:
        self._left = number

    @property
    def came(self) -> bool:
        return self._left < 0

    def __enter__(self) -> SignalAt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != LATCHES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.came:
            self._left -= 1
            if self.came:
                signal.raise_signal(signal.SIGTERM)
        return self._trace


@pytest.mark.usefixtures("handler")
def test_signal_at_any_bytecode_of_a_wait_ends_it() -> None:
    """A handler that sets a `threading.Event` waits without end for a lock that the interrupted wait holds."""
    for number in itertools.count():
        latch = opened_by_signals()
        with SignalAt(number) as at:
            latch.wait(0.0)
        assert latch.wait(PATIENCE if at.came else 0.0) is at.came
        if not at.came:  # the wait has no further bytecode
            break
    assert number > 20


@pytest.mark.usefixtures("handler")
def test_further_signals_change_nothing() -> None:
    latch = opened_by_signals()
    for _ in range(3):
        signal.raise_signal(signal.SIGTERM)
        assert latch.wait(0.0)
