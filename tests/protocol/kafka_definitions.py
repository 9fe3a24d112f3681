"""Kafka's own message definitions, from the jars of its release."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kafka.jars import VERSIONS, class_path

KAFKA = VERSIONS[0]

NOT_DECLARED = re.compile(r"Share|Streams")
"""Share groups and streams groups."""


def kafka_jars() -> list[Path]:
    """Return Kafka's own jars, without its dependencies. Raise `NoKafka` if they are not available."""
    return sorted(Path(class_path(KAFKA)).parent.glob("kafka-*.jar"))


def definitions_in_jars() -> dict[str, dict[str, Any]]:
    """Return the definitions, by name, of all messages with valid versions except `NOT_DECLARED`."""
    texts = (text for jar in kafka_jars() for text in _definitions_in(jar))
    found = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]
    return {
        each["name"]: each
        for each in found
        if each["validVersions"] != "none" and not NOT_DECLARED.search(each["name"])
    }


def _definitions_in(jar: Path) -> Iterator[str]:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.match(r"(common/)?(message|metadata)/\w+\.json$", name):
                yield archive.read(name).decode()
