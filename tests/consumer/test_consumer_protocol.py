"""Groups in the consumer protocol (KIP-848), over both faces, against the broker of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_faces import Faces
from tests.consumer.consumer_protocol import ConsumerProtocol, group

__all__ = ["group"]


@pytest.fixture(params=["sync", "async"])
def consumers(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Iterator[Faces]:
    with Faces(request.param, cluster.bootstrap_servers, "consumer") as faces:
        yield faces


class TestOnThisBroker(ConsumerProtocol):
    """What every broker with the protocol does."""
