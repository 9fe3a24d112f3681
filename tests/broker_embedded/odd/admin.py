"""Unusual admin requests in addition to `admin_scenarios`: duplicates, empty requests, and unknown types."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from tests.broker_embedded.odd.data import ANOTHER_ID, LONG, NO_ID, TWO, T
from tests.broker_embedded.odd.table import ABSENT, Scenario, ask, derived
from tests.broker_embedded.odd.wire import IdOf

_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32


def _new(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, **more}


def _assigned(*replicas: tuple[int, int]) -> dict[str, Any]:
    """Return a new topic with an assignment of each (partition, broker)."""
    wanted = [{"partition_index": index, "broker_ids": [broker]} for index, broker in replicas]
    return _new("n1", num_partitions=-1, replication_factor=-1, assignments=wanted)


def _topics() -> Iterator[Scenario]:
    size = {"name": "segment.bytes"}
    for label, topics in (
        ("none", []),
        ("twice", [_new("n1"), _new("n1")]),
        ("twice and another", [_new("n1"), _new("n2"), _new("n1")]),
        ("there twice", [_new(T), _new(T)]),
        ("nameless twice", [_new(""), _new("")]),
        ("two dots", [_new("..")]),
        ("249 letters", [_new(LONG[:249])]),
        ("a clash", [_new("odd.one"), _new("odd_one")]),
        ("replication -2", [_new("n1", replication_factor=-2)]),
        ("replication -1", [_new("n1", replication_factor=-1)]),
        ("partitions -1", [_new("n1", num_partitions=-1)]),
        ("the same partition assigned twice", [_assigned((0, 1), (0, 1))]),
        ("partition -1 assigned", [_assigned((-1, 1))]),
        ("assigned to -1", [_assigned((0, -1))]),
        ("option twice", [_new("n1", configs=[{**size, "value": value} for value in ("2000000", "3000000")])]),
        ("nameless option", [_new("n1", configs=[{"name": "", "value": "1"}])]),
        ("empty option", [_new("n1", configs=[{"name": "retention.ms", "value": ""}])]),
        ("blank option", [_new("n1", configs=[{"name": "retention.ms", "value": " 5 "}])]),
        ("internal", [_new("__consumer_offsets")]),
        ("will be internal", [_new("__transaction_state")]),
    ):
        yield from ask("CreateTopics", label, (2, 4, 5, 7), topics=topics, timeout_ms=5000, validate_only=True)


def _deletions() -> Iterator[Scenario]:
    for label, wanted in (
        ("none", []),
        ("no name", [""]),
        ("unknown", [ABSENT]),
        ("unknown twice", [ABSENT, ABSENT]),
        ("twice", [T, T]),
        ("long", [LONG]),
    ):
        yield from ask("DeleteTopics", label, (1, 3, 5), topic_names=wanted, timeout_ms=5000)
        yield from ask("DeleteTopics", label, (6,), topics=[{"name": name} for name in wanted], timeout_ms=5000)
    for label, topics in (
        ("an unknown id", [{"name": None, "topic_id": ANOTHER_ID}]),
        ("an unknown id twice", [{"name": None, "topic_id": ANOTHER_ID}] * 2),
        ("neither", [{"name": None, "topic_id": NO_ID}]),
        ("both", [{"name": T, "topic_id": IdOf(T)}]),
        ("by name, and by id", [{"name": T}, {"name": None, "topic_id": IdOf(T)}]),
        ("an id twice", [{"name": None, "topic_id": IdOf(T)}] * 2),
    ):
        yield from ask("DeleteTopics", label, (6,), topics=topics, timeout_ms=5000)


def _partitions() -> Iterator[Scenario]:
    for label, topics in (
        ("none", []),
        ("twice", [{"name": TWO, "count": 3, "assignments": None}] * 2),
        ("twice and another", [{"name": TWO, "count": 3}, {"name": T, "count": 2}, {"name": TWO, "count": 4}]),
        ("nameless", [{"name": "", "count": 3}]),
        ("count -1", [{"name": TWO, "count": -1}]),
        ("no assignments", [{"name": TWO, "count": 3, "assignments": []}]),
        ("too few assignments", [{"name": TWO, "count": 4, "assignments": [{"broker_ids": [1]}]}]),
        ("assigned to -1", [{"name": TWO, "count": 3, "assignments": [{"broker_ids": [-1]}]}]),
        ("internal", [{"name": "__consumer_offsets", "count": 9}]),
        ("far too many", [{"name": TWO, "count": 20_000}]),
    ):
        yield from ask("CreatePartitions", label, (0, 2, 3), topics=topics, timeout_ms=5000, validate_only=True)


def _resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **more}


def _options() -> Iterator[Scenario]:
    keys = {"configuration_keys": ["retention.ms"]}
    for label, resources in (
        ("none", []),
        ("twice", [_resource(_TOPIC, T, **keys)] * 2),
        ("no keys", [_resource(_TOPIC, T, configuration_keys=[""])]),
        ("unknown keys", [_resource(_TOPIC, T, configuration_keys=[ABSENT])]),
        ("a key twice", [_resource(_TOPIC, T, configuration_keys=["retention.ms"] * 2)]),
        ("type 0", [_resource(0, "x")]),
        ("type -1", [_resource(-1, "x")]),
        ("type 1", [_resource(1, "x")]),
        ("an unknown topic", [_resource(_TOPIC, ABSENT)]),
        ("a long topic", [_resource(_TOPIC, LONG)]),
        (
            "the internal topic",
            [_resource(_TOPIC, "__consumer_offsets", configuration_keys=["cleanup.policy", "segment.bytes"])],
        ),
        ("broker -1", [_resource(_BROKER, "-1")]),
        ("broker 01", [_resource(_BROKER, "01", configuration_keys=["num.partitions"])]),
        ("an unknown group", [_resource(_GROUP, ABSENT, configuration_keys=["consumer.session.timeout.ms"])]),
        ("unknown metrics", [_resource(_METRICS, ABSENT, configuration_keys=["interval.ms"])]),
    ):
        yield from ask("DescribeConfigs", label, (1, 4), resources=resources)


def _alterations() -> Iterator[Scenario]:
    level = {"config_operation": 0, "name": "retention.ms", "value": "99999"}
    for label, resources in (
        ("none", []),
        ("twice", [_resource(_TOPIC, T, configs=[level])] * 2),
        (
            "twice and another",
            [
                _resource(_TOPIC, T, configs=[level]),
                _resource(_TOPIC, TWO, configs=[level]),
                _resource(_TOPIC, T, configs=[]),
            ],
        ),
        ("operation 99", [_resource(_TOPIC, T, configs=[{**level, "config_operation": 99}])]),
        ("operation -1", [_resource(_TOPIC, T, configs=[{**level, "config_operation": -1}])]),
        ("deleting a value", [_resource(_TOPIC, T, configs=[{**level, "config_operation": 1}])]),
        ("an empty value", [_resource(_TOPIC, T, configs=[{**level, "value": ""}])]),
        (
            "appending null",
            [_resource(_TOPIC, T, configs=[{"name": "cleanup.policy", "config_operation": 2, "value": None}])],
        ),
        (
            "appending nothing",
            [_resource(_TOPIC, T, configs=[{"name": "cleanup.policy", "config_operation": 2, "value": ""}])],
        ),
        ("nameless", [_resource(_TOPIC, T, configs=[{**level, "name": ""}])]),
        ("type 0", [_resource(0, "x", configs=[level])]),
        ("type -1", [_resource(-1, "x", configs=[level])]),
        ("two types", [_resource(_TOPIC, T, configs=[level]), _resource(99, T, configs=[level])]),
        ("broker -1", [_resource(_BROKER, "-1", configs=[])]),
    ):
        yield from ask("IncrementalAlterConfigs", label, resources=resources, validate_only=True)
        if "twice" not in label:  # Kafka leaves that unanswered
            yield from ask("AlterConfigs", label, resources=resources, validate_only=True)
    for types in ([0], [-1], [_LOGGER], [_BROKER, _BROKER], [_TOPIC, 99], [_METRICS], [_GROUP]):
        yield from ask("ListConfigResources", f"types {types}", (1,), resource_types=types)


def _loggers() -> Iterator[Scenario]:
    root = {"config_operation": 0, "name": "root", "value": "INFO"}

    def change(label: str, *configs: dict[str, Any], name: str = "1", **more: Any) -> Iterator[Scenario]:
        resources = [{"resource_type": _LOGGER, "resource_name": name, "configs": list(configs)}]
        yield from ask("IncrementalAlterConfigs", f"logger {label}", resources=resources, **more)

    yield from change("levels", root)
    for name in ("", "2", "x"):
        yield from change(f"of broker {name!r}", root, name=name)
        described = [{"resource_type": _LOGGER, "resource_name": name, "configuration_keys": None}]
        yield from ask("DescribeConfigs", f"loggers of broker {name!r}", (1, 4), resources=described)
    yield from change("of no level", {**root, "value": "LOUD"})
    yield from change("of a small level", {**root, "value": "info"})
    yield from change("of null", {**root, "value": None})
    yield from change("unknown", {**root, "name": ABSENT})
    yield from change("appended", {**root, "config_operation": 2})
    yield from change("operation 99", {**root, "config_operation": 99})
    yield from change("root deleted", {**root, "config_operation": 1, "value": None})
    yield from change("twice", root, root)
    yield from change("nothing")
    yield from change("tried", {**root, "value": "DEBUG"}, validate_only=True)
    for level in ("TRACE", "DEBUG", "WARN", "ERROR", "FATAL", "OFF", "INFO"):
        yield from change(f"level {level}", {**root, "value": level})
        described = [{"resource_type": _LOGGER, "resource_name": "1", "configuration_keys": ["root"]}]
        more = {"include_synonyms": True, "include_documentation": True}
        yield from ask("DescribeConfigs", f"logger of level {level}", (1, 4), resources=described, **more)
    described = [{"resource_type": _LOGGER, "resource_name": "1", "configuration_keys": [ABSENT]}]
    yield from ask("DescribeConfigs", "an unknown logger", (4,), resources=described)
    replaced = [{"resource_type": _LOGGER, "resource_name": "1", "configs": [{"name": "root", "value": "INFO"}]}]
    yield from ask("AlterConfigs", "loggers", resources=replaced)


def _directories() -> Iterator[Scenario]:
    yield from ask(
        "DescribeLogDirs", "twice", topics=[{"topic": T, "partitions": [0]}, {"topic": T, "partitions": [0, 0]}]
    )
    yield from ask(
        "DescribeLogDirs",
        "nobodys",
        topics=[
            {"topic": ABSENT, "partitions": [0]},
            {"topic": T, "partitions": [-1]},
            {"topic": "", "partitions": []},
        ],
    )


def _elections() -> Iterator[Scenario]:
    for label, topics in (
        ("none", []),
        ("no partitions", [{"topic": T, "partitions": []}]),
        ("twice", [{"topic": T, "partitions": [0, 0]}]),
        ("topic twice", [{"topic": T, "partitions": [0]}, {"topic": T, "partitions": [0]}]),
        ("odd ones", [{"topic": T, "partitions": [-1, 9]}, {"topic": "", "partitions": [0]}]),
    ):
        yield from ask("ElectLeaders", label, election_type=0, topic_partitions=topics, timeout_ms=5000)
        yield from ask(
            "ElectLeaders", f"type -1, {label}", (1, 2), election_type=-1, topic_partitions=topics, timeout_ms=5000
        )


def _reassignments() -> Iterator[Scenario]:
    for label, topics in (
        ("none", []),
        ("no partitions", [{"name": T, "partitions": []}]),
        ("twice", [{"name": T, "partitions": [{"partition_index": 0, "replicas": [1]}] * 2}]),
        ("topic twice", [{"name": T, "partitions": [{"partition_index": 0, "replicas": [1]}]}] * 2),
        ("to -1", [{"name": T, "partitions": [{"partition_index": 0, "replicas": [-1]}]}]),
        ("partition -1", [{"name": T, "partitions": [{"partition_index": -1, "replicas": [1]}]}]),
        ("nameless", [{"name": "", "partitions": [{"partition_index": 0, "replicas": None}]}]),
    ):
        yield from ask("AlterPartitionReassignments", label, topics=topics, timeout_ms=5000)
    yield from ask(
        "AlterPartitionReassignments",
        "the same number",
        (1,),
        allow_replication_factor_change=False,
        timeout_ms=5000,
        topics=[{"name": T, "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}],
    )
    for label, topics in (
        ("none", []),
        ("odd ones", [{"name": T, "partition_indexes": [-1, 9, 0, 0]}, {"name": ABSENT, "partition_indexes": [0]}]),
    ):
        yield from ask("ListPartitionReassignments", label, topics=topics, timeout_ms=5000)


def _cluster() -> Iterator[Scenario]:
    for label, topics in (
        ("the metadata", [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 9}]}]),
        ("no partitions", [{"topic_name": "__cluster_metadata", "partitions": []}]),
        (
            "twice",
            [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}, {"partition_index": 0}]}],
        ),
        (
            "two topics",
            [
                {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]},
                {"topic_name": T, "partitions": [{"partition_index": 0}]},
            ],
        ),
    ):
        yield from ask("DescribeQuorum", label, topics=topics)
    yield from ask("DescribeCluster", "type 0", (1, 2), endpoint_type=0)
    yield from ask("DescribeCluster", "type -1", (1, 2), endpoint_type=-1)
    yield from ask("DescribeCluster", "fenced", (2,), include_fenced_brokers=True)


def _features() -> Iterator[Scenario]:
    for label, updates in (
        ("none", []),
        ("twice", [{"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}] * 2),
        ("nameless", [{"feature": "", "max_version_level": 1, "upgrade_type": 1}]),
        ("level -1", [{"feature": "group.version", "max_version_level": -1, "upgrade_type": 1}]),
        ("type 0", [{"feature": "group.version", "max_version_level": 1, "upgrade_type": 0}]),
        ("deleted", [{"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}]),
        (
            "a good and a bad one",
            [
                {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1},
                {"feature": ABSENT, "max_version_level": 1, "upgrade_type": 1},
            ],
        ),
    ):
        yield from ask("UpdateFeatures", label, (1, 2), feature_updates=updates, validate_only=True, timeout_ms=5000)


def _quotas() -> Iterator[Scenario]:
    def quota(label: str, entries: list[dict[str, Any]]) -> Iterator[Scenario]:
        yield from ask("AlterClientQuotas", label, entries=entries, validate_only=True)

    one = {
        "entity": [{"entity_type": "user", "entity_name": "u"}],
        "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
    }
    yield from quota("none", [])
    yield from quota("twice", [one, one])
    yield from quota("no changes", [{**one, "ops": []}])
    yield from quota("a type twice", [{**one, "entity": one["entity"] * 2}])
    yield from quota("an option twice", [{**one, "ops": one["ops"] * 2}])
    yield from quota("a nameless option", [{**one, "ops": [{"key": "", "value": 1.0, "remove": False}]}])
    yield from quota(
        "infinite", [{**one, "ops": [{"key": "producer_byte_rate", "value": float("inf"), "remove": False}]}]
    )
    yield from quota(
        "no number", [{**one, "ops": [{"key": "producer_byte_rate", "value": float("nan"), "remove": False}]}]
    )
    yield from quota("an empty type", [{**one, "entity": [{"entity_type": "", "entity_name": "u"}]}])
    yield from quota("a good and a bad one", [one, {**one, "entity": []}])
    for label, components in (
        ("a type twice", [{"entity_type": "user", "match_type": 2, "match": None}] * 2),
        ("match -1", [{"entity_type": "user", "match_type": -1, "match": None}]),
        ("any with a name", [{"entity_type": "user", "match_type": 2, "match": "x"}]),
    ):
        yield from ask("DescribeClientQuotas", label, components=components)


def _credentials() -> Iterator[Scenario]:
    for label, users in (
        ("an empty list", []),
        ("an empty name", [{"name": ""}]),
        ("unknown twice", [{"name": ABSENT}] * 2),
    ):
        yield from ask("DescribeUserScramCredentials", label, users=users)
    new = {"name": "u", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
    for label, deletions, upsertions in (
        ("empty lists", [], []),
        ("twice", [], [new, new]),
        ("two mechanisms", [], [{**new, "name": ABSENT, "mechanism": 3}, {**new, "name": ABSENT, "mechanism": -1}]),
        ("deleted and set", [{"name": "u", "mechanism": 1}], [new]),
        ("deleted of mechanism 9", [{"name": "u", "mechanism": 9}], []),
        ("deleted of no user", [{"name": "", "mechanism": 1}], []),
        ("no iterations", [], [{**new, "iterations": 0}]),
        ("mechanism 0", [], [{**new, "mechanism": 0}]),
    ):
        yield from ask("AlterUserScramCredentials", label, deletions=deletions, upsertions=upsertions)


def _clients() -> Iterator[Scenario]:
    for label, name, version in (
        ("no software", "", ""),
        ("no version", "x", ""),
        ("a blank", "a b", "1"),
        ("a dash", "-", "1"),
        ("an umlaut", "\u00e4", "1"),
    ):
        yield from ask("ApiVersions", label, (3, 4), client_software_name=name, client_software_version=version)
    for label, transactional, producer, epoch in (
        ("an empty id", "", -1, -1),
        ("a given producer", None, 5, 0),
        ("epoch without a producer", None, -1, 3),
        ("a producer without an epoch", None, 5, -1),
    ):
        yield from ask(
            "InitProducerId",
            label,
            (0, 3, 5),
            transactional_id=transactional,
            transaction_timeout_ms=1000,
            producer_id=producer,
            producer_epoch=epoch,
        )
    yield from ask("InitProducerId", "timeout -1", transactional_id=None, transaction_timeout_ms=-1)


SCENARIOS: Final = tuple(
    chain(
        derived("CreateTopics", "DeleteTopics", "CreatePartitions", "DescribeConfigs", "AlterConfigs"),
        derived("IncrementalAlterConfigs", "ListConfigResources", "DescribeLogDirs", "ElectLeaders"),
        derived("AlterReplicaLogDirs"),
        derived("AlterPartitionReassignments", "ListPartitionReassignments", "DescribeQuorum", "DescribeCluster"),
        derived("UpdateFeatures", "AlterClientQuotas", "DescribeClientQuotas", "AlterUserScramCredentials"),
        derived("UnregisterBroker"),
        derived(*(f"{call}DelegationToken" for call in ("Create", "Renew", "Expire", "Describe"))),
        derived("DescribeUserScramCredentials", "DescribeAcls", "CreateAcls", "DeleteAcls", "InitProducerId"),
        _topics(),
        _deletions(),
        _partitions(),
        _options(),
        _alterations(),
        _loggers(),
        _directories(),
        _elections(),
        _reassignments(),
        _cluster(),
        _features(),
        _quotas(),
        _credentials(),
        _clients(),
    )
)
