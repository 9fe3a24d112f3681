"""The recorded answers to hostile batches that our broker is tested against equal those of a real Kafka."""

from __future__ import annotations

import os

from tests.broker_embedded.append.cases import CASES
from tests.broker_embedded.append.replay import read_answers, replay, write_answers
from tests.kafka.jars import VERSIONS
from tests.kafka.runner import RealKafka


def test_recorded_answers_equal_kafkas(kafka_tools: None) -> None:
    with RealKafka(VERSIONS[0], heap="512M") as kafka:
        found = dict(replay(kafka.bootstrap_servers, CASES))
    if os.environ.get("PYCLIENT_RECORD") == "1":
        write_answers(found)
        return
    recorded = read_answers()
    assert found.keys() == recorded.keys()
    assert {name: answer for name, answer in found.items() if answer != recorded[name]} == {}
