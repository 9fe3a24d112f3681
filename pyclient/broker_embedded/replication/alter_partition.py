"""Sends proposals for in-sync replicas to the active controller: one AlterPartition request at a time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyclient import errors
from pyclient.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from uuid import UUID

    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.replication.partition import IsrChange
    from pyclient.protocol.messages.alter_partition import AlterPartitionResponse, AlterPartitionResponsePartitionData

log = logging.getLogger("pyclient.broker_embedded")

_TIMEOUT: Final = 30.0  # seconds; Kafka: controller.socket.timeout.ms
_BACKOFF: Final = 0.05


class ControllerChannel(Protocol):
    """Sends requests to the active controller, which may be another node or this one."""

    def send(self, request: Any, timeout: float) -> Future[Any]:
        """Return a future of the response; it fails if there was none within `timeout` seconds."""


class Proposal(NamedTuple):
    """A proposal, and the function that takes the controller's answer to it: an error code, or the new state."""

    topic_id: UUID
    partition: int
    change: IsrChange
    refused: Callable[[int], bool]
    """Takes an error; returns True if the proposal should be sent again."""
    accepted: Callable[[AlterPartitionResponsePartitionData], None]


class AlterPartitionManager:
    """Proposals of all partitions, sent together. Those that come while a request is on its way wait for the next."""

    def __init__(self, env: NodeEnvironment, to_controller: ControllerChannel) -> None:
        self._env = env
        self._to_controller = to_controller
        self._waiting: dict[tuple[UUID, int], Proposal] = {}
        self._sent: dict[tuple[UUID, int], Proposal] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<AlterPartitionManager waiting={len(self._waiting)} sent={len(self._sent)}>"

    def submit(self, proposal: Proposal) -> None:
        """Send a proposal. A waiting one of the same partition is replaced."""
        self._waiting[proposal.topic_id, proposal.partition] = proposal
        self._send()

    def close(self) -> None:
        """Send nothing any more."""
        self._closed = True
        self._waiting.clear()

    def _send(self) -> None:
        if self._closed or self._sent or not self._waiting:
            return
        self._sent, self._waiting = self._waiting, {}
        topics: dict[UUID, list[AlterPartitionRequestPartitionData]] = {}
        for (topic_id, index), proposal in self._sent.items():
            change = proposal.change
            members = [BrokerState(broker_id=node, broker_epoch=epoch) for node, epoch in change.isr]
            topics.setdefault(topic_id, []).append(
                AlterPartitionRequestPartitionData(
                    partition_index=index,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=members,
                    partition_epoch=change.partition_epoch,
                )
            )
        request = AlterPartitionRequest(
            broker_id=self._env.node_id,
            broker_epoch=self._env.broker_epoch,
            topics=[AlterPartitionRequestTopicData(topic_id=each, partitions=data) for each, data in topics.items()],
        )
        self._to_controller.send(request, _TIMEOUT).add_done_callback(self._answered)

    def _answered(self, done: Future[AlterPartitionResponse]) -> None:
        sent, self._sent = self._sent, {}
        if self._closed or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            text = "broker %d: AlterPartition of %d partitions failed, it is sent again: %s"
            log.warning(text, self._env.node_id, len(sent), error)
            self._repeat(sent)
            return
        response = done.result()
        if response.error_code:
            kind = errors.for_code(response.error_code).__name__
            text = "broker %d: the controller refused AlterPartition of %d partitions (%s), it is sent again"
            log.warning(text, self._env.node_id, len(sent), kind)
            self._repeat(sent)
            return
        again = dict(sent)
        for topic in response.topics:
            for answer in topic.partitions:
                proposal = again.get((topic.topic_id, answer.partition_index))
                if proposal is None:
                    continue
                if answer.error_code:
                    if not proposal.refused(answer.error_code):
                        del again[topic.topic_id, answer.partition_index]
                else:
                    del again[topic.topic_id, answer.partition_index]
                    proposal.accepted(answer)
        if again:
            self._repeat(again)
        else:
            self._send()

    def _repeat(self, proposals: dict[tuple[UUID, int], Proposal]) -> None:
        """Send proposals again after a pause, except those that were replaced or whose partitions have moved on."""
        for key, proposal in proposals.items():
            if proposal.refused(errors.UnknownServerError.code):
                self._waiting.setdefault(key, proposal)
        self._env.schedule(_BACKOFF, self._send)
