"""The broker's answers, error texts included, equal the recorded answers of Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.parity.scenario import SETTINGS, Answers, Scenario, recorded_answers
from tests.broker_embedded.parity.scenarios import SCENARIOS

RECORDED: Final[Mapping[str, Answers]] = recorded_answers()


def test_every_scenario_is_recorded() -> None:
    assert list(RECORDED) == [scenario.name for scenario in SCENARIOS]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_answers_equal_those_of_kafka(scenario: Scenario, tmp_path: Path) -> None:
    config = {**SETTINGS, **scenario.settings}
    if scenario.log_dirs > 1:
        config["log.dirs"] = ",".join(str(tmp_path / str(number)) for number in range(scenario.log_dirs))
    with EmbeddedCluster(profile="kafka", as_version=scenario.release, config=config) as cluster:
        found = scenario.replay(cluster.bootstrap_servers)
    recorded = RECORDED[scenario.name]
    assert [label for label, _ in found] == [label for label, _ in recorded]
    different = {
        label: (answer, expected)
        for (label, answer), (_, expected) in zip(found, recorded, strict=True)
        if answer != expected
    }
    assert {label: pair for label, pair in different.items() if label not in scenario.differs} == {}
    assert different.keys() == scenario.differs.keys()
