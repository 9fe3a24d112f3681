"""The table of served APIs with their versions and handlers; ApiVersions answers from it, too."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyclient.broker_embedded.replication.durability import Durable, behind_commits
from pyclient.broker_embedded.replication.log_openings import behind_openings
from pyclient.errors import MalformedMessage
from pyclient.protocol import codec
from pyclient.protocol.versions import API_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.broker import BrokerNode
    from pyclient.broker_embedded.controller.mutation_quotas import MutationQuota
    from pyclient.broker_embedded.network.server import BrokerConnection
    from pyclient.broker_embedded.replication.log_openings import Asked
    from pyclient.protocol.fields import Request
    from pyclient.types import TopicPartition

Answer = Any
"""A response, a future or coroutine of one, or None for no response (Produce with acks=0).

A handler of requests that may have many items is a generator function: it pauses after each, and returns one of these.
"""

Handler = Callable[[Any, "RequestContext"], Answer]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Served:
    """One API: the module in `handlers/` that serves it, and the versions. `listed` is the minimum that ApiVersions
    reports, if it differs from the first served version."""

    module: str
    first: int
    last: int
    listed: int | None = None

    @property
    def advertised_first(self) -> int:
        """Return the minimum that ApiVersions reports."""
        return self.first if self.listed is None else self.listed


SERVED: Final[dict[str, Served]] = {
    "Produce": Served("produce", 3, 13, listed=0),  # librdkafka < 2.11.1 stops compressing when the minimum is above 0
    "Fetch": Served("fetch", 4, 18),
    "ListOffsets": Served("list_offsets", 1, 11),
    "Metadata": Served("metadata", 0, 13),
    "OffsetCommit": Served("offset_commit", 2, 10),
    "OffsetFetch": Served("offset_fetch", 1, 10),
    "FindCoordinator": Served("find_coordinator", 0, 6),
    "JoinGroup": Served("join_group", 0, 9),
    "Heartbeat": Served("heartbeat", 0, 4),
    "LeaveGroup": Served("leave_group", 0, 5),
    "SyncGroup": Served("sync_group", 0, 5),
    "DescribeGroups": Served("describe_groups", 0, 6),
    "ListGroups": Served("list_groups", 0, 5),
    "ApiVersions": Served("api_versions", 0, 4),
    "CreateTopics": Served("create_topics", 2, 7),
    "DeleteTopics": Served("delete_topics", 1, 6),
    "InitProducerId": Served("init_producer_id", 0, 5),
    "OffsetForLeaderEpoch": Served("offset_for_leader_epoch", 2, 4),
    "DescribeConfigs": Served("describe_configs", 1, 4),
    "AlterConfigs": Served("alter_configs", 0, 2),
    "IncrementalAlterConfigs": Served("incremental_alter_configs", 0, 1),
    "ListConfigResources": Served("list_config_resources", 0, 1),
    "CreatePartitions": Served("create_partitions", 0, 3),
    "DeleteGroups": Served("delete_groups", 0, 2),
    "OffsetDelete": Served("offset_delete", 0, 0),
    "ConsumerGroupHeartbeat": Served("consumer_group_heartbeat", 0, 1),
    "ConsumerGroupDescribe": Served("consumer_group_describe", 0, 1),
    "DescribeCluster": Served("describe_cluster", 0, 2),
    "DeleteRecords": Served("delete_records", 0, 2),
    "DescribeAcls": Served("describe_acls", 1, 3),
    "CreateAcls": Served("create_acls", 1, 3),
    "DeleteAcls": Served("delete_acls", 1, 3),
    "DescribeLogDirs": Served("describe_log_dirs", 1, 5),
    "AlterReplicaLogDirs": Served("alter_replica_log_dirs", 1, 2),
    "ElectLeaders": Served("elect_leaders", 0, 2),
    "AlterPartitionReassignments": Served("alter_partition_reassignments", 0, 1),
    "ListPartitionReassignments": Served("list_partition_reassignments", 0, 0),
    "DescribeClientQuotas": Served("describe_client_quotas", 0, 1),
    "AlterClientQuotas": Served("alter_client_quotas", 0, 1),
    "DescribeUserScramCredentials": Served("describe_user_scram_credentials", 0, 0),
    "AlterUserScramCredentials": Served("alter_user_scram_credentials", 0, 0),
    "DescribeQuorum": Served("describe_quorum", 0, 2),
    "UpdateFeatures": Served("update_features", 0, 2),
    "DescribeProducers": Served("describe_producers", 0, 0),
    "DescribeTopicPartitions": Served("describe_topic_partitions", 0, 0),
}
"""All served APIs. A handler's module is imported with the first request of its API."""


