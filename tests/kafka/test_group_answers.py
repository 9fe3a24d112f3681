"""The answers that our group coordinator is tested against are a real Kafka's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_embedded.groups.consumer import scenes as consumer_scenes
from tests.broker_embedded.groups.group_harness import Record
from tests.broker_embedded.groups.transcripts import ANSWERS, SCENES, play
from tests.kafka.conftest import Cluster
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka


def test_the_recorded_answers_are_what_kafka_says(newest: Cluster) -> None:
    found = {scene.__name__: play(scene, newest.bootstrap_servers) for scene in SCENES}
    if os.environ.get("PYCLIENT_RECORD") == "1":
        _write(found, ANSWERS)
    _compare(found, ANSWERS)


@pytest.fixture(scope="module")
def at_once() -> Iterator[str]:
    """A real Kafka that makes target assignments as often as it can."""
    skip_without_kafka()
    with RealKafka(heap="512M", settings=consumer_scenes.SETTINGS) as kafka:
        yield kafka.bootstrap_servers


def test_the_recorded_answers_to_consumer_groups_are_what_kafka_says(at_once: str) -> None:
    found = {scene.__name__: consumer_scenes.play(scene, at_once) for scene in consumer_scenes.SCENES}
    if os.environ.get("PYCLIENT_RECORD") == "1":
        _write(found, consumer_scenes.ANSWERS)
    _compare(found, consumer_scenes.ANSWERS)


def _compare(found: dict[str, Record], answers: Path) -> None:
    recorded = json.loads(answers.read_text())
    assert list(found) == list(recorded)
    for scene, told in found.items():
        assert told == recorded[scene], scene


def _write(answers: dict[str, Record], path: Path) -> None:
    """One answer a line, so that a change can be read."""
    scenes = [
        f"{json.dumps(scene)}: [\n" + ",\n".join(json.dumps(answer) for answer in told) + "\n]"
        for scene, told in answers.items()
    ]
    path.write_text("{\n" + ",\n".join(scenes) + "\n}\n")
