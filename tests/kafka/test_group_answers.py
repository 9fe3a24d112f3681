"""The answers that our group coordinator is tested against are a real Kafka's."""

from __future__ import annotations

import json
import os

from tests.broker_embedded.groups.transcripts import ANSWERS, SCENES, Record, play
from tests.kafka.conftest import Cluster


def test_the_recorded_answers_are_what_kafka_says(newest: Cluster) -> None:
    found = {scene.__name__: play(scene, newest.bootstrap_servers) for scene in SCENES}
    if os.environ.get("PYCLIENT_RECORD") == "1":
        _write(found)
    recorded = json.loads(ANSWERS.read_text())
    assert list(found) == list(recorded)
    for scene, answers in found.items():
        assert answers == recorded[scene], scene


def _write(answers: dict[str, Record]) -> None:
    """One answer a line, so that a change can be read."""
    scenes = [
        f"{json.dumps(scene)}: [\n" + ",\n".join(json.dumps(answer) for answer in told) + "\n]"
        for scene, told in answers.items()
    ]
    ANSWERS.write_text("{\n" + ",\n".join(scenes) + "\n}\n")