class CloseConnection(Exception):
    """Raised for a request that Kafka answers by closing the connection; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What `@handles` says of a handler."""

    request: type[Request[Any]]
    versions: tuple[int, int]
    durable: Durable
    logs: Asked | None


_DECLARED: Final[dict[str, Declaration]] = {}


def handles(
    request: type[Request[Any]],
    *,
    versions: tuple[int, int],
    durable: Durable = Durable.NOTHING,
    logs: Callable[[Any, BrokerNode], Iterable[TopicPartition]] | None = None,
) -> Callable[[F], F]:
    """Mark a function as the handler of `request` in `versions` (first and last), which must agree with `SERVED`.

    Its answers are held until what `durable` names is on the disk. With `logs`, which returns partitions of a request,
    it runs when the logs of those are open.
    """

    def mark(handler: F) -> F:
        _DECLARED[request.__name__.removesuffix("Request")] = Declaration(request, versions, durable, logs)
        return handler

    return mark


class RequestContext:
    """The context of a request that a handler gets with it."""

    __slots__ = ("api_key", "client_id", "connection", "node", "version")

    def __init__(
        self, node: BrokerNode, api_key: int, version: int, client_id: str | None, connection: BrokerConnection
    ) -> None:
        self.node = node
        self.api_key = api_key
        self.version = version
        self.client_id = client_id or ""
        self.connection = connection

    def mutation_quota(self, *, strict: bool) -> MutationQuota:
        """Return the quota of partitions that this request may create and delete (KIP-599)."""
        node = self.node
        return node.mutation_quotas.of_request(self.client_id, node.clock.monotonic(), strict=strict)

    def throttle(self, seconds: float) -> int:
        """Mute the connection for `seconds` (KIP-219). Return the throttle time for the response, in milliseconds."""
        if seconds > 0:
            self.connection.mute(seconds)
        return round(seconds * 1000)

    @property
    def client_host(self) -> str:
        """Return the client's address as Kafka shows it, with a leading slash: `/127.0.0.1`."""
        return self.connection.client_host

    @property
    def connection_id(self) -> int:
        """Return the connection's number, which is unique in this node."""
        return self.connection.number


class Route:
    """The decoder and handler of one API in one version."""

    __slots__ = ("_request", "_version", "decode", "handler", "name", "response")

    def __init__(self, name: str, request: type[Request[Any]], version: int, handler: Handler) -> None:
        decode = codec.decoder(request, version)
        self.name = name
        self.decode = _lenient(decode) if name in _ONE_BYTE_MORE else decode
        self.handler = handler
        self.response = request.response
        self._request = request
        self._version = version

    def decode_in_steps(self, frame: memoryview, position: int) -> Generator[None, None, Request[Any]]:
        """Decode with pauses, for a frame that may have many items."""
        decode = codec.decoder_in_steps(self._request, self._version)
        try:
            request: Request[Any] = yield from decode(frame, position)
        except MalformedMessage:
            if self.name not in _ONE_BYTE_MORE or len(frame) <= position or frame[-1]:
                raise
            request = yield from decode(frame[:-1], position)
        return request


_ROUTES: Final[dict[int, Route]] = {}
_NAMES: Final[dict[int, str]] = {API_KEYS[name]: name for name in SERVED}


def route(api_key: int, version: int) -> Route | None:
    """Return the route of a request; None if this broker does not serve that API or version."""
    if version < 0:
        return None
    found = _ROUTES.get(api_key << 16 | version)
    return found if found is not None else _make_route(api_key, version)


def _make_route(api_key: int, version: int) -> Route | None:
    name = _NAMES.get(api_key)
    if name is None or not SERVED[name].first <= version <= SERVED[name].last:
        return None
    handler = handler_of(name)
    declared = declaration_of(name)
    held = behind_openings(declared.logs, behind_commits(declared.durable, handler))
    made = Route(name, declared.request, version, held)
    _ROUTES[api_key << 16 | version] = made
    return made


_ONE_BYTE_MORE: Final = frozenset({"AlterUserScramCredentials"})
"""APIs whose requests librdkafka ends with one empty section of tags too many, which Kafka ignores."""


def _lenient(decode: Callable[..., Request[Any]]) -> Callable[..., Request[Any]]:
    def read(frame: memoryview, position: int) -> Request[Any]:
        try:
            return decode(frame, position)
        except MalformedMessage:
            if len(frame) <= position or frame[-1]:
                raise
            return decode(frame[:-1], position)

    return read


def handler_of(name: str) -> Handler:
    """Return the function that serves the API `name`."""
    handler: Handler = import_module(f"pyclient.broker_embedded.handlers.{SERVED[name].module}").handle
    return handler


def declaration_of(name: str) -> Declaration:
    """Return what `@handles` says of the handler of the API `name`."""
    handler_of(name)  # imports its module
    return _DECLARED[name]
