"""Groups in the consumer protocol (KIP-848), with both APIs, against the broker of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory
from tests.consumer.consumer_protocol import ConsumerProtocol, group

__all__ = ["group"]


@pytest.fixture(params=["sync", "async"])
def consumers(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Iterator[ConsumerFactory]:
    with ConsumerFactory(request.param, cluster.bootstrap_servers, "consumer") as factory:
        yield factory


class TestOnThisBroker(ConsumerProtocol):
    """The shared tests."""
