"""Consumers of both faces that rebalance in each way there is: eager, cooperative, and assigned by the broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.consumer.consumer_faces import Faces

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "eager": ("classic", {"partition_assignment_strategy": "range"}),
    "cooperative": ("classic", {"partition_assignment_strategy": "cooperative-sticky"}),
    "consumer": ("consumer", {}),
}


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=[f"{face}-{way}" for face in ("sync", "async") for way in WAYS])
def consumers(request: pytest.FixtureRequest, cluster: Any) -> Iterator[Faces]:
    """Makes consumers of one face that rebalance in one way; a test that takes it runs over all of them."""
    face, _, way = request.param.partition("-")
    protocol, options = WAYS[way]
    with Faces(face, cluster.bootstrap_servers, protocol, **options) as faces:
        yield faces
