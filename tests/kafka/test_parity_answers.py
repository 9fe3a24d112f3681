"""The recorded answers to the scenarios that our broker is tested against equal those of a real Kafka."""

from __future__ import annotations

import os

import pytest

from tests.broker_embedded.parity.scenario import SETTINGS, Scenario, recorded_answers, write_answers
from tests.broker_embedded.parity.scenarios import SCENARIOS
from tests.kafka.jars import VERSIONS
from tests.kafka.runner import RealKafka


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_recorded_answers_equal_kafkas(scenario: Scenario, kafka_tools: None) -> None:
    settings = {**SETTINGS, **scenario.settings}
    if scenario.log_dirs > 1:
        settings["log.dirs"] = ",".join(f"{{default}}/{number}" for number in range(scenario.log_dirs))
    with RealKafka(VERSIONS[0], heap="512M", settings=settings, metadata_of=scenario.release) as kafka:
        found = scenario.replay(kafka.bootstrap_servers)
    recorded = recorded_answers()
    if os.environ.get("PYCLIENT_RECORD") == "1":
        answers = {**recorded, scenario.name: found}
        write_answers({each.name: answers[each.name] for each in SCENARIOS if each.name in answers})
    else:
        assert found == recorded[scenario.name]
