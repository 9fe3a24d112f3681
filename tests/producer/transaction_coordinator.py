"""A transaction coordinator without a network, by Kafka's rules, whose transactions carry the test's own numbers."""

from __future__ import annotations

from pyclient import errors
from pyclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pyclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from pyclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pyclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FENCED = errors.ProducerFenced.code
CONCURRENT = errors.ConcurrentTransactions.code
INVALID_STATE = errors.InvalidTxnState.code


class ModelCoordinator:
    """The coordinator, the leaders and the group of one transactional id.

    `number` is that of the transaction that the producer is in; whatever a request adds carries the number that it was
    sent in. `ended` has the outcome of each number: True if committed.
    """

    def __init__(self, version):
        self.version = version  # transaction.version
        self.state = "Empty"
        self.producer_id, self.epoch = 7, -1
        self.content = []  # (number, what) of the ongoing transaction
        self.places = set()
        self.ended = {}
        self.committed = []
        self.torn = []

    def handle(self, message, number):
        """Return the answer to a request that was sent in transaction `number`."""
        return {
            InitProducerIdRequest: self.init,
            AddPartitionsToTxnRequest: self.add_partitions,
            AddOffsetsToTxnRequest: self.add_group,
            TxnOffsetCommitRequest: self.commit_offsets,
            EndTxnRequest: self.end,
        }[type(message)](message, number)

    def write_markers(self):
        """Finish a prepared end."""
        if self.state.startswith("Prepare"):
            self.state = self.state.replace("Prepare", "Complete")

    def init(self, message, number):
        if message.producer_id >= 0 and (message.producer_id, message.producer_epoch) != (self.producer_id, self.epoch):
            return self._init_answer(FENCED)
        if self.state == "Ongoing":
            self._finish(False)
            self.epoch += 1
            return self._init_answer(CONCURRENT)
        if self.state.startswith("Prepare"):
            return self._init_answer(CONCURRENT)
        self.state = "Empty"
        self.epoch += 1
        return self._init_answer(0)

    def _init_answer(self, code):
        return InitProducerIdResponse(
            error_code=code, producer_id=-1 if code else 7, producer_epoch=-1 if code else self.epoch
        )

    def add_partitions(self, message, number):
        code = self._adding(message.v3_and_below_producer_epoch, number)
        topics = message.v3_and_below_topics
        if not code:
            self.places |= {(topic.name, partition) for topic in topics for partition in topic.partitions}
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
                        for each in topic.partitions
                    ],
                )
                for topic in topics
            ],
        )

    def add_group(self, message, number):
        code = self._adding(message.producer_epoch, number)
        if not code:
            self.places.add(message.group_id)
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)

    def commit_offsets(self, message, number):
        code = self._adding(message.producer_epoch, number) if self.version >= 2 else 0
        if not code and (message.producer_epoch != self.epoch or self.state != "Ongoing"):
            code = errors.InvalidProducerEpoch.code
        if not code:
            assert self.version >= 2 or message.group_id in self.places
            self._add(number, "offsets")
        return TxnOffsetCommitResponse(
            throttle_time_ms=0,
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                        for each in topic.partitions
                    ],
                )
                for topic in message.topics
            ],
        )

    def produce(self, place, epoch, number):
        """Return the code for a batch, which the leader verifies (KIP-890, part 1)."""
        if epoch != self.epoch:
            return errors.InvalidProducerEpoch.code
        if self.version >= 2:
            code = self._adding(epoch, number)
        else:
            code = 0 if self.state == "Ongoing" and place in self.places else INVALID_STATE
        if not code:
            self._add(number, place)
        return code

    def end(self, message, number):
        result = "Commit" if message.committed else "Abort"
        if self.version >= 2 and message.producer_epoch == self.epoch - 1:  # again
            if self.state == f"Prepare{result}":
                return self._end_answer(CONCURRENT)
            return self._end_answer(0 if self.state == f"Complete{result}" else FENCED)
        if message.producer_epoch != self.epoch:
            return self._end_answer(FENCED)
        if self.state == "Ongoing":
            numbers = {each for each, _ in self.content}
            if numbers - {number}:
                self.torn.append((number, self.content[:]))
            self._finish(message.committed)
            self.state = f"Prepare{result}"
            self.epoch += self.version >= 2
            return self._end_answer(0)
        if self.version >= 2:
            if message.committed or self.state.startswith("Prepare"):
                return self._end_answer(CONCURRENT if self.state.startswith("Prepare") else INVALID_STATE)
            self.epoch += 1
            self.state = "CompleteAbort"
            return self._end_answer(0)
        if self.state == f"Prepare{result}":
            return self._end_answer(CONCURRENT)
        return self._end_answer(0 if self.state == f"Complete{result}" else INVALID_STATE)

    def _end_answer(self, code):
        if code or self.version < 2:
            return EndTxnResponse(throttle_time_ms=0, error_code=code)
        return EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=self.epoch)

    def _adding(self, epoch, number):
        if epoch != self.epoch:
            return FENCED
        if self.state.startswith("Prepare"):
            return CONCURRENT
        self.state = "Ongoing"
        return 0

    def _add(self, number, what):
        if any(each != number for each, _ in self.content):
            self.torn.append((number, self.content[:]))
        self.content.append((number, what))

    def _finish(self, committed):
        for number, what in self.content:
            self.ended[number] = committed
            if committed:
                self.committed.append((number, what))
        self.content, self.places = [], set()
        self.state = "CompleteAbort"
