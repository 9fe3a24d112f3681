"""FindCoordinator 0-6: the broker that coordinates a group (type 0) or a transactional id (type 1).

The first request of each kind creates `__consumer_offsets` or `__transaction_state`. Share groups are not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.broker_embedded.replication.auto_topic_creation import ensure_internal_topic
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.errors import BrokerError, CoordinatorNotAvailable, InvalidRequest
from pyclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext

_GROUP: Final = 0
_TRANSACTION: Final = 1
_BATCHED: Final = 4


@handles(FindCoordinatorRequest, versions=(0, 6), durable=Durable.OWN_METADATA)
def handle(request: FindCoordinatorRequest, context: RequestContext) -> IncrementalTask[FindCoordinatorResponse]:
    """Answer for one key, or from version 4 on for several."""
    if context.version >= _BATCHED:
        coordinators = yield from in_steps(lambda key: _find(key, request.key_type, context), request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _find(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(key: str, key_type: int, context: RequestContext) -> Coordinator:
    try:
        node_id, host, port = _coordinator(key, key_type, context)
    except BrokerError as error:
        text = message_of(error)
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=text)
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=0, error_message=None)


def _coordinator(key: str, key_type: int, context: RequestContext) -> tuple[int, str, int]:
    services = context.services
    if key_type == _GROUP:
        topic = OFFSETS_TOPIC
        ensure_internal_topic(topic, services)
        partition = services.groups.groups.partition_of(key)
        loaded = services.groups.groups.loaded_partitions()
    elif key_type == _TRANSACTION:
        topic = TRANSACTIONS_TOPIC
        ensure_internal_topic(topic, services)
        partition = services.transactions.partition_of(key)
        loaded = services.transactions.loaded_partitions
    else:
        raise InvalidRequest(f"coordinators of type {key_type} are not served: groups (0) and transactions (1) are")
    if services.replicas is not None:
        return _leader_of(topic, partition, context)
    if partition not in loaded:
        raise CoordinatorNotAvailable(f"{topic}-{partition} has no leader yet")
    addresses = services.listeners.advertised(context.connection)
    return next((node_id, host, port) for node_id, host, port, _ in addresses if node_id == services.node_id)


def _leader_of(topic: str, index: int, context: RequestContext) -> tuple[int, str, int]:
    """Return the node that leads a partition of an internal topic, in a cluster of several nodes."""
    partition = context.services.image.partition(topic, index)
    for node_id, host, port, _rack in context.services.listeners.advertised(context.connection):
        if partition is not None and node_id == partition.leader:
            return node_id, host, port
    raise CoordinatorNotAvailable(f"{topic}-{index} has no live leader")
