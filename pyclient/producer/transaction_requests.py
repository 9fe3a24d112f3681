"""The requests of a transactional producer, and what the error codes of their responses mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pyclient import errors
from pyclient.errors import KafkaError
from pyclient.producer.delivery import fresh_copy
from pyclient.producer.idempotence import ProducerIds
from pyclient.protocol.fields import Request
from pyclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pyclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from pyclient.protocol.messages.end_txn import EndTxnRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pyclient.types import ErrorAction, GroupMetadata, OffsetAndMetadata, TopicPartition

GROUP: Final = 0
TRANSACTION: Final = 1
"""Kinds of coordinators in FindCoordinator requests."""

_NAMED: Final = 5
"""Partitions that an error names at most."""


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A request to the coordinator of `key` (`kind`: GROUP or TRANSACTION), in at most version `maximum`."""

    message: Request[Any]
    key: str
    kind: int
    maximum: int


@dataclass(slots=True, eq=False)
class OffsetsToCommit:
    """The offsets of one `send_offsets_to_transaction` that are not written yet; `done` once all are."""

    group: GroupMetadata
    offsets: dict[TopicPartition, OffsetAndMetadata]
    done: bool = False


def init_producer_id(transactional_id: str, timeout_ms: int, ids: ProducerIds | None) -> TransactionRequest:
    """Return InitProducerId; with `ids` for the next epoch of this producer (KIP-360), else fencing all others."""
    message = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1 if ids is None else ids.producer_id,
        producer_epoch=-1 if ids is None else ids.epoch,
    )
    return TransactionRequest(message, transactional_id, TRANSACTION, 5)


def without_producer_id(request: TransactionRequest) -> TransactionRequest:
    """Return an InitProducerId for a coordinator before Kafka 2.5, which gives every caller the next epoch."""
    message = request.message
    assert isinstance(message, InitProducerIdRequest)
    return init_producer_id(message.transactional_id or "", message.transaction_timeout_ms, None)


def add_partitions(
    transactional_id: str, ids: ProducerIds, partitions: Iterable[tuple[str, int]]
) -> TransactionRequest:
    """Return AddPartitionsToTxn, after which the partitions accept records of the transaction."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=ids.producer_id,
        v3_and_below_producer_epoch=ids.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    return TransactionRequest(message, transactional_id, TRANSACTION, 3)


def add_offsets(transactional_id: str, ids: ProducerIds, group_id: str) -> TransactionRequest:
    """Return AddOffsetsToTxn, after which the group's coordinator accepts offsets of the transaction."""
    message = AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=ids.producer_id, producer_epoch=ids.epoch, group_id=group_id
    )
    return TransactionRequest(message, transactional_id, TRANSACTION, 4)


def commit_offsets(
    transactional_id: str, ids: ProducerIds, pending: OffsetsToCommit, *, adds_group: bool
) -> TransactionRequest:
    """Return TxnOffsetCommit; with `adds_group` in version 5, which adds the group to the transaction (KIP-890)."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), position in pending.offsets.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    group = pending.group
    message = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=ids.producer_id,
        producer_epoch=ids.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    return TransactionRequest(message, group.group_id, GROUP, 5 if adds_group else 4)


def end_transaction(transactional_id: str, ids: ProducerIds, *, commit: bool, next_epoch: bool) -> TransactionRequest:
    """Return EndTxn; with `next_epoch` in version 5, whose response has the next transaction's epoch (KIP-890)."""
    message = EndTxnRequest(
        transactional_id=transactional_id, producer_id=ids.producer_id, producer_epoch=ids.epoch, committed=commit
    )
    return TransactionRequest(message, transactional_id, TRANSACTION, 5 if next_epoch else 4)


class Consequence(Enum):
    """The consequences of an error code for the transaction."""

    RETRY = "retry"
    ABORT = "abort"
    NEW_ID = "abort, and get another producer id"
    FATAL = "fatal"


MOVED: Final = frozenset({errors.NotCoordinator.code, errors.CoordinatorNotAvailable.code})
"""Codes after which the coordinator is looked up again."""

