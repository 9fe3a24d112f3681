"""Consumers of both APIs with each kind of rebalance: eager, cooperative, and consumer protocol."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.consumer.consumer_factory import ConsumerFactory

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "eager": ("classic", {"partition_assignment_strategy": "range"}),
    "cooperative": ("classic", {"partition_assignment_strategy": "cooperative-sticky"}),
    "consumer": ("consumer", {}),
}


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=[f"{api}-{way}" for api in ("sync", "async") for way in WAYS])
def consumers(request: pytest.FixtureRequest, cluster: Any) -> Iterator[ConsumerFactory]:
    """Create consumers of one API with one kind of rebalance; the test runs with all of them."""
    api, _, way = request.param.partition("-")
    protocol, options = WAYS[way]
    with ConsumerFactory(api, cluster.bootstrap_servers, protocol, **options) as factory:
        yield factory
