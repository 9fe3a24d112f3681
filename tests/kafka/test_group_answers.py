"""The recorded answers that our group coordinator is tested against equal those of a real Kafka."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_embedded.groups.consumer import scenarios as consumer_scenarios
from tests.broker_embedded.groups.group_harness import Record
from tests.broker_embedded.groups.transcripts import ANSWERS, SCENARIOS, replay
from tests.kafka.conftest import Cluster
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka


def test_recorded_answers_equal_kafkas(newest: Cluster) -> None:
    found = {scenario.__name__: replay(scenario, newest.bootstrap_servers) for scenario in SCENARIOS}
    if os.environ.get("PYCLIENT_RECORD") == "1":
        _write(found, ANSWERS)
    _compare(found, ANSWERS)


@pytest.fixture(scope="module")
def at_once() -> Iterator[str]:
    """A real Kafka that makes target assignments as often as it can."""
    skip_without_kafka()
    with RealKafka(heap="512M", settings=consumer_scenarios.SETTINGS) as kafka:
        yield kafka.bootstrap_servers


def test_recorded_answers_to_consumer_groups_equal_kafkas(at_once: str) -> None:
    found = {
        scenario.__name__: consumer_scenarios.replay(scenario, at_once) for scenario in consumer_scenarios.SCENARIOS
    }
    if os.environ.get("PYCLIENT_RECORD") == "1":
        _write(found, consumer_scenarios.ANSWERS)
    _compare(found, consumer_scenarios.ANSWERS)


def _compare(found: dict[str, Record], answers: Path) -> None:
    recorded = json.loads(answers.read_text())
    assert list(found) == list(recorded)
    for scenario, steps in found.items():
        assert steps == recorded[scenario], scenario


def _write(answers: dict[str, Record], path: Path) -> None:
    """One answer a line, so that a change can be read."""
    scenarios = [
        f"{json.dumps(scenario)}: [\n" + ",\n".join(json.dumps(answer) for answer in steps) + "\n]"
        for scenario, steps in answers.items()
    ]
    path.write_text("{\n" + ",\n".join(scenarios) + "\n}\n")
