"""A type checker knows the declared fields and their types, without stubs or a plug-in."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = """
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

partition = FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=3)
request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(partitions=[partition])])
reveal_type(request.topics[0].partitions[0].fetch_offset)
reveal_type(request.cluster_id)
reveal_type(FetchRequest.api_key)
FetchPartition(partition="one", fetch_offset=2, partition_max_bytes=3)
FetchPartition(partition=1, fetch_offset=2)
FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=3, size=4)
request.max_wait = 5
"""
EXPECTED = [
    (6, 'Revealed type is "int"'),
    (7, 'Revealed type is "str | None"'),
    (8, 'Revealed type is "int"'),
    (9, 'Argument "partition" to "FetchPartition" has incompatible type "str"; expected "int"'),
    (10, 'Missing named argument "partition_max_bytes" for "FetchPartition"'),
    (11, 'Unexpected keyword argument "size" for "FetchPartition"'),
    (12, '"FetchRequest" has no attribute "max_wait"'),
]


@pytest.mark.slow
def test_type_checker_reports_field_types_and_mistakes(tmp_path: Path) -> None:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--hide-error-context", str(script)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    said = done.stdout.replace("builtins.", "").splitlines()
    for line, text in EXPECTED:
        here = [each for each in said if f"{script.name}:{line}:" in each]
        assert any(text in each for each in here), (line, done.stdout + done.stderr)
