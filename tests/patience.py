"""Retry calls until their error names the cause: on a busy machine one short timeout may not be enough for that."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest

from pyclient.errors import KafkaTimeout

PATIENCE: Final = 30.0  # seconds

E = TypeVar("E", bound=Exception)


def retry_until_error(call: Callable[[], object], pattern: str) -> str:
    """Repeat `call`, which must not succeed, until its `KafkaTimeout` matches `pattern`; return the error's text."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with pytest.raises(KafkaTimeout) as caught:
            call()
        if _matches(str(caught.value), pattern, deadline):
            return str(caught.value)


async def retry_until_error_async(call: Callable[[], Awaitable[object]], pattern: str) -> str:
    """Do as `retry_until_error` for a coroutine function."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with pytest.raises(KafkaTimeout) as caught:
            await call()
        if _matches(str(caught.value), pattern, deadline):
            return str(caught.value)


def retry_until_raised(call: Callable[[], object], kind: type[E]) -> E:
    """Repeat `call`, which must not succeed, while it raises `KafkaTimeout`, until it raises `kind`; return that."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with pytest.raises((KafkaTimeout, kind)) as caught:
            call()
        if isinstance(caught.value, kind):
            return caught.value
        assert time.monotonic() < deadline, f"{caught.value!r} is no {kind.__name__}"


def _matches(text: str, pattern: str, deadline: float) -> bool:
    if re.search(pattern, text, re.DOTALL):
        return True
    assert time.monotonic() < deadline, f"{text!r} does not match {pattern!r}"
    return False
