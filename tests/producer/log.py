"""A topic's records at the broker, read with plain Fetch requests."""

from __future__ import annotations

import asyncio
from typing import Any

from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import ClientConfig, parse_address
from pyclient.net.connection import Connection
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.records import check_crc, decode_batch, iter_batches


def read_log(servers: str, topic: str) -> dict[int, list[Any]]:
    """Return all records by partition."""
    return asyncio.run(_read(servers, topic))


async def _read(servers: str, topic: str) -> dict[int, list[Any]]:
    host, port = parse_address(servers)
    config = ClientConfig(bootstrap_servers=servers)
    connection = await Connection.open(host, port, config=config, clock=SYSTEM_CLOCK)
    try:
        metadata = await connection.request(
            MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        )
        partitions = [partition.partition_index for partition in metadata.topics[0].partitions]
        return {number: await _partition(connection, topic, number) for number in sorted(partitions)}
    finally:
        await connection.close()


async def _partition(connection: Connection, topic: str, partition: int) -> list[Any]:
    records: list[Any] = []
    while True:
        wanted = records[-1].offset + 1 if records else 0
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=2**24,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[FetchPartition(partition=partition, fetch_offset=wanted, partition_max_bytes=2**24)],
                )
            ],
        )
        response = await connection.request(request)
        answer = response.responses[0].partitions[0]
        assert not answer.error_code, answer
        data = bytes(answer.records or b"")
        fresh = []
        for position, header in iter_batches(data):
            check_crc(data, position, header)
            fresh += decode_batch(data, position, header, topic, partition, from_offset=wanted)
        if not fresh:
            return records
        records += fresh
