"""The deciding modules use no clock, loop or thread: the time is an argument, and the caller holds the lock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pyclient.producer

DECIDING = (
    "accumulator", "batch", "buffer_pool", "idempotence", "metrics", "outcome", "partition_queue", "partitioner",
    "sender", "splitting",
)  # fmt: skip


@pytest.mark.parametrize("name", DECIDING)
def test_deciding_modules_import_no_clock_loop_thread_or_socket(name):
    tree = ast.parse(Path(pyclient.producer.__path__[0], f"{name}.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {module.partition(".")[0] for module in imported} & {"asyncio", "socket", "threading", "time"}
    assert not any(module.startswith(("pyclient.net", "pyclient.cluster")) for module in imported)
