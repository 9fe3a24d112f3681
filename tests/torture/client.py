"""Requests that a test of promises sends, each written down in an oracle before and after."""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pyclient.errors import KafkaError, ProtocolError
from pyclient.protocol import codec, framing
from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pyclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import build_batch, check_crc, decode_key_values, iter_batches
from pyclient.types import TopicPartition
from tests.torture.oracle import Oracle, PromiseBroken, TopicPromise

SECONDS: Final = 30.0
_NOT_LEADER, _COORDINATOR_NOT_AVAILABLE, _NOT_COORDINATOR, _LOADING = 6, 15, 16, 14


class Gone(Exception):
    """The broker closed the connection: nothing is known of the last request."""


class Client:
    """One connection; every wait is bounded, so that a broker that hangs is a `PromiseBroken`."""

    def __init__(self, bootstrap: str, oracle: Oracle, rng: random.Random) -> None:
        host, _, port = bootstrap.rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        except OSError as error:
            raise Gone(str(error)) from error
        self._numbers = itertools.count(1)
        self.oracle = oracle
        self.rng = rng

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    # One request

    def call(self, request: Any, version: int) -> Any:
        """Return the response; raise `Gone` if the connection ends."""
        number = next(self._numbers)
        try:
            self._socket.sendall(b"".join(framing.encode_request(request, version, number, "torture")))
            frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        except TimeoutError as error:
            raise PromiseBroken(f"no answer to {type(request).__name__} within {SECONDS:g} s") from error
        except OSError as error:
            raise Gone(str(error)) from error
        cls = type(request)
        _number, offset = framing.decode_response_header(cls, version, frame)
        return codec.decode(cls.response, version, frame, offset)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise Gone("the broker closed the connection")
            data += more
        return bytes(data)

    def _until(self, ask: Callable[[], tuple[int, Any]], passing: Iterable[int]) -> tuple[int, Any]:
        """Ask again while the error is one that passes by itself."""
        deadline = time.monotonic() + SECONDS
        while True:
            error, answer = ask()
            if error not in passing or time.monotonic() > deadline:
                return error, answer

    # Changes

    def create_topic(self, name: str, partitions: int, **configs: str) -> int:
        """Create a topic. Return the error code."""
        promise = self.oracle.topics[name] = TopicPromise(partitions)
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        [made] = self.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7).topics
        if not made.error_code:
            promise.created, promise.topic_id = True, made.topic_id
        return int(made.error_code)

    def delete_topic(self, name: str) -> int:
        """Delete a topic. Return the error code."""
        promise = self.oracle.topics[name]
        promise.deletion_begun = True
        [answer] = self.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5).responses
        promise.deleted = not answer.error_code
        return int(answer.error_code)

    def produce(self, partition: TopicPartition, values: list[bytes], timestamp_ms: int, **options: Any) -> int:
        """Append one batch. Return the error code."""
        promise = self.oracle.partitions[partition]
        promise.sent.update(values)
        key = options.pop("key", None)
        batch = build_batch([(key, value) for value in values], timestamp_ms=timestamp_ms, **options)
        data = PartitionProduceData(index=partition.partition, records=batch)
        topic = TopicProduceData(name=partition.topic, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
        [answer] = self.call(request, 9).responses[0].partition_responses
        if not answer.error_code:
            promise.acknowledged.update(enumerate(values, answer.base_offset))
        return int(answer.error_code)

    def delete_records(self, partition: TopicPartition, offset: int) -> int:
        """Move the start of a log. Return the error code."""
        promise = self.oracle.partitions[partition]
        promise.start_offset = max(promise.start_offset, offset)
        wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        topic = DeleteRecordsTopic(name=partition.topic, partitions=[wanted])
        [answer] = self.call(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2).topics[0].partitions
        return int(answer.error_code)

    def _find_coordinator(self, group: str) -> int:
        return int(self.call(FindCoordinatorRequest(key=group, key_type=0), 2).error_code)

    def commit(self, group: str, partition: TopicPartition, offset: int) -> int:
        """Commit an offset. Return the error code."""
        key = group, partition

        self._find_coordinator(group)
        self.oracle.commits_sent[key] = max(offset, self.oracle.commits_sent.get(key, -1))
        wanted = OffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name=partition.topic, partitions=[wanted])
        request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        [answer] = self.call(request, 7).topics[0].partitions
        if not answer.error_code:
            self.oracle.committed[key] = offset
        return int(answer.error_code)

    # What is there

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        return {topic.name for topic in self.call(MetadataRequest(topics=None), 9).topics}

    def bounds(self, partition: TopicPartition) -> tuple[int, int, int]:
        """Return (error, first offset, end offset)."""
        found = []
        for timestamp in (-2, -1):
            wanted = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])]
            )

            def ask(request: ListOffsetsRequest = request) -> tuple[int, int]:
                [answer] = self.call(request, 5).topics[0].partitions
                return answer.error_code, answer.offset

            error, offset = self._until(ask, (_NOT_LEADER,))
            if error:
                return error, -1, -1
            found.append(offset)
        return 0, found[0], found[1]

    def read(self, partition: TopicPartition, start: int, end: int) -> tuple[int, dict[int, bytes]]:
        """Return (error, value by offset) of what is there from `start` to `end`; an error ends the reading."""
        values: dict[int, bytes] = {}
        offset = start
        while offset < end:
            most = self.rng.choice((300, 5000, 1 << 20))
            wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=most)
            topic = FetchTopic(topic=partition.topic, partitions=[wanted])
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic])

            def ask(request: FetchRequest = request) -> tuple[int, Any]:
                [answer] = self.call(request, 11).responses[0].partitions
                return answer.error_code, answer

            error, answer = self._until(ask, (_NOT_LEADER,))
            if error:
                return error, values
            data, before = bytes(answer.records or b""), offset
            try:
                values.update((base, value) for base, value in _records(data) if base >= before)
                for _position, header in iter_batches(data):
                    offset = max(offset, header.next_offset)
            except (KafkaError, ProtocolError):  # a client refuses these bytes, too
                return 2, values
            if offset == before:
                return 2, values
        return 0, values

    def committed(self, group: str, partition: TopicPartition) -> tuple[int, int]:
        """Return (error, committed offset)."""
        topic = OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])

        def ask() -> tuple[int, Any]:
            self._find_coordinator(group)
            answer = self.call(OffsetFetchRequest(group_id=group, topics=[topic]), 5)
            return answer.error_code or answer.topics[0].partitions[0].error_code, answer

        passing = _COORDINATOR_NOT_AVAILABLE, _NOT_COORDINATOR, _LOADING
        error, answer = self._until(ask, passing)
        return error, -1 if error else answer.topics[0].partitions[0].committed_offset


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    for position, header in iter_batches(data):
        check_crc(data, position, header)
        if not header.is_control:
            for offset, _timestamp, _key, value in decode_key_values(data, position, header):
                yield offset, bytes(value or b"")
