"""pytest fixtures for users' tests: a broker for the session, and a fresh topic for each test."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyclient.broker_embedded import EmbeddedCluster

_CLUSTER: pytest.StashKey[EmbeddedCluster] = pytest.StashKey()


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """An embedded one-node cluster, started on first use and shared by the session.

    It is repaired at the end of each test: faults are cancelled, the request log is off, and the broker runs.
    """
    from pyclient.broker_embedded import EmbeddedCluster

    with EmbeddedCluster() as cluster:
        request.config.stash[_CLUSTER] = cluster
        yield cluster
        del request.config.stash[_CLUSTER]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Repair the cluster before fixtures close their clients, since a fault could block that."""
    cluster = item.config.stash.get(_CLUSTER, None)
    if cluster is not None and "kafka_cluster" in getattr(item, "fixturenames", ()):
        cluster.repair()


@pytest.fixture
def kafka_topic(kafka_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """The name of a new topic of one partition, named after the test."""
    from pyclient.admin import Admin, NewTopic

    stem = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:200]
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    with Admin(kafka_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1, 1)])
    return name
