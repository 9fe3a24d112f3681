"""Kafka's own message definitions: from a folder beside the checkout, or out of Kafka's jars."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KAFKA = "4.3.1"
FOLDER = Path(__file__).parents[3] / "shared" / "kafka-messages"
JARS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "real-kafka" / KAFKA

NOT_DECLARED = re.compile(r"Share|Streams|DelegationToken(Request|Response)$")
"""Share groups and streams groups, and the calls of delegation tokens (their metadata records are declared)."""


def skip_or_fail(reason: str) -> None:
    """What a test does that lacks something: it skips, or fails where everything has to be there."""
    if os.environ.get("PYCLIENT_REQUIRE_ALL") == "1":
        pytest.fail(f"PYCLIENT_REQUIRE_ALL=1, and {reason}")
    pytest.skip(reason)


def kafka_jars() -> list[Path]:
    return sorted(JARS.glob("kafka-*.jar"))


def from_folder() -> dict[str, dict[str, Any]]:
    return _by_name(path.read_text() for path in sorted(FOLDER.glob("*/*.json")))


def from_jars() -> dict[str, dict[str, Any]]:
    return _by_name(text for jar in kafka_jars() for text in _definitions_in(jar))


def _definitions_in(jar: Path) -> Iterator[str]:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.match(r"(common/)?(message|metadata)/\w+\.json$", name):
                yield archive.read(name).decode()


def _by_name(texts: Iterator[str]) -> dict[str, dict[str, Any]]:
    """Definitions of every message that has valid versions and that we mean to declare."""
    found = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]
    return {
        each["name"]: each
        for each in found
        if each["validVersions"] != "none" and not NOT_DECLARED.search(each["name"])
    }
