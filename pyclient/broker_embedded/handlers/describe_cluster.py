"""DescribeCluster v0-2: cluster id, controller and brokers; from v2 on also fenced brokers on request.

A broker's listener does not describe controllers (endpoint type 2): MISMATCHED_ENDPOINT_TYPE, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.handlers.metadata import NOT_REQUESTED, cluster_operations
from pyclient.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext

BROKERS: Final = 1
CONTROLLERS: Final = 2
_MISMATCHED: Final = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"


@handles(DescribeClusterRequest, versions=(0, 2))
def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Answer with the brokers."""
    if request.endpoint_type == CONTROLLERS:
        return _refused(errors.MismatchedEndpointType(_MISMATCHED))
    if request.endpoint_type != BROKERS:
        return _refused(errors.UnsupportedEndpointType(f"Unsupported endpoint type {request.endpoint_type}"))
    services = context.services
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        cluster_id=services.logs.directories.cluster_id,
        controller_id=services.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in services.listeners.advertised(context.connection)
        ]
        + _fenced(context, wanted=request.include_fenced_brokers),
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _fenced(context: RequestContext, *, wanted: bool) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=broker.node_id,
            host=place[0],
            port=place[1],
            rack=broker.rack,
            is_fenced=True,
        )
        for broker in context.services.image.brokers.values()
        if wanted and broker.fenced and (place := broker.endpoint(context.connection.bound.config.name)) is not None
    ]


def _refused(error: errors.BrokerError) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), cluster_id="", brokers=[]
    )
