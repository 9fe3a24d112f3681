"""Topics of a broker, through a raw connection: create one, and ask for the ends of its partitions."""

from __future__ import annotations

from typing import Any

from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pyclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic


def create(client: Any, name: str, partitions: int = 1, **configs: str) -> Any:
    """Create a topic, with options such as `retention_ms="1"`, and return its part of the response."""
    options = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=options)
    [made] = client.call(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert made.error_code == 0, made
    return made


def end_of(client: Any, name: str, partition: int = 0) -> tuple[int, int]:
    """Return the error code and the end offset of a partition."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
    [answer] = client.call(request, 5).topics[0].partitions
    return answer.error_code, answer.offset


def end_offset(client: Any, name: str, partition: int = 0) -> int:
    """Return the end offset of a partition."""
    error_code, offset = end_of(client, name, partition)
    assert error_code == 0
    return offset
