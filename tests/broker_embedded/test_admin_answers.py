"""The broker's answers to admin requests equal the recorded answers of Kafka 4.3.1."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.admin_replay import ANSWERS, replay
from tests.broker_embedded.admin_scenarios import SCENARIOS

RECORDED: dict[str, Any] = json.loads(ANSWERS.read_text())
DEFAULT = 5
LABELS = [scenario.label for scenario in SCENARIOS]


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """Return the broker's answer to each scenario."""
    with EmbeddedCluster(profile="kafka") as cluster:
        return dict(replay(cluster.bootstrap_servers))


def test_every_scenario_is_recorded_under_unique_label() -> None:
    assert list(RECORDED) == LABELS
    assert len(set(LABELS)) == len(LABELS)


@pytest.mark.parametrize("label", LABELS)
def test_answer_equals_that_of_kafka(answers: dict[str, Any], label: str) -> None:
    assert answers[label] == _without_kafkas_own_write(RECORDED[label])


def _without_kafkas_own_write(answer: Any) -> Any:
    """Remove min.insync.replicas, which only Kafka writes by itself."""
    for topic in answer.get("topics", ()):
        for each in topic.get("configs", ()):
            if each["name"] == "min.insync.replicas":
                each["config_source"] = DEFAULT
    return answer
