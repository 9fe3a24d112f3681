"""InitProducerId v0-5: a producer id for an idempotent producer.

Every request gets a new id with epoch 0. A transactional id is refused, as there is no transaction coordinator, with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which no client retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, log
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext


@handles(InitProducerIdRequest, versions=(0, 5), durable=Durable.METADATA)
def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Answer with a new id, or an error."""
    try:
        _check(request)
        producer_id = context.node.controller.next_producer_id()
    except Exception as error:  # every failure is answered with its error code
        return InitProducerIdResponse(error_code=code_of(error, "InitProducerId"), producer_epoch=-1)
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)


def _check(request: InitProducerIdRequest) -> None:
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise errors.InvalidRequest("a producer id requires an epoch, and an epoch a producer id")
    if request.transactional_id is None:
        return
    if not request.transactional_id:
        raise errors.InvalidRequest("a transactional id must not be empty")
    if request.transaction_timeout_ms <= 0:
        timeout_ms = request.transaction_timeout_ms
        raise errors.InvalidTransactionTimeout(f"transaction.timeout.ms is {timeout_ms}: must be positive")
    log.warning("refused a transactional producer (transactional.id): transactions are not supported yet")
    raise errors.TransactionalIdAuthorizationFailed("this broker does not serve transactions yet")
