"""Kafka's own message classes decode our bytes and encode the same bytes."""

from __future__ import annotations

import random
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_definitions import KAFKA, kafka_jars
from protocol_samples import all_versions, filled, label, minimal, randomized

from pyclient.protocol import codec
from tests.kafka.jars import class_path, java
from tests.kafka.needs import skip_without_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # the jars may have to be downloaded first

SOURCE = Path(__file__).parent / "KafkaBytes.java"
SAMPLES = 4


def java_classes() -> dict[str, str]:
    """Map the name of every generated message class in Kafka's jars to its qualified name."""
    found = {}
    for jar in kafka_jars():
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.search(r"/(message|metadata|generated)/[A-Z]\w*\.class$", name):
                    found[Path(name).stem] = name.removesuffix(".class").replace("/", ".")
    return found


def lines() -> Iterator[tuple[str, str, str, str]]:
    """(label, java class, version, hex) for every version of every message, several samples each."""
    classes, rng = java_classes(), random.Random(4)
    for cls, version in all_versions():
        java_class = classes.get(cls.__name__) or classes[f"{cls.__name__}Data"]
        samples = [
            filled(cls, version),
            minimal(cls, version),
            *(randomized(cls, version, rng) for _ in range(SAMPLES)),
        ]
        for sample in samples:
            yield label(cls, version), java_class, str(version), codec.encode(sample, version).hex()


def test_kafka_decodes_and_encodes_every_message_version_identically() -> None:
    skip_without_kafka()
    sent = list(lines())
    done = subprocess.run(
        [java(), "-cp", class_path(KAFKA), str(SOURCE)],
        input="".join(f"{java_class} {version} {data}\n" for _, java_class, version, data in sent),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    if "jdk.compiler" in done.stderr:
        pytest.skip("only a Java runtime is installed, and this needs a JDK (Debian: openjdk-17-jdk-headless)")
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(sent)
    wrong = [
        (name, data, answer)
        for (name, _, _, data), answer in zip(sent, answers, strict=True)
        if answer.strip() != f"bytes {data}".strip()
    ]
    assert not wrong, wrong[:3]
