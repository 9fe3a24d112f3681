"""Requests built from the message declarations: valid ones that use the state, and ones with hostile fields."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from random import Random
from typing import Any, Final

from pyclient.broker_embedded.served_apis import SERVED
from pyclient.config.broker import SERVED_OPTIONS
from pyclient.config.group import GROUP_OPTIONS
from pyclient.config.topic import TOPIC_OPTIONS
from pyclient.protocol.codec import encode_versioned
from pyclient.protocol.kinds import ArrayOf, Fixed, Kind, Nested, RecordData, Text
from pyclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from pyclient.protocol.parts import Field, fields_of
from pyclient.protocol.versions import API_KEYS, request_class
from tests.fuzz.record_data import RecordDataGenerator, hostile_integer
from tests.fuzz.state import GROUPS, INSTANCES, TOPICS, Member, State, Topic

Maker = Callable[[], Any]

_HARMLESS_BROKER_OPTIONS: Final = tuple(name for name in SERVED_OPTIONS if "connection" not in name)
"""A limit of connections that a request sets would keep the good client out, as it should."""
_OPTION_VALUES: Final = (
    "0", "1", "-1", "2", "100", "1000", "65536", "1048576", "9223372036854775807", "-9223372036854775808",
    "true", "false", "compact", "delete", "compact,delete", "gzip", "zstd", "producer", "lz4", "none",
    "CreateTime", "LogAppendTime", "0.5", "1e400", "nan", "", " ", ",", "uncompressed", "*", "0:1", "x" * 300,
)  # fmt: skip
_HOSTILE_TEXTS: Final = (
    "", ".", "..", "a/b", "a b", "x" * 249, "x" * 250, "x" * 32_767, "\0", "\x1b[31m", "a\nERROR forged line",
    "ä" * 100, "metadata.version", "__init__", "{}", "%s%n", "-1", "*", "(a+)+$", "[", "\ud7ff", "🙂",
    "fuzz-0 ", "FUZZ-0",
)  # fmt: skip
_REMOVING: Final = frozenset({"DeleteTopics", "DeleteGroups", "UpdateFeatures", "DeleteRecords", "LeaveGroup"})
"""Drawn less often than the others, which would find nothing left to work on."""
_RICH_APIS: Final = ("Produce", "Fetch", "JoinGroup", "ConsumerGroupHeartbeat", "SyncGroup", "OffsetCommit")


class MessageGenerator:
    """Makes requests of every API and version that the broker serves.

    `hostility` is the share of fields that get a hostile value instead of a plausible one.
    """

    def __init__(self, state: State, rng: Random) -> None:
        self.state = state
        self.rng = rng
        self.hostility = 0.0
        self.member: Member = state.any_member()
        self._topic: Topic = state.any_topic()
        self._partition = 0
        self._producer = state.any_producer()
        self._session = (0, -1)
        self._api = ""
        self._batches = RecordDataGenerator(state, rng)
        self._makers: dict[tuple[str, int], Maker] = {}
        self._names = sorted(SERVED) + list(_RICH_APIS) * 3 + sorted(set(SERVED) - _REMOVING) * 3

    def draw(self) -> tuple[str, int]:
        """Return an API and one of the versions it is served in."""
        name = self.rng.choice(self._names)
        served = SERVED[name]
        return name, self.rng.randint(served.first, served.last)

    def make(self, name: str, version: int, hostility: float = 0.0) -> Any:
        """Return a request of that API and version."""
        state, rng = self.state, self.rng
        self.hostility = hostility
        self.member = state.any_member(_KIND_OF_GROUP.get(name, ""))
        self._topic = state.any_topic()
        self._partition = rng.choice((0, 0, 0, 1, 2, 3))
        self._producer = state.any_producer()
        self._session = state.any_session()
        self._api = name
        maker = self._makers.get((name, version))
        if maker is None:
            maker = self._makers[name, version] = self._part(request_class(API_KEYS[name]), name, version)
        message = maker()
        if name == "ConsumerGroupHeartbeat" and rng.random() > hostility + 0.2:
            self._make_coherent(message)
        _tame(name, message, rng)
        return message

    # -- from declarations to functions, once for each (API, version)

    def _part(self, cls: Any, api: str, version: int) -> Maker:
        present = [
            (each.name, self._field(each, cls.__name__, api, version))
            for each in fields_of(cls)
            if each.present_in(version)
        ]
        absent = [(each.name, each) for each in fields_of(cls) if not each.present_in(version)]

        def make() -> Any:
            made = object.__new__(cls)
            for name, maker in present:
                setattr(made, name, maker())
            for name, declared in absent:
                setattr(made, name, declared.fresh_default())
            return made

        return make

    def _field(self, declared: Field, owner: str, api: str, version: int) -> Maker:
        rng = self.rng
        plausible = self._plausible(declared, owner, api, version)
        hostile = self._hostile(declared.kind, api, version)
        nullable = declared.nullable_in(version)

        def make() -> Any:
            if nullable and rng.random() < 0.12:
                return None
            if self.hostility and rng.random() < self.hostility:
                return hostile()
            value = plausible()
            return value if value is not None or nullable else hostile()

        return make

    def _plausible(self, declared: Field, owner: str, api: str, version: int) -> Maker:
        known = next(filter(None, (_FIELDS.get((each, declared.name)) for each in (owner, api, ""))), None)
        if known is not None:
            return lambda: known(self)
        kind = declared.kind
        if isinstance(kind, ArrayOf):
            item = self._item(declared, kind.item, api, version)
            return lambda: [item() for _ in range(self.rng.choice((1, 1, 1, 2, 3)))]
        return self._item(declared, kind, api, version)

    def _item(self, declared: Field, kind: Kind, api: str, version: int) -> Maker:
        rng = self.rng
        known = _FIELDS.get((api, declared.name + "[]")) or _FIELDS.get(("", declared.name + "[]"))
        if known is not None:
            return lambda: known(self)
        if isinstance(kind, Nested):
            return self._part(kind.cls, api, version)
        if isinstance(kind, Text):
            return lambda: rng.choice(("", "text", "fuzz-0", "classic-0"))
        if isinstance(kind, RecordData):
            return self._records
        if isinstance(kind, Fixed):
            if kind.name == "Bool":
                return lambda: rng.random() < 0.5
            if kind.name == "Uuid":
                return lambda: self._topic.topic_id
            if kind.name == "Float64":
                return lambda: rng.choice((0.0, 1.0, 1e6, 1e12, 1e-300, -1.0, float("nan"), float("inf")))
            return lambda: rng.choice((0, 0, 1, 1, 2, 5))
        return lambda: rng.randbytes(rng.choice((0, 4, 20)))

    def _hostile(self, kind: Kind, api: str, version: int) -> Maker:
        rng = self.rng
        if isinstance(kind, Nested):
            return self._part(kind.cls, api, version)
        if isinstance(kind, ArrayOf):
            item = self._hostile(kind.item, api, version)
            plain = isinstance(kind.item, Fixed)
            return lambda: [item() for _ in range(rng.choice((0, 2, 5, 300 if plain else 20)))]
        if isinstance(kind, Text):
            return lambda: rng.choice(_HOSTILE_TEXTS)
        if isinstance(kind, RecordData):
            return self._batches.hostile
        if isinstance(kind, Fixed):
            if kind.name == "Bool":
                return lambda: rng.random() < 0.5
            if kind.name == "Uuid":
                return lambda: uuid.UUID(int=rng.choice((0, 1, rng.getrandbits(128))))
            if kind.name == "Float64":
                return lambda: rng.choice((float("nan"), float("-inf"), 5e-324, 1.8e308, rng.uniform(-1e9, 1e9)))
            bits, unsigned = kind.size * 8, kind.code.isupper()
            return lambda: hostile_integer(rng, bits, unsigned=unsigned)
        return lambda: rng.randbytes(rng.choice((0, 1, 2, 5, 70, 5000)))

    def _make_coherent(self, heartbeat: Any) -> None:
        """Set fields of a ConsumerGroupHeartbeat that mean something together: a join, or a report of a member."""
        joins = self.member.epoch <= 0
        heartbeat.member_epoch = 0 if joins else self.member.epoch
        heartbeat.rebalance_timeout_ms = 5_000 if joins else -1
        heartbeat.subscribed_topic_names = [self.rng.choice(TOPICS) for _ in range(2)] if joins else None
        heartbeat.topic_partitions = [] if joins else None
        heartbeat.server_assignor = self.rng.choice((None, "uniform", "range"))
        if heartbeat.subscribed_topic_regex is not None and self.rng.random() < 0.7:
            heartbeat.subscribed_topic_regex = None

    # -- values

    def _records(self) -> bytes:
        if self.rng.random() < self.hostility:
            return self._batches.hostile()
        return self._batches.valid(self._topic.name, self._partition)

    def topic(self) -> Topic:
        """Return the topic that this request is about, or now and then another one."""
        if self.rng.random() < 0.15:
            self._topic = self.state.any_topic()
        return self._topic

    def topic_name(self) -> str:
        """Return the topic's name, a text in place of one, or an internal topic where that hurts no other client."""
        choice = self.rng.random()
        if choice < 0.03 and self._api not in _DESTRUCTIVE:
            return "__consumer_offsets"
        if self._api == "CreateTopics" and choice < 0.7:
            return self.rng.choice(TOPICS)
        return self.topic().name

    def partition(self) -> int:
        """Return the partition that this request is about, or now and then another one."""
        if self.rng.random() < 0.2:
            self._partition = self.rng.choice((0, 1, 2, 3, 7, -1))
        return self._partition

    def option_name(self) -> str:
        """Return an option of topics, brokers or groups."""
        choice = self.rng.random()
        if choice < 0.6:
            return self.rng.choice(_TOPIC_OPTIONS)
        return self.rng.choice(_HARMLESS_BROKER_OPTIONS if choice < 0.85 else _GROUP_OPTIONS)

    def resource_name(self) -> str:
        """Return the name of a resource whose options are set: a topic, broker or group."""
        return self.rng.choice((self._topic.name, self._topic.name, "", "1", "2", self.member.group))

    def producer_id(self) -> int:
        """Return a producer id that the broker gave out, or -1."""
        return self._producer.producer_id

    def producer_epoch(self) -> int:
        """Return the producer's epoch."""
        return self._producer.epoch

    def session_id(self) -> int:
        """Return a fetch session."""
        return self._session[0]

    def session_epoch(self) -> int:
        """Return the next epoch of the fetch session."""
        return self._session[1]

    def member_epoch(self) -> int:
        """Return the member's epoch or generation, now and then one that leaves or is old."""
        choice = self.rng.random()
        if choice < 0.1:
            return self.rng.choice((0, -1, -2))
        return self.member.epoch - (choice > 0.95)

    def subscription(self) -> bytes:
        """Return a classic member's subscription."""
        rng = self.rng
        owned: list[Any] = []
        topics = [rng.choice(TOPICS) for _ in range(rng.randrange(3))]
        made = ConsumerProtocolSubscription(topics=topics, owned_partitions=owned)
        data = encode_versioned(made, rng.randrange(4))
        return data if rng.random() < 0.8 else data[: rng.randrange(len(data))] + rng.randbytes(rng.randrange(4))

    def assignment(self) -> bytes:
        """Return a classic member's assignment."""
        part = ConsumerProtocolAssignmentTopicPartition(topic=self._topic.name, partitions=[0, 1])
        data = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[part]), self.rng.randrange(4))
        return data if self.rng.random() < 0.8 else data[: self.rng.randrange(len(data))]

    def pick(self, *values: Any) -> Any:
        """Return one of the values."""
        return self.rng.choice(values)


