"""Producer ids of several nodes: every node has its own block from the active controller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyclient.broker_embedded.controller.producer_ids import ProducerIds
from pyclient.broker_embedded.network.node_channels import NodeChannels
from pyclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker_embedded.quorum.several_nodes import Nodes
from tests.broker_embedded.quorum.test_brokers import all_know


def test_nodes_give_out_different_producer_ids(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            await nodes.active()
            await all_know(nodes, 1, 2, 3)
            channels = NodeChannels(asyncio.get_running_loop(), "client")
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
            )
            answers = [
                await channels.to(node.node_id, "127.0.0.1", node.port).send(request, 10.0)
                for node in [*nodes.running.values()] * 2
            ]
            channels.close()
            assert [answer.error_code for answer in answers] == [0] * 6
            ids = [answer.producer_id for answer in answers]
            assert len(set(ids)) == 6
            assert [second - first for first, second in zip(ids, ids[3:], strict=False)] == [1, 1, 1]

    asyncio.run(run())


def test_id_requested_as_the_block_arrives_is_of_that_block() -> None:
    """The response is there, and the callback that takes it runs in the next iteration of the loop."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[AllocateProducerIdsResponse] = loop.create_future()
        controller: Any = SimpleNamespace(send=lambda *_: answer)
        ids = ProducerIds(1, lambda: 1, controller)
        earlier = loop.create_task(ids.next())
        await asyncio.sleep(0)
        answer.set_result(
            AllocateProducerIdsResponse(throttle_time_ms=0, error_code=0, producer_id_start=1_000, producer_id_len=2)
        )
        assert sorted([await ids.next(), await earlier]) == [1_000, 1_001]

    asyncio.run(run())
