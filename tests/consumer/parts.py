"""The parts inside a consumer that its tests look into, so that only this module names its private attributes."""

from __future__ import annotations

from typing import Any

from pyclient.cluster.metadata_updater import MetadataUpdater
from pyclient.consumer.client import ConsumerClient


def client_of(consumer: Any) -> ConsumerClient:
    """Return what the synchronous and the asyncio consumer share."""
    client: ConsumerClient = getattr(consumer, "raw", consumer)._client
    return client


def updater_of(consumer: Any) -> MetadataUpdater:
    """Return the part that refreshes the metadata."""
    return client_of(consumer).cluster._updater


def is_fetching(consumer: Any) -> bool:
    """Return True if a Fetch request has no response yet."""
    return any(slot.busy for slots in client_of(consumer).fetcher._slots.values() for slot in slots)


def bytes_held(consumer: Any) -> int:
    """Return the bytes of memory of whole responses, each of which is held until the last record of it is taken."""
    return sum(client_of(consumer).buffer._held.values())
