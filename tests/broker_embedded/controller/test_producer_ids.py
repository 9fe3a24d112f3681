"""Producer ids from blocks of the controller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.controller.producer_ids import ProducerIds
from pyclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse


class Controller:
    """Reserves blocks of three ids; `error` refuses."""

    def __init__(self) -> None:
        self.start = 100
        self.error = 0
        self.asked: list[tuple[int, int]] = []

    def send(self, request: Any, timeout: float) -> asyncio.Future[Any]:
        """Answer in the loop's next turn."""
        self.asked.append((request.broker_id, request.broker_epoch))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        response = AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=self.error, producer_id_start=self.start, producer_id_len=3
        )
        self.start += 3
        asyncio.get_running_loop().call_soon(future.set_result, response)
        return future


def test_requests_at_one_time_share_a_block() -> None:
    async def run() -> None:
        controller = Controller()
        ids = ProducerIds(7, lambda: 40, controller)
        assert sorted(await asyncio.gather(*(ids.next() for _ in range(7)))) == list(range(100, 107))
        assert controller.asked == [(7, 40)] * 3

    asyncio.run(run())


def test_refused_block_is_asked_for_again() -> None:
    async def run() -> None:
        controller = Controller()
        controller.error = errors.StaleBrokerEpoch.code
        ids = ProducerIds(7, lambda: 40, controller)
        with pytest.raises(errors.CoordinatorLoadInProgress, match="StaleBrokerEpoch"):
            await ids.next()
        controller.error = 0
        assert await ids.next() == 103

    asyncio.run(run())