_FATAL: Final = (
    errors.ProducerFenced,
    errors.InvalidProducerEpoch,
    errors.InvalidTxnState,
    errors.TransactionalIdAuthorizationFailed,
    errors.ClusterAuthorizationFailed,
    errors.InvalidTransactionTimeout,
    errors.TransactionCoordinatorFenced,
    errors.UnsupportedVersion,
    errors.UnsupportedForMessageFormat,
)
_NEW_ID: Final = (errors.UnknownProducerId, errors.InvalidProducerIdMapping)
_LOST_MEMBERSHIP: Final = (
    errors.UnknownMemberId,
    errors.IllegalGeneration,
    errors.FencedInstanceId,
    errors.FencedMemberEpoch,
    errors.StaleMemberEpoch,
    errors.RebalanceInProgress,
)
_CONSEQUENCES: Final[Mapping[int, Consequence]] = {
    **{cls.code: Consequence.FATAL for cls in _FATAL},
    **{cls.code: Consequence.NEW_ID for cls in _NEW_ID},
    **{cls.code: Consequence.ABORT for cls in _LOST_MEMBERSHIP},
}
_FATAL_FOR_RECORDS: Final = (
    errors.ProducerFenced,
    errors.TransactionalIdAuthorizationFailed,
    errors.ClusterAuthorizationFailed,
    errors.UnsupportedVersion,
)


def consequence_of(code: int) -> Consequence:
    """Return what a code in the response of a coordinator means."""
    found = _CONSEQUENCES.get(code)
    if found is None:
        found = Consequence.RETRY if errors.for_code(code).retriable else Consequence.ABORT
    return found


def consequence_for_records(error: KafkaError) -> Consequence:
    """Return what the failure of a batch means for its transaction.

    A leader's INVALID_PRODUCER_EPOCH is not final (KIP-588): the coordinator decides whether the producer is fenced.
    """
    if isinstance(error, _FATAL_FOR_RECORDS):
        return Consequence.FATAL
    return Consequence.NEW_ID if isinstance(error, _NEW_ID) else Consequence.ABORT


def error_for(code: int, request: TransactionRequest, response: Any, transactional_id: str) -> KafkaError:
    """Return the error of a code in a coordinator's response."""
    cls = errors.for_code(code)
    refused = _refused_parts(code, request, response)
    what = f"{request.message.name} of {refused}" if refused else request.message.name
    text = f"transactional id {transactional_id!r}: {what} was refused with {cls.__name__}"
    if cls in _LOST_MEMBERSHIP:
        failure = errors.CommitFailed(f"{text}: the consumer's group has given its partitions away")
        failure.__cause__ = errors.from_code(code, text)
        return failure
    if cls in (errors.ProducerFenced, errors.InvalidProducerEpoch):
        return errors.ProducerFenced(
            f"{text}: a newer producer with this transactional id has taken over, or the transaction exceeded "
            "transaction_timeout_ms"
        )
    return errors.from_code(code, text, request.message.name)


def _refused_parts(code: int, request: TransactionRequest, response: Any) -> str:
    """Return the partitions or the group that a code is about; empty if it is about the transaction."""
    if code == errors.GroupAuthorizationFailed.code:
        message: Any = request.message
        return f"group {message.group_id!r}"
    places = [str(place) for place, each in codes_of(response) if each == code and place is not None]
    return ", ".join(places[:_NAMED]) + (f" and {len(places) - _NAMED} more" if len(places) > _NAMED else "")


def acting(error: KafkaError, action: ErrorAction) -> KafkaError:
    """Return a copy of the error for one caller, with what to do about it."""
    copy = fresh_copy(error)
    copy.action = action
    return copy


def codes_of(response: Any) -> list[tuple[TopicPartition | None, int]]:
    """Return the error codes of any transactional response, each with its partition, or None for the transaction's."""
    if isinstance(response, AddPartitionsToTxnResponse):
        return [
            (TopicPartition(topic.name, result.partition_index), result.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]
    if isinstance(response, TxnOffsetCommitResponse):
        return list(offset_codes(response).items())
    return [(None, response.error_code)]


def offset_codes(response: TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    """Return the error codes of a TxnOffsetCommit response, 0 for written offsets."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
