"""Results of the batches in a Produce response, and what follows for each: delivered, retry, split or failed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from pyclient import errors
from pyclient.errors import BrokerError, KafkaError
from pyclient.producer.delivery import fresh_copy
from pyclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
)


class Disposition(Enum):
    """The disposition of a batch after an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    SPLIT = "split"
    FAILED = "failed"


NO_RECORD_ERRORS: Final[Mapping[int, str | None]] = MappingProxyType({})


class PartitionAnswer(NamedTuple):
    """The response for one batch; `record_errors` has messages by the record's index (KIP-467)."""

    code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    message: str | None = None
    record_errors: Mapping[int, str | None] = NO_RECORD_ERRORS


TOO_LARGE: Final = frozenset({errors.MessageTooLarge.code, errors.RecordListTooLarge.code})
LOST_ITS_PLACE: Final = frozenset({errors.OutOfOrderSequenceNumber.code, errors.UnknownProducerId.code})
DUPLICATE: Final = errors.DuplicateSequenceNumber.code
FENCED: Final = errors.InvalidProducerEpoch.code

STALE_METADATA: Final = frozenset(
    {
        errors.NotLeaderOrFollower.code,
        errors.UnknownTopicOrPartition.code,
        errors.LeaderNotAvailable.code,
        errors.FencedLeaderEpoch.code,
        errors.ReplicaNotAvailable.code,
        errors.KafkaStorageError.code,
        errors.NetworkError.code,
        errors.UnknownTopicId.code,
        errors.InconsistentTopicId.code,
    }
)
"""Codes after which metadata is refreshed."""

NOT_WRITTEN: Final = TOO_LARGE | LOST_ITS_PLACE | frozenset(
    {
        FENCED,
        errors.CorruptMessage.code,
        errors.UnknownTopicOrPartition.code,
        errors.UnknownTopicId.code,
        errors.LeaderNotAvailable.code,
        errors.InvalidTopic.code,
        errors.NotEnoughReplicas.code,
        errors.InvalidRequiredAcks.code,
        errors.TopicAuthorizationFailed.code,
        errors.ClusterAuthorizationFailed.code,
        errors.InvalidTimestamp.code,
        errors.InvalidRecord.code,
        errors.PolicyViolation.code,
        errors.UnsupportedVersion.code,
        errors.UnsupportedForMessageFormat.code,
        errors.UnsupportedCompressionType.code,
        errors.InvalidTxnState.code,
        errors.ProducerFenced.code,
    }
)  # fmt: skip
"""Codes that a broker returns only before it writes. Others may come after the write: NotLeaderOrFollower, for example,
also when a leader that has appended the batch is replaced while it waits for the replicas."""

_ADVICE: Final[Mapping[int, str]] = {
    errors.MessageTooLarge.code: "send smaller records, or raise the topic's max.message.bytes",
    errors.RecordListTooLarge.code: "send smaller records, or raise the topic's segment.bytes",
}
_OTHERS: Final = "the batch's other records can be sent again"


def error_of(answer: PartitionAnswer, partition: str, node: int, attempts: int, detail: str = "") -> BrokerError:
    """Return the response's code as an error that names partition, broker and attempt; `detail` is appended."""
    text = f"{partition}: broker {node} did not take the batch (attempt {attempts})"
    for more in (answer.message, detail):
        text = f"{text}: {more}" if more else text
    advice = _OTHERS if answer.record_errors else _ADVICE.get(answer.code)
    return errors.from_code(answer.code, f"{text}; {advice}" if advice else text, "Produce")


def record_errors_of(answer: PartitionAnswer, partition: str, node: int) -> dict[int, BaseException]:
    """Return the errors of the records because of which the broker refused their batch (KIP-467), by index."""
    cls = errors.for_code(answer.code)
    return {
        index: cls(f"{partition}: broker {node} refused this record: {message or answer.message or cls.__name__}")
        for index, message in answer.record_errors.items()
    }


def disposition_of(
    code: int, *, count: int, attempts: int, retries: int, idempotent: bool, outcome_unknown: bool
) -> Disposition:
    """Return the disposition of a batch of `count` records whose attempt number `attempts` got `code`.

    `outcome_unknown`: an earlier attempt may have been written.
    """
    if code in (0, DUPLICATE):
        return Disposition.DELIVERED
    if code in TOO_LARGE:
        return Disposition.SPLIT if count > 1 else Disposition.FAILED
    if attempts > retries:
        return Disposition.FAILED
    if idempotent and code == FENCED:
        return Disposition.FAILED if outcome_unknown else Disposition.RETRY
    return Disposition.RETRY if errors.for_code(code).retriable else Disposition.FAILED


def with_maybe_persisted(error: KafkaError, maybe_persisted: bool) -> KafkaError:
    """Return a copy of the error for one batch; `maybe_persisted`: its records may be in the log."""
    copy = fresh_copy(error)
    copy.maybe_persisted = maybe_persisted
    return copy


def with_detail(error: BaseException, detail: str) -> KafkaError:
    """Return a copy of the error with `detail` appended to its text."""
    assert isinstance(error, KafkaError)
    copy = fresh_copy(error)
    copy.args = (f"{error}: {detail}",)
    return copy


def at_partition(error: KafkaError, partition: str) -> KafkaError:
    """Return a copy of the error with the partition's name in front of its text."""
    copy = fresh_copy(error)
    copy.args = (f"{partition}: {error}",)
    return copy


def answers_by_partition(response: ProduceResponse) -> dict[tuple[str, int], PartitionAnswer]:
    """Return a response's answers by (topic, partition); of several for one partition the first counts."""
    answers: dict[tuple[str, int], PartitionAnswer] = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            place = (topic.name, partition.index)
            if place not in answers:
                answers[place] = _answer(partition)
    return answers


def _answer(partition: PartitionProduceResponse) -> PartitionAnswer:
    if not partition.error_code:
        return PartitionAnswer(0, partition.base_offset, partition.log_append_time_ms)
    return PartitionAnswer(
        partition.error_code,
        partition.base_offset,
        partition.log_append_time_ms,
        partition.error_message,
        {record.batch_index: record.batch_index_error_message for record in partition.record_errors}
        if partition.record_errors
        else NO_RECORD_ERRORS,
    )
