"""Topics of a fault's own: records are sent to them, and have to be there after the fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.kafka_call import call, check_code
from pyclient.errors import KafkaError, UnknownTopicOrPartition
from pyclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.chaos.history import OK, TopicChange
from tests.chaos.targets import HEALING_SECONDS, Targets
from tests.chaos.workload import Notes

RECORDS: Final = 30
_LOOK_SECONDS: Final = 0.1
_CALL_SECONDS: Final = 10.0

Sent = Mapping[tuple[int, int], bytes]
"""The acknowledged values by partition and offset."""


class Probe:
    """Creates topics, sends records to them and reads them again. `notes` get the changes of topics."""

    def __init__(self, cluster: EmbeddedCluster, targets: Targets, notes: Notes) -> None:
        self.cluster, self.targets, self.notes = cluster, targets, notes

    def create(self, topic: NewTopic) -> None:
        """Create a topic, whose history begins with that."""
        with Admin(self.cluster.bootstrap_servers) as admin:
            admin.create_topics([topic], timeout=HEALING_SECONDS)
        self.note_created(topic)

    def note_created(self, topic: NewTopic) -> None:
        """Note that a topic was created."""
        self.notes.add(TopicChange(topic.name, len(topic.assignments) or topic.partitions, OK))

    def send(self, topic: str, partitions: Sequence[int]) -> Sent:
        """Send records by turns to some partitions. Return the acknowledged ones, which are all."""
        sent = {}
        with Producer(self.cluster.bootstrap_servers, delivery_timeout_ms=round(HEALING_SECONDS * 1000)) as producer:
            for number in range(RECORDS):
                partition, value = partitions[number % len(partitions)], f"{topic}/{number}".encode()
                sent[partition, producer.send(topic, value, partition=partition).result().offset] = value
        return sent

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records before an offset."""
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=round(_CALL_SECONDS * 1000)
        )
        leader = self.cluster.node(self.targets.wait_leader(topic, partition))
        for answered in call(leader.config, request, _CALL_SECONDS).topics:
            for each in answered.partitions:
                check_code(each.error_code, None, f"deletion of records of {topic}-{partition}")

    def check_has(self, topic: str, sent: Sent) -> None:
        """Read a topic. Raise `AssertionError` if it lacks an acknowledged record."""
        found: dict[tuple[int, int], bytes | None] = {}
        deadline = time.monotonic() + HEALING_SECONDS
        with self._reader() as consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in range(self.targets.count(topic))])
            while not sent.keys() <= found.keys() and time.monotonic() < deadline:
                found |= {(each.partition, each.offset): each.value for each in consumer.poll(0.5)}
        lost = {at: value for at, value in sent.items() if found.get(at) != value}
        if lost:
            raise AssertionError(f"{topic}: {len(lost)} acknowledged records are lost: {lost}")

    def wait(self, topic: str, fits: Callable[[dict[str, Any]], bool], partition: int = 0) -> None:
        """Wait until the leader's view of a partition fits. Raise `TimeoutError`."""

        def look() -> bool:
            leader = self.cluster.leader_of(topic, partition)
            if leader is None:
                return False
            views = self.cluster.node(leader).call("GET", f"/topics/{topic}")["partitions"]
            return any(each["partition"] == partition and fits(each) for each in views)

        self.until(look, f"{topic}-{partition} is as wanted")

    def until(self, look: Callable[[], bool], what: str) -> None:
        """Look until something is so. Errors that pass are looked over. Raise `TimeoutError`."""
        deadline, last = time.monotonic() + HEALING_SECONDS, None
        while True:
            try:
                if look():
                    return
            except KafkaError as error:
                if not error.retriable and not isinstance(error, UnknownTopicOrPartition):
                    raise
                last = error
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {HEALING_SECONDS:g} s: {what}; the last error: {last!r}")
            time.sleep(_LOOK_SECONDS)  # between two looks

    def _reader(self) -> Consumer[bytes, bytes]:
        return Consumer(bootstrap_servers=self.cluster.bootstrap_servers, auto_offset_reset="earliest")
