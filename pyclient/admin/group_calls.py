"""An admin client's requests to group coordinators, retried while a coordinator moves or loads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyclient.admin import groups
from pyclient.admin.groups import GroupDescription, GroupListing
from pyclient.admin.topics import ItemResult, check_names, raise_errors
from pyclient.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    NotCoordinator,
    UnsupportedVersion,
    for_code,
    from_code,
)
from pyclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pyclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pyclient.protocol.messages.describe_groups import DescribeGroupsRequest
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.offset_commit import OffsetCommitRequest
from pyclient.protocol.messages.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from pyclient.cluster.client import ClusterClient
    from pyclient.cluster.retry import RetryPolicy
    from pyclient.protocol.fields import Request
    from pyclient.types import OffsetAndMetadata, TopicPartition

R = TypeVar("R")

_BY_NAME: Final = 9  # version 10 of OffsetFetch and OffsetCommit takes topic ids
_COORDINATOR_ERRORS: Final = frozenset(
    {NotCoordinator.code, CoordinatorNotAvailable.code, CoordinatorLoadInProgress.code}
)


class Deadline:
    """The time left for a call."""

    def __init__(self, seconds: Any) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, Real):
            raise TypeError(f"timeout={seconds!r} is not possible: it takes seconds, as a number")
        if not float(seconds) >= 0:
            raise ValueError(f"timeout={seconds!r} is not possible: it takes seconds from 0")
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + float(seconds)

    @property
    def seconds(self) -> float:
        return max(0.0, self._deadline - self._loop.time())

    @property
    def milliseconds(self) -> int:
        return min(max(1, round(self.seconds * 1000)), 2**31 - 1)


class GroupCalls:
    """The admin client's calls about groups."""

    def __init__(self, cluster: ClusterClient, retry_policy: RetryPolicy) -> None:
        self._cluster = cluster
        self._retry_policy = retry_policy

    async def list(self, states: Iterable[str], deadline: Deadline) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by id."""
        wanted = [states] if isinstance(states, str) else list(states)
        lower = {state.lower() for state in wanted}
        metadata = await self._cluster.wait_metadata(lambda known: bool(known.nodes), deadline.seconds)
        found: dict[str, GroupListing] = {}
        for node_id in metadata.nodes:

            async def attempt(node_id: int = node_id) -> Any:
                connection = await self._cluster.connection(node_id)
                version = connection.version_for(ListGroupsRequest)
                response = await connection.request(groups.list_request(version, wanted), version=version)
                _raise_error(response.error_code, f"listing the groups of {connection.address}", "ListGroups")
                return response

            response = await self._retry(attempt, f"listing the groups of node {node_id}", deadline)
            found |= {group.group_id: groups.listing(group) for group in response.groups}
        return [found[name] for name in sorted(found) if not lower or found[name].state.lower() in lower]

    async def describe(self, group_ids: Iterable[str], deadline: Deadline) -> dict[str, GroupDescription]:
        """Return groups with their members; raise `GroupIdNotFound`, with `results` for all, if one does not exist."""
        found: dict[str, GroupDescription] = {}
        results = []
        for group_id in group_ids:
            try:
                found[group_id] = await self._describe(group_id, deadline)
            except GroupIdNotFound as error:
                results.append(ItemResult(group_id, error.code, None))
            else:
                results.append(ItemResult(group_id, 0, None))
        raise_errors("describing", "DescribeGroups", results, what="group")
        return found

    async def _describe(self, group_id: str, deadline: Deadline) -> GroupDescription:
        """Describe a group of the consumer protocol if the broker knows it as such, else as a classic group."""
        try:
            consumer = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
            return groups.consumer_description(*await self._ask_about(group_id, consumer, deadline))
        except (GroupIdNotFound, UnsupportedVersion):
            pass  # a classic group, or a broker before Kafka 3.7
        classic = DescribeGroupsRequest(groups=[group_id])
        return groups.classic_description(*await self._ask_about(group_id, classic, deadline))

    async def _ask_about(
        self, group_id: str, request: ConsumerGroupDescribeRequest | DescribeGroupsRequest, deadline: Deadline
    ) -> tuple[Any, int]:
        """Return a description of the group and the coordinator's node id."""
        node_id, response, _version = await self._call_coordinator(
            group_id,
            "describing",
            lambda _version: request,
            lambda answer, _version: _error_code(answer.groups, group_id, "describing"),
            deadline,
        )
        return response.groups[0], node_id

    async def delete(self, group_ids: Iterable[str], deadline: Deadline) -> None:
        """Delete groups and their offsets."""
        results = [ItemResult(group_id, await self._delete(group_id, deadline), None) for group_id in group_ids]
        raise_errors("deleting", "DeleteGroups", results, what="group")

    async def _delete(self, group_id: str, deadline: Deadline) -> int:
        request = DeleteGroupsRequest(groups_names=[group_id])
        _node, response, _version = await self._call_coordinator(
            group_id,
            "deleting",
            lambda _version: request,
            lambda answer, _version: _coordinator_error(_error_code(answer.results, group_id, "deleting")),
            deadline,
        )
        code: int = response.results[0].error_code
        return code

    async def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool, deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets of a group; with `require_stable` once no open transaction commits some."""
        wanted = None if partitions is None else list(partitions)
        _node, response, version = await self._call_coordinator(
            group_id,
            "reading the offsets of",
            lambda version: groups.offsets_request(group_id, wanted, version, require_stable=require_stable),
            lambda answer, version: groups.offsets_error(answer, version, group_id),
            deadline,
            cls=OffsetFetchRequest,
        )
        found, failed = groups.committed_offsets(response, version)
        if wanted is not None:
            names = [str(partition) for partition in (*found, *failed) if partition not in wanted]
            check_names(f"reading the offsets of group {group_id!r}", names, (), what="partition")
        raise_errors(
            f"reading the offsets of group {group_id!r}:",
            "OffsetFetch",
            [ItemResult(str(partition), code, None) for partition, code in failed.items()],
            what="partition",
        )
        return found

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], deadline: Deadline
    ) -> None:
        """Set a group's committed offsets."""
        if not offsets:
            return
        _node, response, _version = await self._call_coordinator(
            group_id,
            "altering the offsets of",
            lambda _version: groups.commit_request(group_id, offsets),
            _coordinator_error_of_commit,
            deadline,
            cls=OffsetCommitRequest,
        )
        raise_errors(
            f"altering the offsets of group {group_id!r}:",
            "OffsetCommit",
            [
                ItemResult(f"{topic.name}-{partition.partition_index}", partition.error_code, None)
                for topic in response.topics
                for partition in topic.partitions
            ],
            what="partition",
            asked=[str(partition) for partition in offsets],
        )

    async def _call_coordinator(
        self,
        group_id: str,
        doing: str,
        build: Callable[[int], Request[Any]],
        error_code: Callable[[Any, int], int],
        deadline: Deadline,
        *,
        cls: type[Request[Any]] | None = None,
    ) -> tuple[int, Any, int]:
        """Return the coordinator's id, its response and the version; raise the error that `error_code` finds in it."""
        what = f"{doing} group {group_id!r}"
        kind = type(build(0)) if cls is None else cls
        maximum = _BY_NAME if cls is not None else None

        async def attempt() -> tuple[int, Any, int]:
            node_id = await self._cluster.find_coordinator(group_id, timeout=deadline.seconds)
            connection = await self._cluster.connection(node_id)
            version = connection.version_for(kind, maximum)
            response = await connection.request(build(version), version=version)
            code = error_code(response, version)
            if code in _COORDINATOR_ERRORS:
                self._cluster.forget_coordinator(group_id)
            _raise_error(code, f"{what}: {connection.address}", kind.name)
            return node_id, response, version

        return await self._retry(attempt, what, deadline)

    async def _retry(self, attempt: Callable[[], Awaitable[R]], what: str, deadline: Deadline) -> R:
        return await self._retry_policy.call(
            attempt, timeout=deadline.seconds, what=what, details=self._cluster.describe_failures
        )


def _error_code(answers: Sequence[Any], group_id: str, doing: str) -> int:
    """Return the error code of a response about one group; raise `MalformedMessage` if it is about other groups."""
    check_names(doing, [each.group_id for each in answers], [group_id], what="group")
    code: int = answers[0].error_code
    return code


def _coordinator_error(code: int) -> int:
    """Return the error code if another attempt may succeed, else 0."""
    return code if code in _COORDINATOR_ERRORS else 0


def _coordinator_error_of_commit(response: Any, _version: int) -> int:
    codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
    return next(iter(codes & _COORDINATOR_ERRORS), 0)


def _raise_error(code: int, what: str, api: str) -> None:
    if code:
        raise from_code(code, f"{what} answered {for_code(code).__name__}", api)
