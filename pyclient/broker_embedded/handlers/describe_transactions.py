"""DescribeTransactions v0: state and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(DescribeTransactionsRequest, versions=(0, 0))
def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> IncrementalTask[DescribeTransactionsResponse]:
    """Answer every id."""
    states = yield from in_steps(lambda each: _describe(each, context), request.transactional_ids)
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    try:
        known = context.services.transactions.describe(transactional_id)
    except Exception as error:  # every failure is answered with its error code
        return TransactionState(
            error_code=code_of(error, f"DescribeTransactions of {transactional_id!r}"),
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(known.partitions):
        if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            continue
        topics.setdefault(topic, []).append(partition)
    return TransactionState(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=known.state.label,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
