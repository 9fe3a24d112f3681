"""The coordinator's answers equal the recorded answers of Kafka 4.3.1, for each request and version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.groups.group_harness import GroupHarness
from tests.broker_embedded.groups.transcripts import ANSWERS, SCENARIOS, replay

RECORDED = json.loads(ANSWERS.read_text())


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Yield a broker with Kafka's session timeout limits, which gives up silent members as late as Kafka."""
    config = {"group.min.session.timeout.ms": "6000", "internal.group.session.cap.ms": "600000"}
    with EmbeddedCluster(config=config) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_answers_equal_those_of_kafka(scenario: Callable[[GroupHarness], None], servers: str) -> None:
    expected, found = RECORDED[scenario.__name__], replay(scenario, servers)
    assert [label for label, _ in found] == [label for label, _ in expected]
    for (label, theirs), (_, ours) in zip(expected, found, strict=True):
        assert ours == theirs, label
