"""Requests at a controller's listener before its node has read the metadata: only super users are served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import ClientConfig
from pyclient.config.broker_security import AUTHORIZER, STANDARD_AUTHORIZER
from pyclient.net.connection import Connection
from pyclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from tests.broker_embedded.quorum.several_nodes import Nodes
from tests.waiting import until_async

MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS: Final = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{MODULE} username="node" password="n" user_node="n" user_alice="a";'
    ),
    AUTHORIZER: STANDARD_AUTHORIZER,
    "super.users": "User:node;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
PARTITION: Final = DescribeQuorumRequestPartitionData(partition_index=0)
REQUEST: Final = DescribeQuorumRequest(
    topics=[DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[PARTITION])]
)


async def describe_quorum(address: tuple[str, int], user: str, password: str) -> int:
    """Return the error of the request as a whole."""
    config = ClientConfig(
        bootstrap_servers=("localhost:9092",),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=user,
        sasl_password=password,
    )
    connection = await Connection.open(*address, config=config, clock=SYSTEM_CLOCK)
    try:
        return (await connection.request(REQUEST, timeout=30, version=0)).error_code
    finally:
        connection.end("answered")


def test_controller_serves_only_super_users_before_it_has_the_metadata(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3, **SETTINGS)

    async def main() -> None:
        try:
            first: BrokerNode = await nodes.start(1)  # alone it is no majority, and does not know what is committed
            at = nodes.addresses[1]
            assert await describe_quorum(at, "alice", "a") == errors.UnknownServerError.code
            assert await describe_quorum(at, "node", "n") == errors.NotController.code
            assert not first.listeners.serving
            await nodes.start(2)
            await until_async(lambda: first.quorum is not None and first.quorum.loaded, "the metadata are loaded")
            assert await describe_quorum(at, "alice", "a") in (0, errors.NotController.code)
        finally:
            await nodes.__aexit__()

    asyncio.run(main())
