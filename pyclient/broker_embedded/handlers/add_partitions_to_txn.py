"""AddPartitionsToTxn 0-5: register partitions with a transaction.

Up to version 3 a client adds partitions to its transaction. From 4 on other brokers send several transactions: they
verify (`verify_only`) or add partitions for a client that writes to them (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.transactions.promise import Promise
from pyclient.errors import (
    InvalidProducerEpoch,
    OperationNotAttempted,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from pyclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction

_BATCHED: Final = 4
_ADDS_IMPLICITLY: Final = 5
"""The version in which brokers add partitions for producers of transaction version 2."""
_FENCED_SINCE: Final = 2

Codes = dict[TopicPartition, int]


@handles(AddPartitionsToTxnRequest, versions=(0, 5))
def handle(request: AddPartitionsToTxnRequest, context: RequestContext) -> Any:
    """Answer every partition of every transaction."""
    loop = context.node.loop
    if context.version < _BATCHED:
        topics = request.v3_and_below_topics
        codes = _add(
            context,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            topics,
            client_version=0,
        )
        return codes.answer(
            loop,
            lambda found: AddPartitionsToTxnResponse(
                throttle_time_ms=0, results_by_topic_v3_and_below=_results(topics, found, context.version)
            ),
        )
    results: list[AddPartitionsToTxnResult] = []
    done: Promise[None] = Promise()
    remaining = len(request.transactions)

    def add(transaction: AddPartitionsToTxnTransaction, found: Codes) -> None:
        nonlocal remaining
        topics = _results(transaction.topics, found, context.version)
        results.append(AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics))
        remaining -= 1
        if not remaining:
            done.set(None)

    if not remaining:
        done.set(None)
    for each in request.transactions:
        _of_broker(each, context).then(lambda found, each=each: add(each, found))  # type: ignore[misc]
    return done.answer(loop, lambda _: AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results))


def _of_broker(transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> Promise[Codes]:
    ids = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        return Promise.of(context.node.transactions.verify(*ids, frozenset(_partitions(transaction.topics))))
    version = 2 if context.version >= _ADDS_IMPLICITLY else 0
    return _add(context, *ids, transaction.topics, client_version=version)


def _add(
    context: RequestContext,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    topics: Sequence[AddPartitionsToTxnTopic],
    *,
    client_version: int,
) -> Promise[Codes]:
    """Add the partitions, all or none."""
    partitions = _partitions(topics)
    image = context.node.image
    missing = {each for each in partitions if image.partition(*each) is None}
    codes: Promise[Codes] = Promise()
    if missing:
        codes.set(
            {each: (UnknownTopicOrPartition if each in missing else OperationNotAttempted).code for each in partitions}
        )
        return codes
    added = context.node.transactions.add_partitions(
        transactional_id, producer_id, epoch, frozenset(partitions), client_version=client_version
    )
    added.then(lambda outcome: codes.set(dict.fromkeys(partitions, outcome.error)))
    return codes


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, int], version: int
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=fenced_code(codes[TopicPartition(topic.name, index)], version, _FENCED_SINCE),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def fenced_code(code: int, version: int, since: int) -> int:
    """Return the code for a client: versions before `since` do not have PRODUCER_FENCED."""
    return InvalidProducerEpoch.code if code == ProducerFenced.code and version < since else code
