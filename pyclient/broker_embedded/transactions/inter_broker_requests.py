"""Requests of transactions to other nodes: markers for the partitions these lead, and the verification of writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.transactions.promise import Promise
from pyclient.errors import (
    ConnectionFailed,
    CoordinatorNotAvailable,
    NotLeaderOrFollower,
)
from pyclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pyclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable

    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.network.node_channels import NodeChannels
    from pyclient.broker_embedded.transactions.runtime import Marker

_TIMEOUT: Final = 10.0  # seconds


class InterBrokerRequests:
    """Requests to other nodes. A failure is an error code, after which the caller or the client tries again."""

    def __init__(self, env: NodeEnvironment, channels: NodeChannels) -> None:
        self._env = env
        self._channels = channels

    def close(self) -> None:
        """End the connections."""
        self._channels.close()

    def write_markers(
        self,
        leader: int,
        marker: Marker,
        partitions: Iterable[TopicPartition],
        done: Callable[[TopicPartition, int], None],
    ) -> None:
        """Send a marker to the leader of these partitions; `done` gets each with an error code."""
        wanted = list(partitions)
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=marker.commit,
                    topics=[
                        WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                        for topic, indexes in _by_topic(wanted).items()
                    ],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
            ]
        )

        def answered(answer: Future[Any]) -> None:
            codes = dict.fromkeys(wanted, NotLeaderOrFollower.code)
            if not answer.cancelled() and answer.exception() is None:
                for written in answer.result().markers:
                    for topic in written.topics:
                        for each in topic.partitions:
                            codes[TopicPartition(topic.name, each.partition_index)] = each.error_code
            for partition in wanted:
                done(partition, codes[partition])

        self._send(leader, request).add_done_callback(answered)

    def verify(
        self,
        coordinator: int,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> Promise[dict[TopicPartition, int]]:
        """Ask the coordinator of an id whether partitions are in the transaction, or (`adds`) to add them."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=not adds,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in _by_topic(partitions).items()
            ],
        )
        codes: Promise[dict[TopicPartition, int]] = Promise()

        def answered(answer: Future[Any]) -> None:
            found = dict.fromkeys(partitions, CoordinatorNotAvailable.code)
            if not answer.cancelled() and answer.exception() is None:
                response = answer.result()
                if response.error_code:
                    found = dict.fromkeys(partitions, response.error_code)
                for result in response.results_by_transaction:
                    for topic in result.topic_results:
                        for each in topic.results_by_partition:
                            found[TopicPartition(topic.name, each.partition_index)] = each.partition_error_code
            codes.set(found)

        self._send(coordinator, AddPartitionsToTxnRequest(transactions=[transaction])).add_done_callback(answered)
        return codes

    def _send(self, node_id: int, request: Any) -> Future[Any]:
        broker = self._env.image.brokers.get(node_id)
        if broker is None or broker.fenced:
            failed: Future[Any] = self._env.loop.create_future()
            failed.set_exception(ConnectionFailed(f"node {node_id} is not in the cluster now"))
            return failed
        return self._channels.to(node_id, *self._env.place_of(broker)).send(request, _TIMEOUT)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics
