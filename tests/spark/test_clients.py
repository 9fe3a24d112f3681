"""The clients of workers: fetches that suit a range, and garbage collections without loaded modules."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pyclient.spark.reading import consumer_options


@pytest.mark.parametrize(
    ("offsets", "expected"), [(250, 131_072), (1_001, 1_048_576), (20_001, 4_194_304), (None, 4_194_304)]
)
def test_fetches_of_a_small_range_are_small(offsets: int | None, expected: int) -> None:
    assert consumer_options({}, offsets)["max.partition.fetch.bytes"] == str(expected)


def test_a_size_of_fetches_that_is_given_counts() -> None:
    assert consumer_options({"max.partition.fetch.bytes": "9"}, 250)["max.partition.fetch.bytes"] == "9"


def printed(program: str) -> str:
    """Return what a process of its own prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


DAEMON = """
import gc, json, sys
from types import SimpleNamespace
from pyclient.spark.clients import settle
settle()
before = gc.get_freeze_count()
sys.modules["__main__"].__spec__ = SimpleNamespace(name="pyspark.daemon")
settle()
once = gc.get_freeze_count()
later = [[] for _ in range(10_000)]
settle()
more = gc.get_freeze_count() - once
import xml.dom.minidom
settle()
print(json.dumps([before, once, more, gc.get_freeze_count() - once]))
"""


def test_only_workers_of_spark_leave_out_of_collections_what_they_load() -> None:
    found = printed(DAEMON)
    before, once, without_modules, with_modules = json.loads(found)
    assert before == 0
    assert once > 1000
    assert without_modules < 1000
    assert with_modules > 10_000


def test_the_data_source_is_imported_without_the_clients() -> None:
    loaded = "import sys, pyspark_pyclient; print([name for name in sys.modules if name.startswith('pyclient')])"
    found = printed(loaded)
    assert "pyclient.spark.data_source" in found
    assert "pyclient.producer" not in found
    assert "pyclient.consumer" not in found
    assert "pyclient.net" not in found
