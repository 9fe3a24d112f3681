"""Table of all APIs: the fields that name topics, partitions and groups, and the levels with error codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.protocol.kinds import ArrayOf, Nested
from pyclient.protocol.parts import Field, fields_of
from pyclient.protocol.versions import API_KEYS, request_class

if TYPE_CHECKING:
    from pyclient.protocol.fields import Message

TOP: Final = -1
"""The level of the message itself, outside of all lists."""


@dataclass(frozen=True, slots=True)
class Key:
    """A field that identifies items: its role, and the field's name in the request and in the answer.

    Roles that a fault can be limited to are `topic`, `topic_id` (resolved to a topic), `partition`, `group` and
    `resource` (a topic or a group, by its type); others only match the answer to an item. An empty name in the request:
    the list has plain values.
    """

    role: str
    asked: str
    answered: str


@dataclass(frozen=True, slots=True)
class Level:
    """A list in the request and the list in the answer that belongs to it. `asked` is empty if only the answer has one;
    several lists of a request that are answered in one are joined by `+`."""

    asked: str
    answered: str
    keys: tuple[Key, ...] = ()

    @property
    def lists(self) -> tuple[str, ...]:
        """Return the names of the request's lists."""
        return tuple(filter(None, self.asked.split("+")))


@dataclass(frozen=True, slots=True)
class Shape:
    """The structure of one API's messages, for versions up to `until`.

    `fill` has the values of a failed item or answer that differ from the defaults of the fields. `copied` are fields
    that a failed answer repeats from its request. `always`: the answer has more than the items, so the request is
    served even when no item is left. `overwrite`: everything is served, then the failed items are replaced (a Fetch
    only reads, and its request does not name all partitions of a session).
    """

    levels: tuple[Level, ...] = ()
    until: int = 2**15
    group: str = ""
    fill: Mapping[str, Any] = field(default_factory=dict)
    copied: tuple[str, ...] = ()
    error: str = "error_code"
    whole_first: bool = False
    always: bool = False
    overwrite: bool = False

    @property
    def roles(self) -> frozenset[str]:
        """Return the roles that a fault of this API can be limited to: some of topic, partition and group."""
        found = {key.role for level in self.levels for key in level.keys} | ({"group"} if self.group else set())
        if "resource" in found:
            found |= {"topic", "group"}
        return frozenset(found & {"topic", "partition", "group"})


def _level(asked: str, answered: str, *keys: str) -> Level:
    """Return a level; `keys` are `role:field` or `role:field in the request>field in the answer`."""
    made = []
    for text in keys:
        role, _, names = text.partition(":")
        first, arrow, second = names.partition(">")
        made.append(Key(role, first, second if arrow else first))
    return Level(asked, answered, tuple(made))


_TOPICS: Final = _level("topics", "topics", "topic:name")
_TOPICS_BY_ID: Final = _level("topics", "topics", "topic:name", "topic_id:topic_id")
_PARTITIONS: Final = _level("partitions", "partitions", "partition:partition_index")
_INDEXES: Final = _level("partition_indexes", "partitions", "partition:>partition_index")
_RESOURCES: Final = ("type:resource_type", "resource:resource_name")

_NO_OFFSET: Final = {"committed_offset": -1, "metadata": ""}
_NO_COORDINATOR: Final = {"node_id": -1, "port": -1}
_NO_LEADER: Final = {"leader_id": -1, "leader_epoch": -1}
_NO_TOKEN: Final = {"issue_timestamp_ms": -1, "expiry_timestamp_ms": -1, "max_timestamp_ms": -1}

