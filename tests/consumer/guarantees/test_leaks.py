"""Opening and closing consumers leaks nothing: no file, no thread, no memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("consumers", ["sync-eager", "sync-consumer", "async-eager", "async-consumer"])
@pytest.mark.parametrize(
    "times",
    [pytest.param(25, id="25"), pytest.param(1000, id="1000", marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_open_and_close_leak_nothing(
    times: int, consumers: str, cluster: Any, new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic()
    produce(topic, b"x")
    program = [sys.executable, "-m", "tests.consumer.guarantees.open_and_close"]
    arguments = [cluster.bootstrap_servers, topic, *consumers.split("-"), str(times)]
    call = subprocess.run(
        [*program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=200 + times // 2
    )
    assert call.returncode == 0, call.stderr
