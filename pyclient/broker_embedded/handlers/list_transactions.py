"""ListTransactions 0-2: the transactional ids that this node coordinates (KIP-664).

Version 1 filters by the time that a transaction is open, 2 by a pattern of RE2 that matches the whole id (KIP-1152); an
id with other characters than topic names have matches none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.consumer.patterns import Regex
from pyclient.broker_embedded.transactions.state import DEAD
from pyclient.broker_embedded.transactions.state import TransactionState as State
from pyclient.errors import CoordinatorLoadInProgress, InvalidRegularExpression
from pyclient.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext

_LABELS = frozenset(state.label for state in State)


@handles(ListTransactionsRequest, versions=(0, 2))
def handle(request: ListTransactionsRequest, context: RequestContext) -> IncrementalTask[ListTransactionsResponse]:
    """Answer with the ids that pass every filter; filters that are no states are returned."""
    unknown = [name for name in request.state_filters if name not in _LABELS]
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = Regex(request.transactional_id_pattern)
        except InvalidRegularExpression:
            return _refused(InvalidRegularExpression.code)
    transactions = context.services.transactions
    if transactions.is_loading:
        return _refused(CoordinatorLoadInProgress.code)
    now_ms = context.services.clock.time_ms()
    states, producers = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    found = []
    for entry in transactions:
        yield None
        known = entry.metadata
        if (
            known.state is DEAD
            or (states and known.state.label not in states)
            or (producers and known.producer_id not in producers)
            or (request.duration_filter >= 0 and now_ms - known.start_ms <= request.duration_filter)
            or (pattern is not None and not pattern.matching([known.transactional_id]))
            or not context.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, known.transactional_id)
        ):
            continue
        found.append(
            TransactionState(
                transactional_id=known.transactional_id,
                producer_id=known.producer_id,
                transaction_state=known.state.label,
            )
        )
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=unknown, transaction_states=found
    )


def _refused(code: int) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=code, unknown_state_filters=[], transaction_states=[]
    )
