"""A real Kafka for the tests: of each release, or the one at PYCLIENT_TEST_BOOTSTRAP."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kafka.jars import VERSIONS
from tests.kafka.runner import RealKafka, why_not

GIVEN = os.environ.get("PYCLIENT_TEST_BOOTSTRAP")
HERE = Path(__file__).parent


class Cluster(NamedTuple):
    """A Kafka that serves; `version` is the release whose tools fit it."""

    bootstrap_servers: str
    version: str


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here needs Kafka, and has time to start it; tests of one release run together."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.kafka)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session")
def kafka_tools() -> None:
    """Java and Kafka's tools are here, or the test is skipped."""
    reason = why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session", params=["given"] if GIVEN else list(VERSIONS))
def kafka(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One node of each release."""
    if GIVEN:
        yield Cluster(GIVEN, VERSIONS[0])
        return
    reason = why_not(request.param)
    if reason:
        pytest.skip(reason)
    with RealKafka(request.param, heap="512M") as kafka:
        yield Cluster(kafka.bootstrap_servers, kafka.version)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[RealKafka]:
    """Three nodes that a test may pause, kill and restart; it leaves them all running."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    settings = {"min.insync.replicas": "2", "broker.session.timeout.ms": "4000", "replica.lag.time.max.ms": "4000"}
    with RealKafka(nodes=3, heap="512M", settings=settings) as kafka:
        yield kafka


@pytest.fixture
def topic() -> str:
    """A topic name that nobody has used."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """A group name that nobody has used."""
    return f"group-{uuid.uuid4().hex[:12]}"