SHAPES: Final[dict[str, tuple[Shape, ...]]] = {
    "Produce": (
        Shape(
            (
                _level("topic_data", "responses", "topic:name", "topic_id:topic_id"),
                _level("partition_data", "partition_responses", "partition:index"),
            ),
            fill={"base_offset": -1},
        ),
    ),
    "Fetch": (
        Shape(
            (
                _level("topics", "responses", "topic:topic", "topic_id:topic_id"),
                _level("partitions", "partitions", "partition:partition>partition_index"),
            ),
            fill={"high_watermark": -1, "aborted_transactions": None, "records": b""},
            overwrite=True,
        ),
    ),
    "ListOffsets": (Shape((_TOPICS, _PARTITIONS), fill={"timestamp": -1, "offset": -1}),),
    "Metadata": (
        Shape((_TOPICS_BY_ID, _level("", "partitions", "partition:>partition_index")), fill=_NO_LEADER, always=True),
    ),
    "OffsetCommit": (Shape((_TOPICS_BY_ID, _PARTITIONS), group="group_id"),),
    "OffsetFetch": (
        Shape((_TOPICS, _INDEXES), until=7, group="group_id", fill=_NO_OFFSET, whole_first=True),
        Shape(
            (_level("groups", "groups", "group:group_id"), _TOPICS_BY_ID, _INDEXES), fill=_NO_OFFSET, whole_first=True
        ),
    ),
    "FindCoordinator": (
        Shape(until=3, group="key", fill=_NO_COORDINATOR),
        Shape((_level("coordinator_keys", "coordinators", "group:>key", "coordinator:>key"),), fill=_NO_COORDINATOR),
    ),
    "JoinGroup": (Shape(group="group_id", fill={"generation_id": -1, "protocol_name": ""}, copied=("member_id",)),),
    "Heartbeat": (Shape(group="group_id"),),
    "LeaveGroup": (
        Shape(until=2, group="group_id"),
        Shape(
            (_level("members", "members", "member:member_id", "instance:group_instance_id"),),
            group="group_id",
            whole_first=True,
        ),
    ),
    "SyncGroup": (Shape(group="group_id"),),
    "DescribeGroups": (Shape((_level("groups", "groups", "group:>group_id"),)),),
    "ListGroups": (Shape(),),
    "ApiVersions": (Shape(),),
    "CreateTopics": (Shape((_TOPICS,), fill={"configs": None}),),
    "DeleteTopics": (
        Shape((_level("topic_names", "responses", "topic:>name"),), until=5),
        Shape((_level("topics", "responses", "topic:name", "topic_id:topic_id"),)),
    ),
    "DeleteRecords": (Shape((_TOPICS, _PARTITIONS), fill={"low_watermark": -1}),),
    "InitProducerId": (Shape(fill={"producer_id": -1}),),
    "OffsetForLeaderEpoch": (
        Shape((_level("topics", "topics", "topic:topic"), _level("partitions", "partitions", "partition:partition"))),
    ),
    "AddPartitionsToTxn": (
        Shape(
            (
                _level("v3_and_below_topics", "results_by_topic_v3_and_below", "topic:name"),
                _level("partitions", "results_by_partition", "partition:>partition_index"),
            ),
            until=3,
            error="partition_error_code",
        ),
        Shape(
            (
                _level("transactions", "results_by_transaction", "transaction:transactional_id"),
                _level("topics", "topic_results", "topic:name"),
                _level("partitions", "results_by_partition", "partition:>partition_index"),
            ),
            error="partition_error_code",
        ),
    ),
    "AddOffsetsToTxn": (Shape(group="group_id"),),
    "EndTxn": (Shape(),),
    "WriteTxnMarkers": (Shape((_level("markers", "markers", "producer:producer_id"), _TOPICS, _INDEXES)),),
    "TxnOffsetCommit": (Shape((_TOPICS, _PARTITIONS), group="group_id"),),
    "DescribeAcls": (Shape(),),
    "CreateAcls": (Shape((_level("creations", "results"),)),),
    "DeleteAcls": (Shape((_level("filters", "filter_results"),)),),
    "DescribeConfigs": (Shape((_level("resources", "results", *_RESOURCES),)),),
    "AlterConfigs": (Shape((_level("resources", "responses", *_RESOURCES),)),),
    "IncrementalAlterConfigs": (Shape((_level("resources", "responses", *_RESOURCES),)),),
    "AlterReplicaLogDirs": (
        Shape(
            (_level("", "results", "name:>topic_name"), _level("", "partitions", "number:>partition_index")),
            overwrite=True,
        ),
    ),
    "DescribeLogDirs": (Shape((_level("", "results", "directory:>log_dir"),)),),
    "CreatePartitions": (Shape((_level("topics", "results", "topic:name"),)),),
    "CreateDelegationToken": (Shape(fill=_NO_TOKEN),),
    "RenewDelegationToken": (Shape(fill={"expiry_timestamp_ms": -1}),),
    "ExpireDelegationToken": (Shape(fill={"expiry_timestamp_ms": -1}),),
    "DescribeDelegationToken": (Shape(),),
    "DeleteGroups": (Shape((_level("groups_names", "results", "group:>group_id"),)),),
    "ElectLeaders": (
        Shape(
            (
                _level("topic_partitions", "replica_election_results", "topic:topic"),
                _level("partitions", "partition_result", "partition:>partition_id"),
            )
        ),
    ),
    "AlterPartitionReassignments": (Shape((_level("topics", "responses", "topic:name"), _PARTITIONS)),),
    "ListPartitionReassignments": (Shape(),),
    "OffsetDelete": (Shape((_TOPICS, _PARTITIONS), group="group_id"),),
    "DescribeClientQuotas": (Shape(fill={"entries": None}),),
    "AlterClientQuotas": (Shape((_level("entries", "entries", "entity:entity"),)),),
    "DescribeUserScramCredentials": (Shape((_level("users", "results", "user:name>user"),)),),
    "AlterUserScramCredentials": (Shape((_level("deletions+upsertions", "results", "user:name>user"),)),),
    "DescribeQuorum": (Shape((_level("topics", "topics", "topic:topic_name"), _PARTITIONS), fill=_NO_LEADER),),
    "UpdateFeatures": (Shape(),),
    "DescribeCluster": (Shape(),),
    "DescribeProducers": (Shape((_TOPICS, _INDEXES)),),
    "UnregisterBroker": (Shape(),),
    "DescribeTransactions": (
        Shape((_level("transactional_ids", "transaction_states", "transaction:>transactional_id"),)),
    ),
    "ListTransactions": (Shape(),),
    "ConsumerGroupHeartbeat": (Shape(group="group_id", fill={"assignment": None}, copied=("member_id",)),),
    "ConsumerGroupDescribe": (Shape((_level("group_ids", "groups", "group:>group_id"),)),),
    "GetTelemetrySubscriptions": (Shape(),),
    "PushTelemetry": (Shape(),),
    "ListConfigResources": (Shape(),),
    "DescribeTopicPartitions": (
        Shape((_TOPICS, _level("", "partitions", "partition:>partition_index")), fill=_NO_LEADER),
    ),
    "AddRaftVoter": (Shape(),),
    "RemoveRaftVoter": (Shape(),),
}

