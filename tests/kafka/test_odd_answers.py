"""The recorded answers to odd requests that our broker is tested against equal those of a real Kafka."""

from __future__ import annotations

import os
from typing import Any

from tests.broker_embedded.odd.replay import ROOMS, SETTINGS, read_answers, replay, write_answers
from tests.kafka.jars import VERSIONS
from tests.kafka.runner import RealKafka


def test_recorded_answers_equal_kafkas(kafka_tools: None) -> None:
    is_new = os.environ.get("PYCLIENT_RECORD") == "1"
    recorded: dict[str, Any] = {} if is_new else read_answers()
    found: dict[str, Any] = {}
    for room in ROOMS:  # each expects an unused broker
        with RealKafka(VERSIONS[0], heap="512M", settings=SETTINGS) as kafka:
            found |= dict(replay(kafka.bootstrap_servers, room.SCENARIOS, None if is_new else recorded))
    if is_new:
        write_answers(found)
        return
    assert found.keys() == recorded.keys()
    assert {label: answer for label, answer in found.items() if answer != recorded[label]} == {}
