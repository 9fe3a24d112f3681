"""TxnOffsetCommit 0-5: store a group's positions as part of a transaction; they are visible when it commits.

Version 2 has leader epochs, 3 the member and its generation; 5 adds the group to the transaction (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controller.topics import OFFSETS_TOPIC
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.offset_metadata_manager import Commit, Position
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.broker_embedded.transactions.promise import Promise
from pyclient.broker_embedded.transactions.verification import verify
from pyclient.errors import (
    BrokerError,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotCoordinator,
    ProducerFenced,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from pyclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext

_ABORTABLE_SINCE: Final = 4
_ADDS_SINCE: Final = 5


@handles(TxnOffsetCommitRequest, versions=(0, 5), durable=Durable.GROUPS)
def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> IncrementalTask[Any]:
    """Verify that the group is in the transaction, or add it, and write the positions of existing partitions."""
    image = context.services.image
    positions: dict[TopicPartition, Position] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            if image.partition(topic.name, partition.partition_index) is not None:
                positions[TopicPartition(topic.name, partition.partition_index)] = Position(
                    partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
                )
            yield None
    if not positions:
        return (yield from _response(request, {}))
    try:
        verified = _verify(request, context)
    except BrokerError as error:
        return (yield from _response(request, dict.fromkeys(positions, error.code)))
    code = verified.value
    if code is None:
        loop = context.services.loop
        return verified.answer(loop, lambda found: run_here(_commit(request, context, positions, found)))
    return (yield from _commit(request, context, positions, code))


def _verify(request: TxnOffsetCommitRequest, context: RequestContext) -> Promise[int]:
    services = context.services
    partition = TopicPartition(OFFSETS_TOPIC, services.groups.groups.partition_of(request.group_id))
    producer = request.producer_id, request.producer_epoch
    try:
        log, _epoch = services.partitions.leader(*partition)
    except BrokerError as error:  # the producer has to look for the group's coordinator again
        raise NotCoordinator(f"group {request.group_id!r}: {error}") from error
    if log.producers.is_in_transaction(*producer):
        return Promise.of(0)
    adds = context.version >= _ADDS_SINCE
    guard = -1
    code: Promise[int] = Promise()

    def note_guard() -> None:
        nonlocal guard
        guard = log.producers.guard(request.producer_id)

    def verified(codes: Mapping[TopicPartition, int]) -> None:
        ended = log.producers.guard(request.producer_id) != guard  # meanwhile
        code.set(codes[partition] or (TransactionAbortable.code if ended else 0))

    verify(services, request.transactional_id, producer, [partition], adds=adds, before_attempt=note_guard).then(
        verified
    )
    return code


def _commit(
    request: TxnOffsetCommitRequest, context: RequestContext, positions: Mapping[TopicPartition, Position], code: int
) -> IncrementalTask[TxnOffsetCommitResponse]:
    if code:
        if code == ProducerFenced.code:
            code = InvalidProducerEpoch.code
        if code == TransactionAbortable.code and context.version < _ABORTABLE_SINCE:
            code = InvalidTxnState.code
        return (yield from _response(request, dict.fromkeys(positions, code)))
    commit = Commit(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        positions=positions,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    codes = yield from context.services.groups.offsets.commit(request.group_id, commit)
    return (yield from _response(request, codes))


def _response(
    request: TxnOffsetCommitRequest, codes: Mapping[TopicPartition, int]
) -> IncrementalTask[TxnOffsetCommitResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            code = codes.get(TopicPartition(topic.name, each.partition_index), UnknownTopicOrPartition.code)
            partitions.append(TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code))
            yield None
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)
