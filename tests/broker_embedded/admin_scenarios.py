"""Requests of administrators, which the embedded broker must answer as a real Kafka does.

`kafka_admin_answers.json` has what an Apache Kafka 4.3.1 answered; `make test-kafka` checks that it still does, and
with PYCLIENT_RECORD=1 rewrites the file. The scenarios build on each other; topic `cfg` is there from the first on.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


class Scenario(NamedTuple):
    """One request: an API, its version and the fields, parts as dicts."""

    label: str
    api: str
    version: int
    fields: dict[str, Any]


def _describe(label: str, kind: int, name: str, keys: list[str] | None = None) -> Scenario:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return Scenario(f"describe {label}", "DescribeConfigs", 4, {"resources": [resource], "include_synonyms": True})


def _alter(
    label: str, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Scenario:
    configs = [{"name": option, "config_operation": operation, "value": value} for option, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    fields = {"resources": [resource], "validate_only": validate_only}
    return Scenario(f"alter {label}", "IncrementalAlterConfigs", 1, fields)


def _replace(label: str, kind: int, name: str, *options: tuple[str, str | None]) -> Scenario:
    configs = [{"name": option, "value": value} for option, value in options]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return Scenario(f"replace {label}", "AlterConfigs", 2, {"resources": [resource], "validate_only": False})


def _create(label: str, *, validate_only: bool = True, **topic: Any) -> Scenario:
    made = {"name": "n1", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **topic}
    return Scenario(f"create {label}", "CreateTopics", 7, {"topics": [made], "validate_only": validate_only})


def _assigned(label: str, index: int, *brokers: int, partitions: int = -1) -> Scenario:
    chosen = [{"partition_index": index, "broker_ids": list(brokers)}]
    return _create(label, num_partitions=partitions, replication_factor=-1, assignments=chosen)


def _grow(label: str, name: str, count: int, assignments: list[list[int]] | None = None) -> Scenario:
    chosen = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]
    topics = [{"name": name, "count": count, "assignments": chosen}]
    fields = {"topics": topics, "timeout_ms": 1000, "validate_only": True}
    return Scenario(f"grow {label}", "CreatePartitions", 3, fields)


def _delete(label: str, name: str, *offsets: tuple[int, int]) -> Scenario:
    partitions = [{"partition_index": index, "offset": offset} for index, offset in offsets]
    fields = {"topics": [{"name": name, "partitions": partitions}], "timeout_ms": 5000}
    return Scenario(f"delete records {label}", "DeleteRecords", 2, fields)


def _feature(label: str, name: str, level: int, kind: int = 1, version: int = 2) -> Scenario:
    update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
    fields = {"feature_updates": [update], "validate_only": True}
    return Scenario(f"feature {label}", "UpdateFeatures", version, fields)


def _elect(label: str, kind: int, *topics: tuple[str, list[int]]) -> Scenario:
    wanted = [{"topic": name, "partitions": partitions} for name, partitions in topics] or None
    fields = {"election_type": kind, "topic_partitions": wanted, "timeout_ms": 5000}
    return Scenario(f"elect {label}", "ElectLeaders", 2, fields)


def _reassign(label: str, name: str, index: int, replicas: list[int] | None) -> Scenario:
    topics = [{"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}]
    return Scenario(f"reassign {label}", "AlterPartitionReassignments", 1, {"topics": topics, "timeout_ms": 5000})


def _quota(
    label: str, entity: list[tuple[str, str | None]], key: str, value: float, *, remove: bool = False
) -> Scenario:
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    entry = {"entity": named, "ops": [{"key": key, "value": value, "remove": remove}]}
    return Scenario(f"quota {label}", "AlterClientQuotas", 1, {"entries": [entry], "validate_only": False})


def _quotas(label: str, *components: tuple[str, int, str | None], strict: bool = False) -> Scenario:
    asked = [{"entity_type": kind, "match_type": match_type, "match": name} for kind, match_type, name in components]
    return Scenario(f"quotas {label}", "DescribeClientQuotas", 1, {"components": asked, "strict": strict})


def _scram(label: str, name: str, mechanism: int = 1, iterations: int = 4096) -> Scenario:
    upsertion = {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": b"x" * 32,
    }
    return Scenario(f"scram {label}", "AlterUserScramCredentials", 0, {"deletions": [], "upsertions": [upsertion]})


def _no_scram(label: str, *names: str) -> Scenario:
    deletions = [{"name": name, "mechanism": 1} for name in names]
    return Scenario(f"scram {label}", "AlterUserScramCredentials", 0, {"deletions": deletions, "upsertions": []})


def _users(label: str, *names: str) -> Scenario:
    users = [{"name": name} for name in names] or None
    return Scenario(f"users {label}", "DescribeUserScramCredentials", 0, {"users": users})


def _page(label: str, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Scenario:
    begin = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    fields = {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": begin}
    return Scenario(f"page {label}", "DescribeTopicPartitions", 0, fields)


def _offsets(label: str, timestamp: int, version: int) -> Scenario:
    topics = [{"name": "cfg", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    return Scenario(f"offsets {label}", "ListOffsets", version, {"replica_id": -1, "topics": topics})


_QUORUM: Final = {"topics": [{"topic_name": "cfg", "partitions": [{"partition_index": 0}]}]}

SCENARIOS: Final[tuple[Scenario, ...]] = (
    _create("cfg", name="cfg", num_partitions=2, validate_only=False),
    _describe("no topic", TOPIC, "nope"),
    _describe("impossible topic", TOPIC, "a b"),
    _describe("topic without a name", TOPIC, ""),
    _describe("another broker", BROKER, "2"),
    _describe("a broker that is no number", BROKER, "x"),
    _describe("a type that is none", 99, "x"),
    _describe("one option of two", TOPIC, "cfg", ["segment.ms", "nope"]),
    _describe("a group without a name", GROUP, ""),
    _alter("sets", TOPIC, "cfg", ("segment.bytes", SET, "2000000")),
    _describe("what was set", TOPIC, "cfg", ["segment.bytes"]),
    _alter("removes", TOPIC, "cfg", ("segment.bytes", DELETE, None)),
    _describe("what was removed", TOPIC, "cfg", ["segment.bytes"]),
    _alter("appends", TOPIC, "cfg", ("cleanup.policy", APPEND, "compact")),
    _alter("appends again", TOPIC, "cfg", ("cleanup.policy", APPEND, "compact")),
    _describe("a longer list", TOPIC, "cfg", ["cleanup.policy"]),
    _alter("subtracts", TOPIC, "cfg", ("cleanup.policy", SUBTRACT, "compact")),
    _alter("subtracts what is not there", TOPIC, "cfg", ("cleanup.policy", SUBTRACT, "nope")),
    _describe("a shorter list", TOPIC, "cfg", ["cleanup.policy"]),
    _alter("appends to a number", TOPIC, "cfg", ("retention.ms", APPEND, "1")),
    _alter("an unknown option", TOPIC, "cfg", ("nope", SET, "1")),
    _alter("no number", TOPIC, "cfg", ("retention.ms", SET, "abc")),
    _alter("too small a number", TOPIC, "cfg", ("retention.ms", SET, "-5")),
    _alter("an impossible list", TOPIC, "cfg", ("cleanup.policy", SET, "foo")),
    _alter("an impossible choice", TOPIC, "cfg", ("compression.type", SET, "foo")),
    _alter("to nothing", TOPIC, "cfg", ("retention.ms", SET, None)),
    _alter("twice", TOPIC, "cfg", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    _alter("no topic", TOPIC, "nope", ("retention.ms", SET, "1")),
    _alter("a topic without a name", TOPIC, "", ("retention.ms", SET, "1")),
    _alter("an impossible topic", TOPIC, "a b", ("retention.ms", SET, "1")),
    _alter("a type that is none", 99, "x", ("retention.ms", SET, "1")),
    _alter("nothing", TOPIC, "cfg"),
    _alter("would set", TOPIC, "cfg", ("segment.bytes", SET, "3000000"), validate_only=True),
    _describe("what would have been set", TOPIC, "cfg", ["segment.bytes"]),
    _alter("another broker", BROKER, "7", ("log.retention.ms", SET, "1")),
    _alter("a broker that is no number", BROKER, "abc", ("log.retention.ms", SET, "1")),
    _alter("a fixed option", BROKER, "1", ("node.id", SET, "3")),
    _alter("a fixed default", BROKER, "1", ("num.partitions", SET, "3")),
    _alter("a coarse unit", BROKER, "1", ("log.retention.hours", SET, "3")),
    _alter("a broker's option", BROKER, "1", ("message.max.bytes", SET, "777777")),
    _alter("all brokers' option", BROKER, "", ("message.max.bytes", SET, "888888")),
    _alter("a secret for all", BROKER, "", ("ssl.keystore.password", SET, "secret")),
    _alter("a secret", BROKER, "1", ("ssl.keystore.password", SET, "secret")),
    _alter("an option of a plug-in", BROKER, "1", ("foo.bar", SET, "secret")),
    _alter("a broker's option to no number", BROKER, "1", ("log.retention.ms", SET, "x")),
    _describe("a topic's option from the broker", TOPIC, "cfg", ["max.message.bytes"]),
    _describe("a broker's option", BROKER, "1", ["message.max.bytes", "foo.bar"]),
    _describe("all brokers' option", BROKER, "", ["message.max.bytes"]),
    _alter("an option that does nothing and is fixed", BROKER, "1", ("num.replica.alter.log.dirs.threads", SET, "3")),
    _alter("an option that does nothing to no number", BROKER, "1", ("num.recovery.threads.per.data.dir", SET, "x")),
    _alter("a window of quotas", BROKER, "1", ("quota.window.num", SET, "3")),
    _alter("a rate of connections", BROKER, "", ("max.connection.creation.rate", SET, "1000")),
    _alter("no rate of connections", BROKER, "", ("max.connection.creation.rate", SET, "0")),
    _alter("a group", GROUP, "grp", ("consumer.session.timeout.ms", SET, "50000")),
    _alter("a group above its limit", GROUP, "grp", ("consumer.session.timeout.ms", SET, "60001")),
    _alter("a group below its limit", GROUP, "grp", ("consumer.heartbeat.interval.ms", SET, "1")),
    _alter("a share group", GROUP, "grp", ("share.record.lock.duration.ms", SET, "20000")),
    _alter("a share group above its limit", GROUP, "grp", ("share.record.lock.duration.ms", SET, "60001")),
    _alter("a share group's reset", GROUP, "grp", ("share.auto.offset.reset", SET, "nowhere")),
    _alter("a share group's isolation", GROUP, "grp", ("share.isolation.level", SET, "none")),
    _alter("a streams group", GROUP, "grp", ("streams.num.standby.replicas", SET, "2")),
    _alter("a streams group above its limit", GROUP, "grp", ("streams.num.standby.replicas", SET, "3")),
    _alter("a group's unknown option", GROUP, "grp", ("session.timeout.ms", SET, "3")),
    _alter("a group without a name", GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
    _describe("a group", GROUP, "grp"),
    _alter("client metrics", METRICS, "met", ("interval.ms", SET, "1000"), ("match", SET, "client_id=a.*")),
    _alter("client metrics that are too many", METRICS, "met", ("interval.ms", SET, "99")),
    _alter("client metrics that are too few", METRICS, "met", ("interval.ms", SET, "3600001")),
    _alter("client metrics of nobody", METRICS, "met", ("match", SET, "nobody=a")),
    _alter("client metrics of a bad pattern", METRICS, "met", ("match", SET, "client_id=[")),
    _alter("client metrics of a half", METRICS, "met", ("match", SET, "client_id")),
    _alter("client metrics' unknown option", METRICS, "met", ("nope", SET, "1")),
    _alter("client metrics without a name", METRICS, "", ("interval.ms", SET, "1000")),
    _alter("client metrics' list", METRICS, "met", ("metrics", APPEND, "a.b,c")),
    _describe("client metrics", METRICS, "met"),
    _describe("client metrics without a name", METRICS, ""),
    Scenario("list client metrics", "ListConfigResources", 0, {}),
    Scenario("list groups and client metrics", "ListConfigResources", 1, {"resource_types": [METRICS, GROUP]}),
    _replace("options", TOPIC, "cfg", ("retention.ms", "99999")),
    _describe("replaced", TOPIC, "cfg", ["retention.ms", "cleanup.policy"]),
    _replace("by nothing", TOPIC, "cfg", ("retention.ms", None)),
    _replace("by an unknown one", TOPIC, "cfg", ("nope", "1")),
    _replace("twice", TOPIC, "cfg", ("retention.ms", "1"), ("retention.ms", "2")),
    Scenario("list topics with options", "ListConfigResources", 1, {"resource_types": [TOPIC, TOPIC]}),
    Scenario("list a type that is none", "ListConfigResources", 1, {"resource_types": [99]}),
    Scenario("directories", "DescribeLogDirs", 4, {"topics": None}),
    Scenario("one directory", "DescribeLogDirs", 4, {"topics": [{"topic": "cfg", "partitions": [0, 9]}]}),
    Scenario("no directory", "DescribeLogDirs", 4, {"topics": []}),
    Scenario("no quorum", "DescribeQuorum", 2, _QUORUM),
    Scenario("nobody's quorum", "DescribeQuorum", 2, {"topics": []}),
    Scenario("cluster", "DescribeCluster", 2, {"include_cluster_authorized_operations": True}),
    Scenario(
        "controllers", "DescribeCluster", 2, {"include_cluster_authorized_operations": False, "endpoint_type": 2}
    ),
    Scenario("nobodies", "DescribeCluster", 2, {"include_cluster_authorized_operations": False, "endpoint_type": 3}),
    _feature("as it is", "group.version", 1),
    _feature("unknown", "foo", 1),
    _feature("unknown to v1", "foo", 1, version=1),
    _feature("too high", "group.version", 99),
    _feature("too low", "group.version", 0),
    _feature("impossible", "group.version", 0, kind=9),
    _feature("metadata too high", "metadata.version", 99),
    _feature("metadata too low", "metadata.version", 7),
    *(_elect(f"of type {kind}", kind, ("cfg", [0, 9]), ("nope", [0])) for kind in (0, 1, 5)),
    *(_elect(f"all of type {kind}", kind) for kind in (0, 1, 5)),
    _reassign("to where it is", "cfg", 0, [1]),
    _reassign("cancelled", "cfg", 0, None),
    _reassign("to nobody known", "cfg", 0, [7]),
    _reassign("to one twice", "cfg", 0, [1, 1]),
    _reassign("to nobody", "cfg", 0, []),
    _reassign("no partition", "cfg", 9, [1]),
    _reassign("no topic", "nope", 0, [1]),
    Scenario("reassignments", "ListPartitionReassignments", 0, {"topics": None, "timeout_ms": 5000}),
    _quota("of a client", [("client-id", "c1")], "producer_byte_rate", 1000.0),
    _quota("of a user's clients", [("client-id", None), ("user", "u1")], "request_percentage", 50.5),
    _quota("of an address", [("ip", "127.0.0.9")], "connection_creation_rate", 10.0),
    _quota("unknown", [("client-id", "c1")], "nope", 1.0),
    _quota("negative", [("client-id", "c1")], "producer_byte_rate", -1.0),
    _quota("nothing", [("client-id", "c1")], "producer_byte_rate", 0.0),
    _quota("a fraction", [("client-id", "c1")], "producer_byte_rate", 1000.5),
    _quota("of no address", [("ip", "nope.invalid")], "connection_creation_rate", 10.0),
    _quota("of no type", [("foo", "x")], "producer_byte_rate", 1.0),
    _quota("of a user at an address", [("user", "u"), ("ip", "127.0.0.1")], "producer_byte_rate", 1.0),
    _quota("that an address cannot have", [("ip", "127.0.0.1")], "producer_byte_rate", 1.0),
    _quota("of nobody", [], "producer_byte_rate", 1.0),
    _quota("of no name", [("client-id", "")], "producer_byte_rate", 1.0),
    _quotas("all"),
    _quotas("of client ids", ("client-id", 2, None)),
    _quotas("of client ids alone", ("client-id", 2, None), strict=True),
    _quotas("of one", ("client-id", 0, "c1")),
    _quotas("of the default", ("client-id", 1, None)),
    _quotas("of users", ("user", 2, None)),
    _quotas("of addresses", ("ip", 2, None)),
    _quotas("of no type", ("foo", 0, "x")),
    _quotas("twice", ("user", 0, "x"), ("user", 0, "y")),
    _quotas("of no match", ("user", 9, "x")),
    _quotas("of no name", ("user", 0, None)),
    _quotas("of a named default", ("user", 1, "x")),
    _quotas("of users at addresses", ("ip", 2, None), ("user", 2, None)),
    _quotas("of an empty type", ("", 0, "x")),
    _quota("removed", [("client-id", "c1")], "producer_byte_rate", 0.0, remove=True),
    _quota("that is not there removed", [("client-id", "zz")], "producer_byte_rate", 0.0, remove=True),
    _quotas("of one that had some", ("client-id", 0, "c1")),
    _users("none"),
    _scram("set", "al"),
    _scram("too few", "al", iterations=409),
    _scram("too many", "al", iterations=40_900),
    _scram("of no mechanism", "al", mechanism=9),
    _scram("of nobody", ""),
    _no_scram("that is not there", "zz"),
    _no_scram("twice", "al", "al"),
    _users("all"),
    _users("one that has none", "zz"),
    _users("one twice", "al", "al"),
    _page("one", ["cfg"]),
    _page("one that is not there", ["nope", "cfg"]),
    _page("of one partition", ["cfg"], 1),
    _page("of none", ["cfg"], 0),
    _page("second", ["cfg"], 1, ("cfg", 1)),
    _page("behind the last", ["cfg"], 10, ("cfg", 7)),
    _page("elsewhere", ["cfg"], 10, ("zzz", 0)),
    _page("impossible", ["a b"]),
    _page("before the first", ["cfg"], 10, ("cfg", -1)),
    _delete("to the end", "cfg", (0, 0), (1, -1)),
    _delete("behind the end", "cfg", (0, 99)),
    _delete("before the start", "cfg", (0, -5)),
    _delete("of no topic", "nope", (0, 0)),
    _delete("of no partition", "cfg", (9, 0)),
    _delete("twice", "cfg", (0, 0), (0, -1)),
    Scenario("producers", "DescribeProducers", 0, {"topics": [{"name": "cfg", "partition_indexes": [0, 9]}]}),
    Scenario("producers nowhere", "DescribeProducers", 0, {"topics": [{"name": "nope", "partition_indexes": [0]}]}),
    Scenario("producers, bad name", "DescribeProducers", 0, {"topics": [{"name": "a b", "partition_indexes": [0]}]}),
    _create("again", name="cfg"),
    _create("impossible", name="a b"),
    _create("nothing", name=""),
    _create("a dot", name="."),
    _create("too long", name="x" * 250),
    _create("too many replicas", replication_factor=3),
    _create("no replicas", replication_factor=0),
    _create("no partitions", num_partitions=0),
    _create("less than the default", num_partitions=-2),
    _create("far too many", num_partitions=10**9),
    _create("unknown option", configs=[{"name": "foo", "value": "1"}]),
    _create("impossible option", configs=[{"name": "retention.ms", "value": "x"}]),
    _create("option without a value", configs=[{"name": "retention.ms", "value": None}]),
    _assigned("assigned", 0, 1),
    _assigned("assigned and counted", 0, 1, partitions=1),
    _assigned("assigned with a gap", 1, 1),
    _assigned("assigned to nobody known", 0, 7),
    _assigned("assigned twice", 0, 1, 1),
    _assigned("assigned to nobody", 0),
    _create("the metadata log", name="__cluster_metadata"),
    _grow("smaller", "cfg", 1),
    _grow("as it is", "cfg", 2),
    _grow("larger", "cfg", 3),
    _grow("nothing", "nope", 3),
    _grow("assigned", "cfg", 3, [[1]]),
    _grow("assigned too many", "cfg", 3, [[1], [1]]),
    _grow("assigned to nobody known", "cfg", 3, [[7]]),
    _grow("assigned twice", "cfg", 3, [[1, 1]]),
    _grow("assigned to nobody", "cfg", 3, [[]]),
    _grow("to nothing", "cfg", 0),
    Scenario(
        "no access lists",
        "DescribeAcls",
        3,
        {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        },
    ),
    *(_offsets(f"{timestamp} in v{version}", timestamp, version) for timestamp, version in (
        (-1, 11), (-2, 9), (-3, 7), (-3, 6), (-4, 8), (-4, 7), (-5, 9), (-5, 8), (-6, 11), (-6, 10), (-7, 11),
    )),
)  # fmt: skip
