"""Producer ids of a node with other nodes: it takes them from blocks that the active controller reserves (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.errors import CoordinatorLoadInProgress, KafkaTimeout
from pyclient.errors.codes import from_code
from pyclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from pyclient.broker_embedded.replication.alter_partition import ControllerChannel

_TIMEOUT: Final = 10.0


class ProducerIds:
    """Returns ids that no node has returned before. `broker_epoch` returns this node's epoch."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], to_controller: ControllerChannel) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._to_controller = to_controller
        self._next = self._end = 0
        self._block: Future[AllocateProducerIdsResponse] | None = None

    async def next(self) -> int:
        """Return an id. Raise `CoordinatorLoadInProgress`, as Kafka does, while the controller gives no new block."""
        while self._next == self._end:
            if self._block is None:  # later calls wait for the same block
                request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
                self._block = self._to_controller.send(request, _TIMEOUT)
                self._block.add_done_callback(self._received)
            block = self._block
            try:
                response = await block
            except KafkaTimeout as error:  # clients try again
                raise CoordinatorLoadInProgress(f"no producer ids yet: {error}") from error
            if response.error_code:  # such as a stale broker epoch: this broker is registering again
                refusal = from_code(response.error_code, "the controller gave no producer ids")
                raise CoordinatorLoadInProgress(f"no producer ids yet: {refusal!r}")
            self._received(block)  # its callback may not have run yet, and awaiting what is done would not yield to it
        self._next += 1
        return self._next - 1

    def _received(self, done: Future[AllocateProducerIdsResponse]) -> None:
        if self._block is not done:
            return
        self._block = None
        if not done.cancelled() and done.exception() is None and not done.result().error_code:
            self._next = done.result().producer_id_start
            self._end = self._next + done.result().producer_id_len
