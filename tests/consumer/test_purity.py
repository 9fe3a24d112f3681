"""The state machines do not wait: they import no event loop, thread, socket or clock."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

FORBIDDEN = {"asyncio", "socket", "threading", "time", "random"}


@pytest.mark.parametrize(
    "name",
    [
        "group",
        "group_classic",
        "group_consumer",
        "committed",
        "group_events",
        "group_metrics",
        "subscription",
        "fetch_session",
        "fetch_buffer",
        "fetch_plan",
        "batches",
        "membership",
    ],
)
def test_state_machine_imports_nothing_that_waits(name: str) -> None:
    module = importlib.import_module(f"pyclient.consumer.{name}")
    imported: set[str] = set()
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.partition(".")[0])
    assert not imported & FORBIDDEN
