"""Reads what the fuzzer's inputs wrote: whatever a broker stores, consumers must get past."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from pyclient import Consumer, TopicPartition
from pyclient.errors import KafkaError, UnknownTopicOrPartition
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.fuzz.housekeeping import Caller
from tests.fuzz.state import RESERVED

_SECONDS: Final = 30.0


def unreadable(port: int) -> Iterator[tuple[str, str]]:
    """Yield a failure for each partition that a consumer cannot read to its end: its kind and text."""
    with Caller(port) as caller:
        topics = {
            topic.name: [partition.partition_index for partition in topic.partitions]
            for topic in caller.call(MetadataRequest(topics=None), 1).topics
            if topic.name and not topic.name.startswith(RESERVED)
        }
    for name, indexes in topics.items():
        partitions = [TopicPartition(name, index) for index in indexes]
        try:
            yield from _unread(f"127.0.0.1:{port}", partitions)
        except UnknownTopicOrPartition:  # requests of connections that are closed by now may still have removed it
            continue
        except KafkaError as error:
            yield type(error).__name__, f"{name}: {error}"


def _unread(address: str, partitions: list[TopicPartition]) -> Iterator[tuple[str, str]]:
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + _SECONDS
        left = {at for at, end in ends.items() if end}
        while left and time.monotonic() < deadline:
            consumer.poll(timeout=0.1)
            left = {at for at in left if consumer.position(at) < ends[at]}
        for at in left:
            yield "no progress", f"{at}: at {consumer.position(at)} of {ends[at]} after {_SECONDS:g} s"
