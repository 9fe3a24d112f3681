"""Skips tests that need a real Kafka where none can run."""

from __future__ import annotations

import pytest

from tests.kafka.jars import VERSIONS, why_not


def skip_without_kafka(version: str = VERSIONS[0]) -> None:
    """Skip the test if no real Kafka of that release can run here. Downloading the jars may take minutes."""
    reason = why_not(version)
    if reason:
        pytest.skip(reason)
