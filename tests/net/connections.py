"""Connections to a scripted broker, and requests and responses for them."""

from __future__ import annotations

from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import ClientConfig
from pyclient.net.connection import Connection
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

METADATA = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=1, host="h", port=9)], cluster_id="c", controller_id=1, topics=[]
)
ALL_TOPICS = MetadataRequest(topics=None)
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def config(address, **options):
    return ClientConfig(bootstrap_servers=(address,), **options)


async def connect(broker, **options):
    return await Connection.open(
        "127.0.0.1", broker.port, config=config(broker.address, **options), clock=SYSTEM_CLOCK, node_id=7
    )


async def lose_the_timer(connection):
    """Stop the timer that finds requests without a response: the next request has to start it."""
    if connection._timer is not None:
        connection._timer.cancel()
        connection._timer = connection.in_flight_requests.timer_at = None
