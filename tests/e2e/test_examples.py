"""Every example runs unchanged; tests/spark runs those for Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(each for each in (ROOT / "examples").glob("*.py") if not each.stem.startswith("spark_"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path) -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "error::ResourceWarning"}
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, timeout=90, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Warning" not in done.stderr
