"""DescribeCluster v0-2: cluster id, controller and brokers; from v2 on also fenced brokers on request.

A listener for controllers describes these instead (KIP-919, endpoint type 2), to clients that may alter the cluster.
For the other type a listener answers MISMATCHED_ENDPOINT_TYPE, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.acls import CLUSTER_NAME, AclOperation, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.handlers.describe_quorum import voter_nodes
from pyclient.broker_embedded.handlers.metadata import NOT_REQUESTED, cluster_operations
from pyclient.broker_embedded.served_apis import OF_CONTROLLERS
from pyclient.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.broker_embedded.services import BrokerServices

BROKERS: Final = 1
CONTROLLERS: Final = 2
_TYPES: Final = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


@handles(DescribeClusterRequest, versions=(0, 2))
def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Answer with the brokers, or the controllers."""
    wanted, here = request.endpoint_type, BROKERS
    if context.connection.listener in OF_CONTROLLERS:
        here = CONTROLLERS
        if not context.may(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
            return _refused(errors.ClusterAuthorizationFailed("ALTER on the cluster is not allowed"))
    if wanted not in _TYPES:
        return _refused(errors.UnsupportedEndpointType(f"Unsupported endpoint type {wanted}"))
    if wanted != here:
        return _refused(
            errors.MismatchedEndpointType(
                f"The request was sent to an endpoint of type {_TYPES[here]}, but we wanted an endpoint of type "
                f"{_TYPES[wanted]}"
            )
        )
    services = context.services
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        endpoint_type=here,
        cluster_id=services.logs.directories.cluster_id,
        controller_id=_active(services) if here == CONTROLLERS else services.controller_id,
        brokers=list(_controllers(context) if here == CONTROLLERS else _brokers(request, context)),
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _active(services: BrokerServices) -> int:
    """Return the id of the active controller; -1 while it is unknown."""
    leader = None if services.quorum is None else services.quorum.leader_id
    return -1 if leader is None else leader


def _controllers(context: RequestContext) -> Iterator[DescribeClusterBroker]:
    for voter in voter_nodes(context):
        for listener in voter.listeners[:1]:
            yield DescribeClusterBroker(broker_id=voter.node_id, host=listener.host, port=listener.port)


def _brokers(request: DescribeClusterRequest, context: RequestContext) -> Iterator[DescribeClusterBroker]:
    services, bound = context.services, context.connection.bound
    for node_id, host, port, rack in services.listeners.advertised(context.connection):
        yield DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
    for broker in services.image.brokers.values() if request.include_fenced_brokers else ():
        if broker.fenced and (place := broker.endpoint(bound.config.name)) is not None:
            yield DescribeClusterBroker(
                broker_id=broker.node_id, host=place[0], port=place[1], rack=broker.rack, is_fenced=True
            )


def _refused(error: errors.BrokerError) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), cluster_id="", brokers=[]
    )