_KIND_OF_GROUP: Final = {
    "ConsumerGroupHeartbeat": "consumer",
    "ConsumerGroupDescribe": "consumer",
    "JoinGroup": "classic",
    "SyncGroup": "classic",
    "Heartbeat": "classic",
}
_DESTRUCTIVE: Final = frozenset(
    {"DeleteTopics", "DeleteRecords", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs"}
)
_TOPIC_OPTIONS: Final = tuple(TOPIC_OPTIONS)
_GROUP_OPTIONS: Final = tuple(GROUP_OPTIONS)

_TRANSACTIONAL_IDS: Final = ("tx-0", "tx-1", "tx-2")

_Draw = Callable[[MessageGenerator], Any]


def _offset(making: MessageGenerator) -> int:
    return making.rng.choice(making.state.offsets)


def _short_wait(making: MessageGenerator) -> int:
    return making.pick(0, 0, 0, 1, 5)  # type: ignore[no-any-return]


_FIELDS: Final[dict[tuple[str, str], _Draw]] = {
    ("", "topic"): MessageGenerator.topic_name,
    ("", "topic_name"): MessageGenerator.topic_name,
    ("", "topic_names[]"): MessageGenerator.topic_name,
    ("", "subscribed_topic_names[]"): MessageGenerator.topic_name,
    ("", "name"): MessageGenerator.topic_name,
    ("CreatableTopicConfig", "name"): MessageGenerator.option_name,
    ("", "topic_id"): lambda making: making.topic().topic_id,
    ("", "partition"): MessageGenerator.partition,
    ("", "partition_index"): MessageGenerator.partition,
    ("", "partition_indexes[]"): MessageGenerator.partition,
    ("", "index"): MessageGenerator.partition,
    ("", "group_id"): lambda making: making.member.group,
    ("", "groups_names[]"): lambda making: making.pick(*GROUPS),
    ("", "group_ids[]"): lambda making: making.pick(*GROUPS),
    ("DescribeGroups", "groups[]"): lambda making: making.pick(*GROUPS),
    ("FindCoordinator", "key"): lambda making: making.pick(*GROUPS),
    ("", "coordinator_keys[]"): lambda making: making.pick(*GROUPS),
    ("", "key_type"): lambda making: making.pick(0, 0, 0, 1, 2),
    ("", "member_id"): lambda making: making.member.member_id,
    ("", "group_instance_id"): lambda making: making.member.instance,
    ("", "instance_id"): lambda making: making.member.instance,
    ("", "generation_id"): MessageGenerator.member_epoch,
    ("", "generation_id_or_member_epoch"): MessageGenerator.member_epoch,
    ("", "member_epoch"): MessageGenerator.member_epoch,
    ("", "session_timeout_ms"): lambda making: making.pick(100, 6_000, 10_000, 45_000),
    ("", "rebalance_timeout_ms"): lambda making: making.pick(1, 10, 100, 5_000),
    ("", "protocol_type"): lambda making: (
        "consumer" if making.rng.random() < 0.97 else making.pick("connect", "", None)
    ),
    ("", "protocol_name"): lambda making: making.pick("range", "range", "range", "roundrobin", None),
    ("JoinGroup", "name"): lambda making: making.pick("range", "range", "range", "range", "roundrobin"),
    ("JoinGroup", "metadata"): MessageGenerator.subscription,
    ("SyncGroup", "assignment"): MessageGenerator.assignment,
    ("", "server_assignor"): lambda making: making.pick(None, None, "uniform", "range", "other"),
    ("", "subscribed_topic_regex"): lambda making: making.pick(None, None, "fuzz-.*", ".*", "", "(", "fuzz-[0-9]"),
    ("", "producer_id"): MessageGenerator.producer_id,
    ("", "producer_epoch"): MessageGenerator.producer_epoch,
    ("", "transactional_id"): lambda making: making.pick(None, None, None, None, "tx-0", ""),
    ("", "v3_and_below_transactional_id"): lambda making: making.pick(*_TRANSACTIONAL_IDS),
    ("", "transactional_ids[]"): lambda making: making.pick(*_TRANSACTIONAL_IDS),
    ("InitProducerId", "transactional_id"): lambda making: making.pick(None, None, *_TRANSACTIONAL_IDS),
    **{
        (api, "transactional_id"): lambda making: making.pick(*_TRANSACTIONAL_IDS)
        for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit")
    },
    ("", "transaction_timeout_ms"): lambda making: making.pick(1, 60_000),
    ("", "acks"): lambda making: making.pick(-1, -1, 1, 0),
    ("", "timeout_ms"): lambda making: making.pick(0, 1, 1000, 30_000),
    ("", "max_wait_ms"): _short_wait,
    ("", "min_bytes"): lambda making: making.pick(0, 0, 1, 100),
    ("", "max_bytes"): lambda making: making.pick(1, 1000, 65_536, 1 << 20),
    ("", "partition_max_bytes"): lambda making: making.pick(1, 1000, 65_536, 1 << 20),
    ("", "session_id"): MessageGenerator.session_id,
    ("", "session_epoch"): MessageGenerator.session_epoch,
    ("", "replica_id"): lambda making: making.pick(-1, -1, -1, -1, -2, 0, 1),
    ("", "current_leader_epoch"): lambda making: making.pick(-1, -1, -1, 0, 0, 1),
    ("", "leader_epoch"): lambda making: making.pick(0, 0, -1, 1, 2),
    ("", "last_fetched_epoch"): lambda making: making.pick(-1, -1, -1, 0, 1),
    ("", "committed_leader_epoch"): lambda making: making.pick(-1, -1, 0, 1),
    ("", "fetch_offset"): _offset,
    ("", "log_start_offset"): lambda making: making.pick(-1, -1, 0, 5),
    ("", "committed_offset"): _offset,
    ("", "committed_metadata"): lambda making: making.pick(None, "", "metadata", "m" * 4096, "m" * 4097),
    ("", "retention_time_ms"): lambda making: making.pick(-1, -1, 1000, 0),
    ("DeleteRecords", "offset"): lambda making: making.pick(-1, 0, 1, _offset(making)),
    ("", "timestamp"): lambda making: making.pick(-1, -2, -3, -4, -5, 0, 1_700_000_000_000, 1_700_000_000_001),
    ("", "isolation_level"): lambda making: making.pick(0, 0, 1),
    ("CreateTopics", "num_partitions"): lambda making: making.pick(-1, 1, 1, 3, 4),
    ("CreateTopics", "replication_factor"): lambda making: making.pick(-1, -1, 1, 1, 3),
    ("CreateTopics", "assignments"): lambda making: [],
    ("CreatePartitions", "assignments"): lambda making: making.pick(None, None, []),
    ("CreatePartitions", "count"): lambda making: making.pick(1, 2, 3, 4, 5),
    ("", "broker_ids[]"): lambda making: making.pick(1, 1, 1, 2),
    ("", "replicas[]"): lambda making: making.pick(1, 1, 1, 2),
    ("", "validate_only"): lambda making: making.rng.random() < 0.4,
    ("", "resource_type"): lambda making: making.pick(2, 2, 2, 4, 4, 32, 8, 16),
    ("", "resource_types[]"): lambda making: making.pick(2, 4, 8, 16, 32),
    ("", "resource_name"): MessageGenerator.resource_name,
    ("", "config_operation"): lambda making: making.pick(0, 0, 1, 2, 3),
    ("", "configuration_keys[]"): MessageGenerator.option_name,
    ("AlterConfigs", "name"): MessageGenerator.option_name,
    ("IncrementalAlterConfigs", "name"): MessageGenerator.option_name,
    ("AlterUserScramCredentials", "name"): lambda making: making.pick("user-0", "user-1", "user-2"),
    ("DescribeUserScramCredentials", "name"): lambda making: making.pick("user-0", "user-1", "user-2"),
    ("", "principal_type"): lambda making: making.pick("User", "User", "Group"),
    ("", "principal_name"): lambda making: making.pick("user-0", "user-1", "ANONYMOUS"),
    ("", "owner_principal_type"): lambda making: making.pick("User", "User", None),
    ("", "owner_principal_name"): lambda making: making.pick(None, None, "", "user-0"),
    ("", "hmac"): lambda making: bytes(64),
    ("", "mechanism"): lambda making: making.pick(1, 1, 2),
    ("", "iterations"): lambda making: making.pick(4096, 4096, 8192, 16384),
    ("", "salt"): lambda making: b"salt",
    ("", "salted_password"): lambda making: bytes(32),
    ("", "value"): lambda making: making.pick(*_OPTION_VALUES),
    ("AlterClientQuotas", "value"): lambda making: making.pick(1e6, 1e9, 1e12),
    ("AlterClientQuotas", "key"): lambda making: making.pick(
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    ),
    ("", "entity_type"): lambda making: making.pick("user", "client-id", "client-id", "ip"),
    ("", "entity_name"): lambda making: making.pick("fuzz-user", "other", "10.0.0.1"),
    ("", "match_type"): lambda making: making.pick(0, 1, 2),
    ("", "match"): lambda making: making.pick("fuzz-user", None),
    ("UpdateFeatures", "feature"): lambda making: making.pick("metadata.version", "group.version", "other"),
    ("", "max_version_level"): lambda making: making.pick(1, 1, 1, 20, 27, 29),
    ("", "operation"): lambda making: making.pick(*range(1, 15)),
    ("", "permission_type"): lambda making: making.pick(1, 2, 3),
    ("", "pattern_type_filter"): lambda making: making.pick(1, 2, 3, 4),
    ("", "resource_pattern_type"): lambda making: making.pick(3, 3, 4),
    ("", "resource_type_filter"): lambda making: making.pick(1, 2, 3, 4, 5, 6),
    ("CreateAcls", "resource_type"): lambda making: making.pick(2, 3, 4, 5, 6),
    ("", "principal"): lambda making: making.pick("User:fuzz", "User:*", "fuzz"),
    ("", "upgrade_type"): lambda making: making.pick(1, 2, 3),
    ("", "election_type"): lambda making: making.pick(0, 1),
    ("", "endpoint_type"): lambda making: making.pick(1, 1, 2),
    ("", "states_filter[]"): lambda making: making.pick("Stable", "Empty", "dead", "other"),
    ("", "types_filter[]"): lambda making: making.pick("classic", "consumer", "share", "other"),
    ("", "client_software_name"): lambda making: making.pick("fuzz", "apache-kafka-java", "", "-"),
    ("", "client_software_version"): lambda making: making.pick("1.0", "", "."),
    ("", "group_instance_id[]"): lambda making: making.pick(*INSTANCES),
    ("", "response_partition_limit"): lambda making: making.pick(1, 2, 2000, 0, -1),
}


def _tame(name: str, message: Any, rng: Random) -> None:
    """Take out what would rightly stop the good client or this fuzzer: quotas and limits that hold for all clients."""
    if name == "AlterClientQuotas":
        for entry in message.entries:
            for entity in entry.entity:
                if entity.entity_type == "ip" and entity.entity_name in (None, "127.0.0.1"):
                    entity.entity_name = "10.0.0.1"
                elif entity.entity_name is None and any(not each.value >= 1e5 for each in entry.ops):
                    entity.entity_name = "fuzz-user"
    elif name in ("AlterConfigs", "IncrementalAlterConfigs"):
        for resource in message.resources:
            if resource.resource_type == 4:
                resource.configs = [each for each in resource.configs or () if "connection" not in each.name]
    elif name in ("JoinGroup", "ConsumerGroupHeartbeat"):
        message.rebalance_timeout_ms = min(message.rebalance_timeout_ms, 5_000)
    elif name == "Fetch":
        message.max_wait_ms = message.max_wait_ms if rng.random() < 0.02 else min(message.max_wait_ms, 5)
