"""Answers to unusual requests equal the recorded answers of Kafka 4.3.1: null, empty, duplicate, truncated."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.config.loggers import PACKAGE
from pyclient.broker_embedded.served_apis import SERVED
from tests.broker_embedded.odd.replay import ROOMS, SETTINGS, differences, read_answers, replay
from tests.broker_embedded.odd.table import NOT_RECORDED, Scenario

RECORDED: Final[dict[str, Any]] = read_answers()

STRICTER: Final = "bytes that make no sense end the connection; Kafka reads over them"
OURS: Final = {
    "ApiVersions v-1": STRICTER,
    "a client id of other bytes": STRICTER,
    "a client id of -2 bytes": STRICTER,
    "a list of -2": STRICTER,
    "a name of other bytes": STRICTER,
    "a tag twice": STRICTER,
    "tags in disorder": STRICTER,
    "Produce v3: a byte more": "bytes after a batch are no batch: INVALID_RECORD; Kafka drops them silently",
    "Produce v8: a byte more": "as in v3",
    "Produce v12: a byte more": "as in v3",
    "DeleteTopics v6: by name, and by id": "one answer for the two, for the first; Kafka answers both",
    "CreatePartitions v0: far too many": "POLICY_VIOLATION, as for a new topic; Kafka: INVALID_REPLICA_ASSIGNMENT",
    "CreatePartitions v2: far too many": "as in v0",
    "CreatePartitions v3: far too many": "as in v0",
    "AlterClientQuotas v0: no number": "a quota that is no number is refused; Kafka takes it",
    "AlterClientQuotas v1: no number": "as in v0",
    "AddPartitionsToTxn v5: nothing": "an empty answer to no transactions; Kafka never answers",
}
"""Intended differences from Kafka, with the reason."""


def test_every_scenario_is_recorded_under_unique_label() -> None:
    labels = [scenario.label for room in ROOMS for scenario in room.SCENARIOS]
    assert len(set(labels)) == len(labels)
    assert set(labels) == RECORDED.keys()
    assert set(labels) >= OURS.keys()


def test_every_served_api_has_scenarios() -> None:
    assert {
        scenario.api for room in ROOMS for scenario in room.SCENARIOS if isinstance(scenario, Scenario)
    } == SERVED.keys() - NOT_RECORDED


@contextmanager
def levels_kept() -> Iterator[None]:
    """Restore the process-wide levels of loggers, which the scenarios change."""
    logger = logging.getLogger(PACKAGE)
    before = logger.level
    try:
        yield
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__.rpartition(".")[2])
def test_answers_equal_those_of_kafka(room: ModuleType) -> None:
    config = {**SETTINGS, "group.initial.rebalance.delay.ms": "0"}
    with levels_kept(), EmbeddedCluster(profile="kafka", config=config) as cluster:
        answers = dict(replay(cluster.bootstrap_servers, room.SCENARIOS))
    found = {label: list(differences(RECORDED[label], answer)) for label, answer in answers.items()}
    assert {label: texts for label, texts in found.items() if texts and label not in OURS} == {}
    assert {label for label, texts in found.items() if texts} == OURS.keys() & answers.keys()
