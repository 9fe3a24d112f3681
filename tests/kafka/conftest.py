"""A real Kafka for the tests: of each release, or the one at PYCLIENT_TEST_BOOTSTRAP."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kafka.jars import VERSIONS
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import REPLICATED, RealKafka
from tests.kafka.three import KINDS, OURS, Three, takes_seconds_on_ours, three_nodes_of

GIVEN = os.environ.get("PYCLIENT_TEST_BOOTSTRAP")
HERE = Path(__file__).parent


class Cluster(NamedTuple):
    """A Kafka that serves; `version` is the release whose tools fit it."""

    bootstrap_servers: str
    version: str


OWN_KAFKA = {"test_parity_answers"}
"""Modules in which each test starts a Kafka of its own."""
SEVERAL_NODES = {"test_consumer_cluster", "test_consumer_rolling", "test_faults", "test_producer_cluster"}
"""Modules with three nodes, whose sessions end when the machine is too busy: never two of them at a time."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here needs Kafka, has time to start it on a busy machine, and runs with those that share it."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow if _is_slow_on_ours(item) else pytest.mark.kafka)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))
            if item.path.stem not in OWN_KAFKA:
                item.add_marker(pytest.mark.xdist_group(_group(item)))


def _is_slow_on_ours(item: pytest.Item) -> bool:
    """Return True if it is a test on three nodes of ours that takes some seconds, and needs nothing of Kafka."""
    callspec, function = getattr(item, "callspec", None), getattr(item, "function", None)
    return callspec is not None and OURS in callspec.params.values() and takes_seconds_on_ours(function)


def _group(item: pytest.Item) -> str:
    """Return the name of the tests that run in one process after each other, so that each Kafka starts once."""
    if "started" in getattr(item, "fixturenames", ()):
        callspec = getattr(item, "callspec", None)
        version = callspec.params.get("kafka") if callspec else None
        return f"kafka {version or VERSIONS[0]}"
    if item.path.stem in SEVERAL_NODES:
        callspec = getattr(item, "callspec", None)
        return f"several nodes of {OURS if callspec is not None and OURS in callspec.params.values() else 'kafka'}"
    return item.path.stem


@pytest.fixture(scope="session")
def kafka_tools() -> None:
    """Java and Kafka's tools are here, or the test is skipped."""
    skip_without_kafka()


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[[str], Cluster]]:
    """`started(version)`: one node of that release, started when first asked for."""
    with ExitStack() as running:

        @cache
        def start(version: str) -> Cluster:
            skip_without_kafka(version)
            kafka = running.enter_context(RealKafka(version, heap="512M"))
            return Cluster(kafka.bootstrap_servers, version)

        yield start


@pytest.fixture(params=["given"] if GIVEN else list(VERSIONS))
def kafka(request: pytest.FixtureRequest, started: Callable[[str], Cluster]) -> Cluster:
    """One node of each release, or the cluster that was given."""
    return Cluster(GIVEN, VERSIONS[0]) if GIVEN else started(request.param)


@pytest.fixture
def newest(started: Callable[[str], Cluster]) -> Cluster:
    """One node of the newest release, with the settings of `RealKafka`."""
    return started(VERSIONS[0])


@pytest.fixture(scope="module", params=KINDS)
def three_nodes(request: pytest.FixtureRequest) -> Iterator[Three]:
    """Three nodes that a test may pause, kill and restart; it leaves them all running."""
    with three_nodes_of(request.param, REPLICATED) as nodes:
        yield nodes


@pytest.fixture
def topic() -> str:
    """A new topic name."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """A new group name."""
    return f"group-{uuid.uuid4().hex[:12]}"
