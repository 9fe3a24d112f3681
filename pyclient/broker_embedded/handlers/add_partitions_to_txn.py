"""AddPartitionsToTxn 0-5: register partitions with a transaction.

Up to version 3 a client adds partitions to its transaction. From 4 on other brokers send several transactions: they
verify (`verify_only`) or add partitions for a client that writes to them (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.broker_embedded.transactions.promise import Promise
from pyclient.errors import (
    InvalidProducerEpoch,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from pyclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext

_BATCHED: Final = 4
_ADDS_IMPLICITLY: Final = 5
"""The version in which brokers add partitions for producers of transaction version 2."""
_FENCED_SINCE: Final = 2

Codes = dict[TopicPartition, int]


@handles(AddPartitionsToTxnRequest, versions=(0, 5))
def handle(request: AddPartitionsToTxnRequest, context: RequestContext) -> IncrementalTask[Any]:
    """Answer every partition of every transaction."""
    if context.version < _BATCHED:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    else:
        transactions = request.transactions
    asked: list[Promise[Codes]] = []
    for each in transactions:
        codes = yield from _ask(each, context)
        asked.append(codes)
    if all(codes.value is not None for codes in asked):
        return (yield from _response(transactions, asked, context.version))
    return _later(transactions, asked, context)


async def _later(
    transactions: Sequence[AddPartitionsToTxnTransaction], asked: Sequence[Promise[Codes]], context: RequestContext
) -> AddPartitionsToTxnResponse:
    for codes in asked:
        if codes.value is None:
            await codes.future(context.services.loop)
    return run_here(_response(transactions, asked, context.version))


def _ask(transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> IncrementalTask[Promise[Codes]]:
    """Verify the partitions of a transaction, or add them, all or none."""
    partitions: dict[TopicPartition, bool] = {}  # partition -> whether it exists
    image = context.services.image
    for topic in transaction.topics:
        for index in topic.partitions:
            partitions[TopicPartition(topic.name, index)] = image.partition(topic.name, index) is not None
            yield None
    ids = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        return Promise.of(context.services.transactions.verify(*ids, frozenset(partitions)))
    if context.version < _BATCHED:
        denied = {
            topic.name
            for topic in transaction.topics
            if not context.may(AclOperation.WRITE, ResourceType.TOPIC, topic.name)
        }
        if denied:
            return Promise.of({each: _code_of_denied(each.topic in denied) for each in partitions})
    if not all(partitions.values()):
        return Promise.of(
            {
                each: OperationNotAttempted.code if exists else UnknownTopicOrPartition.code
                for each, exists in partitions.items()
            }
        )
    added = context.services.transactions.add_partitions(
        *ids, frozenset(partitions), client_version=2 if context.version >= _ADDS_IMPLICITLY else 0
    )
    codes: Promise[Codes] = Promise()
    added.then(lambda outcome: codes.set(dict.fromkeys(partitions, outcome.error)))
    return codes


def _code_of_denied(denied: bool) -> int:
    return TopicAuthorizationFailed.code if denied else OperationNotAttempted.code


def _response(
    transactions: Sequence[AddPartitionsToTxnTransaction], asked: Sequence[Promise[Codes]], version: int
) -> IncrementalTask[AddPartitionsToTxnResponse]:
    results = []
    for transaction, codes in zip(transactions, asked, strict=True):
        topics = yield from _results(transaction.topics, codes.value or {}, version)
        results.append(AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics))
    if version < _BATCHED:
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results[0].topic_results)
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, int], version: int
) -> IncrementalTask[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        partitions = []
        for index in topic.partitions:
            code = fenced_code(codes[TopicPartition(topic.name, index)], version, _FENCED_SINCE)
            partitions.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
            yield None
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
    return results


def fenced_code(code: int, version: int, since: int) -> int:
    """Return the code for a client: versions before `since` do not have PRODUCER_FENCED."""
    return InvalidProducerEpoch.code if code == ProducerFenced.code and version < since else code
