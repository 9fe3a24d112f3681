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

GIVEN = os.environ.get("PYCLIENT_TEST_BOOTSTRAP")
HERE = Path(__file__).parent


class Cluster(NamedTuple):
    """A Kafka that serves; `version` is the release whose tools fit it."""

    bootstrap_servers: str
    version: str


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here needs Kafka, and has time to start it on a busy machine."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.kafka)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))


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


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[RealKafka]:
    """Three nodes that a test may pause, kill and restart; it leaves them all running."""
    skip_without_kafka()
    with RealKafka(nodes=3, heap="512M", settings=REPLICATED) as kafka:
        yield kafka


@pytest.fixture
def topic() -> str:
    """A topic name that nobody has used."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """A group name that nobody has used."""
    return f"group-{uuid.uuid4().hex[:12]}"
