"""The recorded answers to administrators that our broker is tested against equal those of a real Kafka."""

from __future__ import annotations

import json
import os

from tests.broker_embedded.admin_replay import ANSWERS, replay
from tests.broker_embedded.admin_scenarios import SCENARIOS
from tests.kafka.jars import VERSIONS
from tests.kafka.runner import RealKafka


def test_recorded_answers_equal_kafkas(kafka_tools: None) -> None:
    is_new = os.environ.get("PYCLIENT_RECORD") == "1"
    with RealKafka(VERSIONS[0], heap="512M") as kafka:
        found = dict(replay(kafka.bootstrap_servers, None if is_new else json.loads(ANSWERS.read_text())))
    if is_new:
        lines = (f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in found.items())
        ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    recorded = json.loads(ANSWERS.read_text())
    assert list(recorded) == [scenario.label for scenario in SCENARIOS]
    for label, answer in found.items():
        assert answer == recorded[label], label