WHOLE: Final = frozenset(
    error.code
    for error in (
        errors.ClusterAuthorizationFailed,
        errors.CoordinatorLoadInProgress,
        errors.CoordinatorNotAvailable,
        errors.FetchSessionIdNotFound,
        errors.FetchSessionTopicIdError,
        errors.GroupAuthorizationFailed,
        errors.GroupIdNotFound,
        errors.InvalidFetchSessionEpoch,
        errors.InvalidGroupId,
        errors.NonEmptyGroup,
        errors.NotController,
        errors.NotCoordinator,
        errors.RebootstrapRequired,
    )
)
"""Errors that concern the whole request: they go into the outermost error code of an answer with several."""


def shape_of(name: str, version: int) -> Shape:
    """Return the shape of an API's messages in a version; one without lists if the API is not in the table."""
    for shape in SHAPES.get(name, ()):
        if version <= shape.until:
            return shape
    return Shape()


def roles_of(name: str) -> frozenset[str]:
    """Return the roles that a fault of this API can be limited to in any version."""
    return frozenset[str]().union(*(shape.roles for shape in SHAPES.get(name, ())))


def place_of(
    name: str, version: int, code: int, *, by_topic: bool, by_partition: bool, whole: bool | None
) -> int | None:
    """Return the level of the error code that a fault sets: `TOP`, an index into the shape's levels, or None.

    A fault of one partition sets the partition's. Otherwise errors that concern the whole request (or `whole`) go into
    the outermost level, all others into the innermost one that the request has items for.
    """
    shape = shape_of(name, version)
    places = _places(name, version, shape)
    if not places:
        return None
    asked = [place for place in places if place == TOP or shape.levels[place].asked]
    if by_partition:
        return places[-1]
    if whole is None:
        whole = not by_topic and (shape.whole_first or code in WHOLE)
    return places[0] if whole or not asked else asked[-1]


def _places(name: str, version: int, shape: Shape) -> list[int]:
    """Return the levels with an error code, the outermost first."""
    cls: type = request_class(API_KEYS[name]).response
    found = [TOP] if has_error(cls, version, shape) else []
    for index, level in enumerate(shape.levels):
        listed = field_named(cls, level.answered)
        if listed is None or not listed.present_in(version):
            break
        cls = item_class(listed)
        if has_error(cls, version, shape):
            found.append(index)
    return found


def has_error(cls: type, version: int, shape: Shape) -> bool:
    """Return True if answers or items of this class have an error code in this version."""
    return any(field_named_in(cls, name, version) for name in dict.fromkeys((shape.error, "error_code")))


def field_named(cls: type, name: str) -> Field | None:
    """Return the declaration of a field; None if the class has none of that name."""
    return next((each for each in fields_of(cls) if each.name == name), None)


def field_named_in(cls: type, name: str, version: int) -> bool:
    """Return True if the class has the field in this version."""
    found = field_named(cls, name)
    return found is not None and found.present_in(version)


def item_class(listed: Field) -> type:
    """Return the class of a list's items."""
    assert isinstance(listed.kind, ArrayOf)
    assert isinstance(listed.kind.item, Nested)
    return listed.kind.item.cls


def error_codes(name: str, version: int, answer: Message) -> list[int]:
    """Return the error codes other than 0 of an answer, each once, in order."""
    shape = shape_of(name, version)
    found: dict[int, None] = {}
    items: list[Any] = [answer]
    for index in range(TOP, len(shape.levels)):
        if index != TOP:
            answered = shape.levels[index].answered
            items = [each for item in items for each in getattr(item, answered, None) or ()]
        for item in items:
            for error in dict.fromkeys((shape.error, "error_code")):
                if code := getattr(item, error, 0):
                    found[code] = None
    return list(found)
