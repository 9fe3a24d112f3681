"""A fixture for fetch planning and response handling, without a network."""

from __future__ import annotations

from typing import Any

from pyclient.config import resolve
from pyclient.consumer.completed_fetch import CompletedFetch, Frame, Target
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.fetch_buffer import FetchBuffer, FetchCollector, FetchOutcome
from pyclient.consumer.fetch_plan import FetchPlan, FetchPlanner, high_bytes, low_bytes
from pyclient.consumer.subscription import AssignedPartition
from pyclient.protocol.messages.fetch import PartitionData
from pyclient.types import TopicPartition
from tests.consumer.consumer_samples import T0, T1, assigned, batch_of, parse_records


class FetchFixture:
    """Two partitions led by node 1, with planner, reader and buffer."""

    def __init__(self, *partitions: TopicPartition, position: int = 0, **options: Any) -> None:
        defaults = {"bootstrap_servers": "h:1", "max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 3_000}
        self.config = resolve(ConsumerConfig, {**defaults, **options})
        self.subscription, self.states = assigned(*(partitions or (T0, T1)), position=position)
        self.buffer = FetchBuffer(
            self.subscription, low_bytes=low_bytes(self.config), high_bytes=high_bytes(self.config), check_crcs=True
        )
        self.reader = FetchCollector(self.subscription, self.buffer, self.config, 0.1)
        self.leaders = dict.fromkeys(self.subscription.assignment(), 1)
        self.planner = FetchPlanner(self.subscription, self.buffer, self.config)

    def plan(
        self, node: int = 1, now: float = 0.0, reserved: int = 0, number: int = 0, other_in_flight: bool = False
    ) -> FetchPlan:
        self.planner.update(object(), lambda p: self.leaders[p])
        return self.planner.plan(node, number, now, other_in_flight=other_in_flight, reserved=reserved)

    def requested_second(self, now: float = 0.0) -> list[TopicPartition]:
        """Return the partitions of the second request while the first one is in flight."""
        return list(self.plan(now=now, number=1, other_in_flight=True).targets)

    def requested(self, now: float = 0.0) -> list[TopicPartition]:
        return list(self.plan(now=now).targets)

    def add_buffered(self, state: AssignedPartition, size: int) -> None:
        """Add `size` bytes of fetched data."""
        data = batch_of(state.fetch_offset, 1)
        parsed = parse_records(memoryview(data), *state.topic_partition, state.fetch_offset)
        state.fetch_offset = parsed.next_offset
        self.buffer.add(CompletedFetch(state, parsed, size, Frame(1, size)))

    def answer(
        self, state: AssignedPartition, now: float = 0.0, from_replica: bool = False, **data: Any
    ) -> FetchOutcome:
        outcome = FetchOutcome()
        target = Target(state, state.version, state.fetch_offset, from_replica)
        self.take(target, now, outcome, **data)
        return outcome

    def take(self, target: Target, now: float, outcome: FetchOutcome, **data: Any) -> None:
        fields: dict[str, Any] = {"error_code": 0, "high_watermark": 100, "records": None, **data}
        part = PartitionData(partition_index=target.state.topic_partition.partition, **fields)
        self.reader.take(target, part, Frame(1, len(fields["records"] or b"")), now, outcome)
