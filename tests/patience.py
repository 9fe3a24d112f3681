"""Calls that are made again until their error says why: a busy machine may not find out within one short timeout."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from pyclient.errors import KafkaTimeout

PATIENCE: Final = 30.0  # seconds


def until_said(call: Callable[[], object], says: str) -> str:
    """Makes the call until its `KafkaTimeout` matches the pattern `says`; the error's text. It must never succeed."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with pytest.raises(KafkaTimeout) as caught:
            call()
        if _said(str(caught.value), says, deadline):
            return str(caught.value)


async def until_told(call: Callable[[], Awaitable[object]], says: str) -> str:
    """`until_said` for what is awaited."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with pytest.raises(KafkaTimeout) as caught:
            await call()
        if _said(str(caught.value), says, deadline):
            return str(caught.value)


def _said(text: str, says: str, deadline: float) -> bool:
    if re.search(says, text, re.DOTALL):
        return True
    assert time.monotonic() < deadline, f"{text!r} does not say {says!r}"
    return False
