"""A transactional producer that is nothing but requests, in the protocol before or since transaction version 2."""

from __future__ import annotations

import time
from typing import Any

from pyclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pyclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pyclient.protocol.messages.end_txn import EndTxnRequest
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pyclient.records import build_batch, decode_key_values, iter_batches

GROUP = "group"


class RawProducer:
    """One producer of a transactional id on one connection. `version` 2 is that of KIP-890."""

    def __init__(self, client: Any, transactional_id: str = "x", version: int = 2) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        for key, kind in ((transactional_id, 1), (GROUP, 0)):
            assert client.call(FindCoordinatorRequest(key=key, key_type=kind), 3).error_code == 0

    def init(self) -> int:
        """Get an id and epoch; return the error code."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = self.client.call(request, 5)
        if not answer.error_code:
            self._now(answer)
        code: int = answer.error_code
        return code

    def _now(self, answer: Any) -> None:
        if (self.producer_id, self.epoch) != (answer.producer_id, answer.producer_epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self, *partitions: int, topic: str = "t") -> int:
        """Add partitions, as before version 2; return the first one's error code."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        answer = self.client.call(request, 3)
        code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return code

    def write(self, value: bytes, partition: int = 0, *, topic: str = "t", request_version: int | None = None) -> int:
        """Write one record in the transaction; return the error code."""
        topic_partition = topic, partition
        batch = build_batch(
            [(None, value)],
            timestamp_ms=round(time.time() * 1000),  # markers have the time, too: one segment
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(topic_partition, 0),
            transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=1000, topic_data=[data])
        answer = self.client.call(request, request_version or (12 if self.version == 2 else 11))
        code: int = answer.responses[0].partition_responses[0].error_code
        if not code:
            self.sequences[topic_partition] = self.sequences.get(topic_partition, 0) + 1
        return code

    def commit_offset(self, offset: int) -> int:
        """Commit an offset of t-0 for the group in the transaction; return the error code."""
        if self.version != 2:
            added = self.client.call(
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=GROUP,
                ),
                3,
            )
            if added.error_code:
                code: int = added.error_code
                return code
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        answer = self.client.call(request, 5 if self.version == 2 else 3)
        committed: int = answer.topics[0].partitions[0].error_code
        return committed

    def end(self, *, commit: bool) -> int:
        """End the transaction; return the error code."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.client.call(request, 5 if self.version == 2 else 4)
        if not answer.error_code and self.version == 2:
            self._now(answer)
        code: int = answer.error_code
        return code


def committed_values(client: Any, partition: int = 0, *, topic: str = "t") -> tuple[list[bytes], bool]:
    """Return what a reader of committed data finds, and whether it has reached the end of the log."""
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])], isolation_level=1
    )
    read = client.call(request, 11).responses[0].partitions[0]
    assert read.error_code == 0
    data = bytes(read.records or b"")
    aborted = {each.producer_id: each.first_offset for each in read.aborted_transactions}
    starts = sorted((each.first_offset, each.producer_id) for each in read.aborted_transactions)
    dropped: set[int] = set()
    values = []
    for position, header in iter_batches(data):
        while starts and starts[0][0] <= header.base_offset:
            dropped.add(starts.pop(0)[1])
        if header.is_control:
            dropped.discard(header.producer_id)
        elif header.producer_id not in dropped or header.producer_id not in aborted:
            values += [value for _offset, _time, _key, value in decode_key_values(data, position, header)]
    return [bytes(value or b"") for value in values], read.last_stable_offset == read.high_watermark


def committed_offset(client: Any, *, stable: bool = True) -> tuple[int, int]:
    """Return the group's offset of t-0 and the error code."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)], require_stable=stable)
    found = client.call(request, 8).groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code
