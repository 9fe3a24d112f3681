"""Small requests for tests of the codec."""

from __future__ import annotations

from typing import Any

from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def fetch_request(**changes: Any) -> FetchRequest:
    partition = FetchPartition(partition=3, fetch_offset=42, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="orders", partitions=[partition])]
    return FetchRequest(**{"max_wait_ms": 500, "min_bytes": 1, "topics": topics, **changes})


def produce_request(*records: Any) -> ProduceRequest:
    partitions = [PartitionProduceData(index=index, records=data) for index, data in enumerate(records)]
    topics = [TopicProduceData(name="orders", partition_data=partitions)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)


def heartbeat(**changes: Any) -> HeartbeatRequest:
    return HeartbeatRequest(**{"group_id": "billing", "generation_id": 1, "member_id": "m", **changes})
