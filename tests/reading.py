"""Read a topic from its beginning to its end."""

from __future__ import annotations

from typing import Any

from pyclient import Consumer, Record, TopicPartition
from tests.waiting import until


def read_all(servers: str, topic: str, partitions: int = 1, **options: Any) -> list[Record[Any, Any]]:
    """Return the records up to the ends that the partitions have now; `options` are further ones of the consumer."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    records: list[Record[Any, Any]] = []
    with Consumer[Any, Any](bootstrap_servers=servers, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)

        def at_the_end() -> bool:
            if all(consumer.position(place) >= end for place, end in ends.items()):
                return True
            records.extend(consumer.poll(1.0))
            return False

        until(at_the_end, lambda: (ends, consumer.health()))
    return records
