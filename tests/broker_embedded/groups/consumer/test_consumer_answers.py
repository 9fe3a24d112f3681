"""The answers to members of consumer groups (KIP-848) equal the recorded answers of Kafka 4.3.1."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.groups.consumer.mixed_harness import MixedHarness
from tests.broker_embedded.groups.consumer.scenarios import ANSWERS, SCENARIOS, replay

RECORDED = json.loads(ANSWERS.read_text())


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Yield a broker with Kafka's heartbeat interval."""
    with EmbeddedCluster(config={"group.consumer.heartbeat.interval.ms": "5000"}) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_consumer_group_answers_equal_kafka(scenario: Callable[[MixedHarness], None], servers: str) -> None:
    expected, found = RECORDED[scenario.__name__], replay(scenario, servers)
    assert [label for label, _ in found] == [label for label, _ in expected]
    for (label, theirs), (_, ours) in zip(expected, found, strict=True):
        assert ours == theirs, label
