"""`pyclient demo` with its Spark steps, in a process of its own: table, exit status, and nothing of Spark's output."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pyclient.cli.demo.report import Report
from pyclient.cli.demo.spark import compare
from tests.spark.conftest import needs_java

COMMAND = [sys.executable, "-c", "from pyclient.cli import main; main()", "demo", "--input"]
WIDE = {"COLUMNS": "200"}  # so that no row of the table is broken


@pytest.mark.parametrize("found", [{"a": 2}, {"a": 2, "b": 2}, {"a": 2, "b": 1, "c": 1}])
def test_counts_of_spark_that_differ_from_the_files_are_detected(found: dict[str, int]) -> None:
    report = Report(Console(file=StringIO()))
    compare(report, "spark batch", "identifiers", Counter(found), Counter(a=2, b=1), 1.0)
    [failure] = report.failures
    assert "1 identifiers have another count than in the files" in failure


class TestWithSpark:
    pytestmark = [*needs_java, pytest.mark.slow]

    def test_demo_counts_in_a_batch_and_a_stream_what_the_files_have(self) -> None:
        folder = Path(asyncio.__file__).parent
        options: dict[str, Any] = {"capture_output": True, "text": True, "env": os.environ | WIDE}
        done = subprocess.run([*COMMAND, str(folder)], timeout=850, check=False, **options)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert not re.search("log4j|log level|NativeCodeLoader|WARN|Spark", done.stderr), done.stderr
        assert "every check passed" in done.stdout
        files = [*folder.rglob("*.py")]
        words = {word for file in files for word in re.findall(rb"[A-Za-z_][A-Za-z0-9_]*", file.read_bytes())}
        rows = {line.split("│")[1].strip(): line for line in done.stdout.splitlines() if line.startswith("│")}
        assert f" {len(words):,} identifiers, " in rows["spark batch"], done.stdout
        assert f" {len(files):,} packages, " in rows["spark stream"], done.stdout
        for step in ("spark batch", "spark stream"):
            assert "counted, as in the files" in rows[step]
