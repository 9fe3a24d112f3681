"""What clients see of the fact that a log is made of segments: nothing."""

from __future__ import annotations

from typing import Any

from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


def test_a_fetch_does_not_wait_for_more_than_its_segment_can_ever_hold(
    client: Any, produce: Any, batch: Any, fetch_request: Any
) -> None:
    config = CreatableTopicConfig(name="internal.segment.bytes", value="300")
    wanted = CreatableTopic(name="small", num_partitions=1, replication_factor=1, assignments=[], configs=[config])
    assert client.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == 0
    for _ in range(3):
        produce(client, "small", batch(b"x" * 100))
    request = fetch_request("small", {0: 0}, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1)
    [topic] = client.call(request, 11).responses
    assert 0 < len(topic.partitions[0].records) <= 300
