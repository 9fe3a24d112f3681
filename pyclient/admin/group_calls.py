"""What an admin client asks of groups' coordinators: tried again while a coordinator moves or loads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pyclient.admin import groups
from pyclient.admin.groups import GroupDescription, GroupListing
from pyclient.admin.topics import Refusal, check_answered, raise_refusals
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
_MOVED: Final = frozenset({NotCoordinator.code, CoordinatorNotAvailable.code, CoordinatorLoadInProgress.code})


class Left(Protocol):
    """The time left for a call."""

    @property
    def seconds(self) -> float:
        """Seconds."""


class GroupCalls:
    """The calls about groups, on a cluster."""

    def __init__(self, cluster: ClusterClient, retrying: RetryPolicy) -> None:
        self._cluster = cluster
        self._retrying = retrying

    async def list(self, states: Iterable[str], left: Left) -> list[GroupListing]:
        """The groups of all brokers, by their ids."""
        wanted = [states] if isinstance(states, str) else list(states)
        plain = {state.lower() for state in wanted}
        metadata = await self._cluster.wait_metadata(lambda known: bool(known.nodes), left.seconds)
        found: dict[str, GroupListing] = {}
        for node_id in metadata.nodes:

            async def attempt(node_id: int = node_id) -> Any:
                connection = await self._cluster.connection(node_id)
                version = connection.version_for(ListGroupsRequest)
                response = await connection.request(groups.list_request(version, wanted), version=version)
                _raise_for(response.error_code, f"listing the groups of {connection.address}")
                return response

            response = await self._retried(attempt, f"listing the groups of node {node_id}", left)
            found |= {group.group_id: groups.listing(group) for group in response.groups}
        return [found[name] for name in sorted(found) if not plain or found[name].state.lower() in plain]

    async def describe(self, group_ids: Iterable[str], left: Left) -> dict[str, GroupDescription]:
        """Groups with their members. One that is not there is the error, with `results` for all."""
        found: dict[str, GroupDescription] = {}
        refusals = []
        for group_id in group_ids:
            try:
                found[group_id] = await self._describe(group_id, left)
            except GroupIdNotFound as error:
                refusals.append(Refusal(group_id, error.code, None))
            else:
                refusals.append(Refusal(group_id, 0, None))
        raise_refusals("describing", refusals, what="group")
        return found

    async def _describe(self, group_id: str, left: Left) -> GroupDescription:
        """As a group of the new protocol where the broker knows that, else as a classic one."""
        try:
            request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
            node_id, response, _version = await self._asked(
                group_id,
                "describing",
                lambda _version: request,
                lambda answer, _version: _error_of(answer.groups, group_id, "describing"),
                left,
            )
            return groups.consumer_description(response.groups[0], node_id)
        except (GroupIdNotFound, UnsupportedVersion):
            pass  # a classic group, or a broker before Kafka 3.7
        classic = DescribeGroupsRequest(groups=[group_id])
        node_id, response, _version = await self._asked(
            group_id,
            "describing",
            lambda _version: classic,
            lambda answer, _version: _error_of(answer.groups, group_id, "describing"),
            left,
        )
        return groups.classic_description(response.groups[0], node_id)

    async def delete(self, group_ids: Iterable[str], left: Left) -> None:
        """Delete groups and their offsets."""
        refusals = [Refusal(group_id, await self._delete(group_id, left), None) for group_id in group_ids]
        raise_refusals("deleting", refusals, what="group")

    async def _delete(self, group_id: str, left: Left) -> int:
        request = DeleteGroupsRequest(groups_names=[group_id])
        _node, response, _version = await self._asked(
            group_id,
            "deleting",
            lambda _version: request,
            lambda answer, _version: _only_moved(_error_of(answer.results, group_id, "deleting")),
            left,
        )
        code: int = response.results[0].error_code
        return code

    async def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, left: Left
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed."""
        wanted = None if partitions is None else list(partitions)
        _node, response, version = await self._asked(
            group_id,
            "reading the offsets of",
            lambda version: groups.offsets_request(group_id, wanted, version),
            lambda answer, version: groups.offsets_error(answer, version, group_id),
            left,
            cls=OffsetFetchRequest,
        )
        found, failed = groups.committed(response, version)
        if wanted is not None:
            names = [str(at) for at in (*found, *failed) if at not in wanted]
            check_answered(f"reading the offsets of group {group_id!r}", names, (), what="partition")
        raise_refusals(
            f"reading the offsets of group {group_id!r}:",
            [Refusal(str(at), code, None) for at, code in failed.items()],
            what="partition",
        )
        return found

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], left: Left
    ) -> None:
        """Set what a group has committed."""
        if not offsets:
            return
        _node, response, _version = await self._asked(
            group_id,
            "altering the offsets of",
            lambda _version: groups.commit_request(group_id, offsets),
            _moved_commit,
            left,
            cls=OffsetCommitRequest,
        )
        raise_refusals(
            f"altering the offsets of group {group_id!r}:",
            [
                Refusal(f"{topic.name}-{partition.partition_index}", partition.error_code, None)
                for topic in response.topics
                for partition in topic.partitions
            ],
            what="partition",
            asked=[str(at) for at in offsets],
        )

    async def _asked(
        self,
        group_id: str,
        doing: str,
        build: Callable[[int], Request[Any]],
        code_in: Callable[[Any, int], int],
        left: Left,
        *,
        cls: type[Request[Any]] | None = None,
    ) -> tuple[int, Any, int]:
        """The coordinator, its answer and the version; the error code that `code_in` finds is raised."""
        what = f"{doing} group {group_id!r}"
        kind = type(build(0)) if cls is None else cls
        maximum = _BY_NAME if cls is not None else None

        async def attempt() -> tuple[int, Any, int]:
            node_id = await self._cluster.find_coordinator(group_id, timeout=left.seconds)
            connection = await self._cluster.connection(node_id)
            version = connection.version_for(kind, maximum)
            response = await connection.request(build(version), version=version)
            code = code_in(response, version)
            if code in _MOVED:
                self._cluster.forget_coordinator(group_id)
            _raise_for(code, f"{what}: {connection.address}")
            return node_id, response, version

        return await self._retried(attempt, what, left)

    async def _retried(self, attempt: Callable[[], Awaitable[R]], what: str, left: Left) -> R:
        return await self._retrying.call(
            attempt, timeout=left.seconds, what=what, details=self._cluster.describe_failures
        )


def _error_of(answers: Sequence[Any], group_id: str, doing: str) -> int:
    """The error code in an answer about one group; `MalformedMessage` if the answer is about another, or about none."""
    check_answered(doing, [each.group_id for each in answers], [group_id], what="group")
    code: int = answers[0].error_code
    return code


def _only_moved(code: int) -> int:
    """An error code if another attempt may succeed, else 0."""
    return code if code in _MOVED else 0


def _moved_commit(response: Any, _version: int) -> int:
    codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
    return next(iter(codes & _MOVED), 0)


def _raise_for(code: int, what: str) -> None:
    if code:
        raise from_code(code, f"{what} answered {for_code(code).__name__}")
