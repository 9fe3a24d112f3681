"""Our broker answers administrators as a real Kafka 4.3.1 did, request by request."""

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
def told() -> dict[str, Any]:
    """Return our broker's answer to each scenario."""
    with EmbeddedCluster(profile="kafka") as cluster:
        return dict(replay(cluster.bootstrap_servers))


def test_every_scenario_was_recorded_and_has_a_label_of_its_own() -> None:
    assert list(RECORDED) == LABELS
    assert len(set(LABELS)) == len(LABELS)


@pytest.mark.parametrize("label", LABELS)
def test_our_answer_is_kafkas(told: dict[str, Any], label: str) -> None:
    assert told[label] == _without_kafkas_own_write(RECORDED[label])


def _without_kafkas_own_write(answer: Any) -> Any:
    """Ours does not write min.insync.replicas by itself."""
    for topic in answer.get("topics", ()):
        for each in topic.get("configs", ()):
            if each["name"] == "min.insync.replicas":
                each["config_source"] = DEFAULT
    return answer
