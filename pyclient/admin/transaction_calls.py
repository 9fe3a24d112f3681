"""An admin client's calls about transactions (KIP-664), and their values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyclient.admin.group_calls import Deadline
from pyclient.admin.topics import ItemResult, check_names, raise_errors
from pyclient.errors import (
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    MalformedMessage,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    for_code,
    from_code,
)
from pyclient.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pyclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.list_transactions import ListTransactionsRequest
from pyclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from pyclient.cluster.client import ClusterClient
    from pyclient.cluster.retry import RetryPolicy
    from pyclient.protocol.fields import Request

R = TypeVar("R")

_TRANSACTION: Final = 1  # the kind of coordinator
_MOVED: Final = frozenset({NotCoordinator.code, CoordinatorNotAvailable.code})
_NO_LEADER: Final = frozenset({NotLeaderOrFollower.code, LeaderNotAvailable.code, UnknownTopicOrPartition.code})
_PATTERN_SINCE: Final = 2
_DURATION_SINCE: Final = 1


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id that a coordinator knows; `state` is Kafka's, like `Ongoing` or `CompleteCommit`."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its present or last transaction; `started_ms` is None if none is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: int


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer with state in a partition; `transaction_start_offset` is None if it has no open transaction there."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class TransactionCalls:
    """The admin client's calls about transactions."""

    def __init__(self, cluster: ClusterClient, retry_policy: RetryPolicy) -> None:
        self._cluster = cluster
        self._retry_policy = retry_policy

    async def listings(
        self,
        states: Iterable[str],
        producer_ids: Iterable[int],
        longer_than_ms: int | None,
        pattern: str | None,
        deadline: Deadline,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, sorted."""
        request = ListTransactionsRequest(
            state_filters=[states] if isinstance(states, str) else list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )
        least = _PATTERN_SINCE if pattern is not None else _DURATION_SINCE if longer_than_ms is not None else 0
        metadata = await self._cluster.wait_metadata(lambda known: bool(known.nodes), deadline.seconds)
        found: dict[str, TransactionListing] = {}
        for node_id in metadata.nodes:

            async def attempt(node_id: int = node_id) -> Any:
                connection = await self._cluster.connection(node_id)
                version = max(connection.version_for(ListTransactionsRequest), least)  # an older broker refuses it
                response = await connection.request(request, version=version)
                _raise_error(response.error_code, f"listing the transactions of {connection.address}", request.name)
                return response

            response = await self._retry(attempt, f"listing the transactions of node {node_id}", deadline)
            for each in response.transaction_states:
                found[each.transactional_id] = TransactionListing(
                    each.transactional_id, each.producer_id, each.transaction_state
                )
        return [found[name] for name in sorted(found)]

    async def describe(self, transactional_ids: Iterable[str], deadline: Deadline) -> dict[str, TransactionDescription]:
        """Return transactional ids; raise `TransactionalIdNotFound`, with `results` for all, if one does not exist."""
        found: dict[str, TransactionDescription] = {}
        results = []
        for name in transactional_ids:
            request = DescribeTransactionsRequest(transactional_ids=[name])
            node_id, response = await self._call_coordinator(
                name, "describing", request, _code_of_description, deadline
            )
            states = response.transaction_states
            check_names("describing", [each.transactional_id for each in states], [name], what="transactional id")
            results.append(ItemResult(name, states[0].error_code, None))
            found[name] = _description(states[0], node_id)
        raise_errors("describing", "DescribeTransactions", results, what="transactional id")
        return found

    async def fence(self, transactional_ids: Iterable[str], deadline: Deadline) -> None:
        """Give every transactional id a new epoch, and so abort its transaction."""
        results = []
        for name in transactional_ids:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=deadline.milliseconds)
            _, response = await self._call_coordinator(name, "fencing", request, _code_at_the_top, deadline)
            results.append(ItemResult(name, response.error_code, None))
        raise_errors("fencing", "InitProducerId", results, what="transactional id")

    async def producers(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Return the producers with state in partitions, as their leaders know them."""
        found = {}
        for place in dict.fromkeys(TopicPartition(*each) for each in partitions):
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=place.topic, partition_indexes=[place.partition])]
            )
            response = await self._call_leader(
                place, "describing the producers of", request, _code_of_producers, deadline
            )
            found[place] = [
                ProducerDescription(
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.coordinator_epoch,
                    each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
                )
                for each in response.topics[0].partitions[0].active_producers
            ]
        return found

    async def abort(
        self, place: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int, deadline: Deadline
    ) -> None:
        """Write an abort marker for a producer into one partition."""
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])],
            coordinator_epoch=coordinator_epoch,
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        await self._call_leader(place, "aborting a transaction of", request, _code_of_marker, deadline)

    async def _call_coordinator(
        self,
        name: str,
        doing: str,
        request: Request[Any],
        error_code: Callable[[Any], int],
        deadline: Deadline,
    ) -> tuple[int, Any]:
        """Return the coordinator's id and its response, once that has no error that passes."""
        what = f"{doing} transactional id {name!r}"

        async def attempt() -> tuple[int, Any]:
            node_id = await self._cluster.find_coordinator(name, kind=_TRANSACTION, timeout=deadline.seconds)
            connection = await self._cluster.connection(node_id)
            response = await connection.request(request)
            code = error_code(response)
            if code in _MOVED:
                self._cluster.forget_coordinator(name, _TRANSACTION)
            if for_code(code).retriable:
                _raise_error(code, f"{what}: {connection.address}", request.name)
            return node_id, response

        return await self._retry(attempt, what, deadline)

    async def _call_leader(
        self,
        place: TopicPartition,
        doing: str,
        request: Request[Any],
        error_code: Callable[[Any], int],
        deadline: Deadline,
    ) -> Any:
        """Return the response of the partition's leader; raise the error in it."""
        what = f"{doing} {place}"

        async def attempt() -> Any:
            info = await self._cluster.topic_partitions(place.topic, deadline.seconds, partitions=place.partition + 1)
            leader = info.partitions[place.partition].leader
            if leader < 0:
                self._cluster.request_refresh()
                raise LeaderNotAvailable(f"{what}: the partition has no leader")
            connection = await self._cluster.connection(leader)
            response = await connection.request(request)
            code = error_code(response)
            if code in _NO_LEADER:
                self._cluster.request_refresh()
            _raise_error(code, f"{what}: {connection.address}", request.name)
            return response

        return await self._retry(attempt, what, deadline)

    async def _retry(self, attempt: Callable[[], Awaitable[R]], what: str, deadline: Deadline) -> R:
        return await self._retry_policy.call(
            attempt, timeout=deadline.seconds, what=what, details=self._cluster.describe_failures
        )


def _description(state: Any, node_id: int) -> TransactionDescription:
    started = state.transaction_start_time_ms
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        started if started >= 0 else None,
        tuple(TopicPartition(topic.topic, each) for topic in state.topics for each in topic.partitions),
        node_id,
    )


def _code_at_the_top(response: Any) -> int:
    code: int = response.error_code
    return code


def _code_of_description(response: Any) -> int:
    return next((state.error_code for state in response.transaction_states), 0)


def _code_of_producers(response: Any) -> int:
    return _only([part.error_code for topic in response.topics for part in topic.partitions])


def _code_of_marker(response: Any) -> int:
    parts = [part for marker in response.markers for topic in marker.topics for part in topic.partitions]
    return _only([part.error_code for part in parts])


def _only(codes: list[int]) -> int:
    if len(codes) != 1:
        raise MalformedMessage(f"the answer is about {len(codes)} partitions, and the request was about one")
    return codes[0]


def _raise_error(code: int, what: str, api: str) -> None:
    if code:
        raise from_code(code, f"{what} answered {for_code(code).__name__}", api)
