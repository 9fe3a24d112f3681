"""A broker of a file that is controlled over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.faults.http_control import Http


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(control_port=0) as cluster:
        yield cluster


@pytest.fixture
def control(cluster: EmbeddedCluster) -> Iterator[Http]:
    assert cluster.control_url is not None
    control = Http(cluster.control_url)
    yield control
    control.ask("DELETE", "/faults")
