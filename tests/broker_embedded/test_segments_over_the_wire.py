"""Clients see nothing of a log's segments."""

from __future__ import annotations

from typing import Any

from tests.broker_embedded.topics import create


def test_a_fetch_does_not_wait_for_more_than_its_segment_can_ever_hold(
    client: Any, produce: Any, batch: Any, fetch_request: Any
) -> None:
    create(client, "small", internal_segment_bytes="300")
    for _ in range(3):
        produce(client, "small", batch(b"x" * 100))
    request = fetch_request("small", {0: 0}, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1)
    [topic] = client.call(request, 11).responses
    assert 0 < len(topic.partitions[0].records) <= 300
