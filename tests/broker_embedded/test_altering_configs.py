"""AlterConfigs and IncrementalAlterConfigs: accepted and refused changes, their effect, and restarts."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controller import config_changes
from pyclient.broker_embedded.controller.config_changes import Alteration, incremental, replaced
from pyclient.protocol.messages import alter_configs, incremental_alter_configs
from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pyclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pyclient.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker_embedded.nodes import node_of

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def change(
    client: Any,
    name: str,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    configs = [
        incremental_alter_configs.AlterableConfig(name=option, config_operation=operation, value=value)
        for option, operation, value in changes
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    [outcome] = client.call(request, version).responses
    assert (outcome.resource_type, outcome.resource_name) == (kind, name)
    return outcome


def replace(client: Any, name: str, options: dict[str, str | None], *, kind: int = TOPIC, version: int = 2) -> Any:
    configs = [alter_configs.AlterableConfig(name=option, value=value) for option, value in options.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    [outcome] = client.call(
        alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False), version
    ).responses
    return outcome


def described(client: Any, name: str, *keys: str, kind: int = TOPIC) -> dict[str, tuple[str | None, int]]:
    """Return the values and sources of options."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    [result] = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_code == 0, result
    return {config.name: (config.value, config.config_source) for config in result.configs}


# Pure functions


def compute_changes(current: dict[str, str], *alterations: tuple[str, int, str | None]) -> Any:
    return incremental(
        [Alteration(*each) for each in alterations],
        current,
        config_changes.topic_type,
        {"cleanup.policy": "delete"}.get,
    )


def test_unchanged_option_is_no_change() -> None:
    assert compute_changes({"retention.ms": "5"}, ("retention.ms", SET, "5")) == {}
    assert compute_changes({}, ("retention.ms", DELETE, None)) == {}
    assert replaced([("a", "1")], {"a": "1"}) == {}


def test_append_and_subtract_start_from_value_in_effect() -> None:
    assert compute_changes({}, ("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    assert compute_changes({}, ("cleanup.policy", APPEND, "delete")) == {"cleanup.policy": "delete"}
    both = {"cleanup.policy": "delete,compact"}
    assert compute_changes(both, ("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": "compact"}
    assert compute_changes(both, ("cleanup.policy", SUBTRACT, "nothing")) == {}


def test_replacement_removes_options_that_are_not_named() -> None:
    assert replaced([("a", "1"), ("b", "2")], {"b": "1", "c": "3"}) == {"a": "1", "b": "2", "c": None}


@given(
    st.dictionaries(st.sampled_from("abc"), st.text(max_size=3)),
    st.dictionaries(st.sampled_from("abc"), st.text(max_size=3)),
)
def test_replacement_results_in_given_options(current: dict[str, str], given_: dict[str, str]) -> None:
    after = {**current, **replaced(list(given_.items()), current)}
    assert {name: value for name, value in after.items() if value is not None} == given_


# Over the wire


@pytest.mark.parametrize("version", [0, 1])
def test_option_is_set_and_removed(client: Any, topic: str, version: int) -> None:
    assert change(client, topic, ("retention.ms", SET, "77"), version=version).error_code == 0
    assert described(client, topic, "retention.ms") == {"retention.ms": ("77", 1)}
    assert change(client, topic, ("retention.ms", DELETE, None), version=version).error_code == 0
    assert described(client, topic, "retention.ms") == {"retention.ms": ("604800000", 5)}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_options(client: Any, topic: str, version: int) -> None:
    assert change(client, topic, ("retention.ms", SET, "77")).error_code == 0
    assert replace(client, topic, {"segment.ms": "5"}, version=version).error_code == 0
    assert described(client, topic, "retention.ms", "segment.ms") == {
        "retention.ms": ("604800000", 5),
        "segment.ms": ("5", 1),
    }


def test_validate_only_changes_nothing(client: Any, topic: str) -> None:
    assert change(client, topic, ("retention.ms", SET, "77"), validate_only=True).error_code == 0
    assert change(client, topic, ("retention.ms", SET, "x"), validate_only=True).error_code != 0
    assert described(client, topic, "retention.ms") == {"retention.ms": ("604800000", 5)}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([("no.such.option", SET, "1")], errors.InvalidConfig),
        ([("retention.ms", SET, "abc")], errors.InvalidConfig),
        ([("retention.ms", SET, "-5")], errors.InvalidConfig),
        ([("cleanup.policy", SET, "burn")], errors.InvalidConfig),
        ([("compression.type", SET, "rar")], errors.InvalidConfig),
        ([("retention.ms", APPEND, "1")], errors.InvalidConfig),
        ([("no.such.option", SUBTRACT, "1")], errors.InvalidConfig),
        ([("retention.ms", SET, None)], errors.InvalidRequest),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], errors.InvalidRequest),
        ([("retention.ms", 9, "1")], errors.InvalidRequest),
        ([("retention.ms", -1, "1")], errors.InvalidRequest),
    ],
)
def test_invalid_change_is_refused_as_a_whole(client: Any, topic: str, changes: Any, error: Any) -> None:
    outcome = change(client, topic, ("segment.ms", SET, "5"), *changes)
    assert outcome.error_code == error.code
    assert outcome.error_message
    assert described(client, topic, "segment.ms") == {"segment.ms": ("604800000", 5)}


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nowhere", errors.UnknownTopicOrPartition),
        (TOPIC, "", errors.InvalidRequest),
        (TOPIC, "a/b", errors.InvalidTopic),
        (BROKER, "7", errors.InvalidRequest),
        (BROKER, "x", errors.InvalidRequest),
        (LOGGER, "7", errors.InvalidRequest),
        (METRICS, "m", errors.InvalidRequest),
        (99, "x", errors.InvalidRequest),
        (0, "x", errors.InvalidRequest),
    ],
)
def test_resource_without_dynamic_options_is_refused(client: Any, kind: int, name: str, error: Any) -> None:
    assert change(client, name, ("retention.ms", SET, "1"), kind=kind).error_code == error.code
    assert replace(client, name, {"retention.ms": "1"}, kind=kind).error_code == error.code


def test_duplicate_resource_is_refused_for_each_entry(client: Any, topic: str) -> None:
    resources = [
        alter_configs.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=topic,
            configs=[alter_configs.AlterableConfig(name="retention.ms", value=value)],
        )
        for value in "12"
    ]
    answer = client.call(alter_configs.AlterConfigsRequest(resources=resources, validate_only=False), 1)
    assert [each.error_code for each in answer.responses] == [errors.InvalidRequest.code] * 2
    assert described(client, topic, "retention.ms") == {"retention.ms": ("604800000", 5)}


def test_changed_topic_limit_applies_immediately(client: Any, topic: str, produce: Any, batch: Any) -> None:
    assert produce(client, topic, batch(bytes(2000))).error_code == 0
    assert change(client, topic, ("max.message.bytes", SET, "1000")).error_code == 0
    assert produce(client, topic, batch(bytes(2000))).error_code == errors.MessageTooLarge.code
    assert change(client, topic, ("max.message.bytes", DELETE, None)).error_code == 0
    assert produce(client, topic, batch(bytes(2000))).error_code == 0


def test_changed_broker_default_applies_to_topics_without_own_value(
    client: Any, broker: Any, topic: str, produce: Any, batch: Any
) -> None:
    own = f"own-{uuid.uuid4().hex}"
    wanted = CreatableTopic(name=own, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    assert client.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == 0
    assert change(client, own, ("max.message.bytes", SET, "1000000")).error_code == 0
    assert produce(client, topic, batch(bytes(2000))).error_code == 0
    try:
        assert change(client, "", ("message.max.bytes", SET, "1000"), kind=BROKER).error_code == 0
        assert produce(client, topic, batch(bytes(2000))).error_code == errors.MessageTooLarge.code
        assert produce(client, own, batch(bytes(2000))).error_code == 0
        assert described(client, topic, "max.message.bytes") == {"max.message.bytes": ("1000", 3)}
        assert change(client, "1", ("message.max.bytes", SET, "5000"), kind=BROKER).error_code == 0
        assert described(client, topic, "max.message.bytes") == {"max.message.bytes": ("5000", 2)}
        assert described(client, "1", "message.max.bytes", kind=BROKER) == {"message.max.bytes": ("5000", 2)}
        assert described(client, "", kind=BROKER) == {"message.max.bytes": ("1000", 3)}
        assert produce(client, topic, batch(bytes(2000))).error_code == 0
    finally:
        for resource in ("", "1"):
            assert change(client, resource, ("message.max.bytes", DELETE, None), kind=BROKER).error_code == 0
    assert described(client, topic, "max.message.bytes") == {"max.message.bytes": ("1048588", 5)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node.id", "3"),
        ("num.partitions", "3"),
        ("log.retention.hours", "3"),
        ("log.retention.ms", "abc"),
        ("max.connections", "-1"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("log.cleaner.threads", "two"),
        ("log.local.retention.ms", "-3"),
        ("max.connection.creation.rate", "0"),
        ("num.replica.alter.log.dirs.threads", "2"),
        ("quota.window.num", "2"),
        ("listeners", "PLAINTEXT://:1"),
        ("ssl.keystore.password", "secret"),
        ("listener.name.internal.ssl.keystore.password", "secret"),
    ],
)
def test_static_or_invalid_broker_option_is_refused(client: Any, name: str, value: str) -> None:
    outcome = change(client, "1", (name, SET, value), kind=BROKER)
    assert outcome.error_code == errors.InvalidRequest.code
    assert name in outcome.error_message
    assert "secret" not in outcome.error_message


def test_unknown_option_is_stored_and_its_value_hidden(client: Any) -> None:
    assert change(client, "1", ("plugin.password", SET, "hunter2"), kind=BROKER).error_code == 0
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=["plugin.password"])
    [result] = client.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4).results
    [config] = result.configs
    assert (config.value, config.is_sensitive, config.config_source, config.config_type) == (None, True, 2, 0)
    assert [synonym.value for synonym in config.synonyms] == [None]
    assert change(client, "1", ("plugin.password", DELETE, None), kind=BROKER).error_code == 0


def test_topic_with_unknown_option_in_log_is_served(
    client: Any, broker: Any, topic: str, produce: Any, batch: Any
) -> None:
    options = {"message.format.version": "2.8", "remote.storage.enable": "true", "max.message.bytes": "200"}
    node_of(broker).image.configs[(TOPIC, topic)] = options  # as in a metadata log written by Kafka
    assert produce(client, topic, batch(b"small")).error_code == 0
    assert produce(client, topic, batch(b"x" * 200)).error_code == errors.MessageTooLarge.code
    assert change(client, topic, ("retention.ms", SET, "77")).error_code == 0
    assert change(client, topic, ("message.format.version", SET, "3.0")).error_code == errors.InvalidConfig.code
    assert change(client, topic, ("message.format.version", DELETE, None)).error_code == 0
    assert replace(client, topic, {"retention.ms": "78"}).error_code == 0
    assert described(client, topic, "retention.ms", "remote.storage.enable") == {
        "retention.ms": ("78", 1),
        "remote.storage.enable": ("false", 5),
    }


def test_rate_of_throttled_replication_is_listed_once_it_is_set(client: Any) -> None:
    """As in Kafka: a dynamic option of type LONG without a static value and without a default to show."""
    name = "follower.replication.throttled.rate"
    assert change(client, "1", (name, SET, "-1"), kind=BROKER).error_code == errors.InvalidRequest.code
    assert described(client, "1", name, kind=BROKER) == {}
    assert change(client, "1", (name, SET, "1000000"), kind=BROKER).error_code == 0
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=[name])
    [result] = client.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4).results
    [option] = result.configs
    assert (option.value, option.config_type, option.config_source) == ("1000000", 5, 2)
    assert not option.read_only
    assert not option.is_sensitive
    assert [(each.name, each.value, each.source) for each in option.synonyms] == [(name, "1000000", 2)]
    assert change(client, "1", (name, DELETE, None), kind=BROKER).error_code == 0
    assert described(client, "1", name, kind=BROKER) == {}


def test_tiered_storage_options_are_accepted_but_topics_not_tiered(client: Any, topic: str) -> None:
    defaults = {
        "follower.replication.throttled.replicas": ("", 5),
        "leader.replication.throttled.replicas": ("", 5),
        "local.retention.bytes": ("-2", 5),
        "local.retention.ms": ("-2", 5),
        "remote.log.copy.disable": ("false", 5),
        "remote.log.delete.on.disable": ("false", 5),
        "remote.storage.enable": ("false", 5),
    }
    assert described(client, topic, *defaults) == defaults
    changed = {
        "follower.replication.throttled.replicas": "*",
        "leader.replication.throttled.replicas": "0:1,1:2",
        "local.retention.bytes": "5",
        "local.retention.ms": "-1",
        "remote.log.copy.disable": "true",
        "remote.log.delete.on.disable": "true",
        "remote.storage.enable": "false",
    }
    assert change(client, topic, *((name, SET, value) for name, value in changed.items())).error_code == 0
    assert described(client, topic, *changed) == {name: (value, 1) for name, value in changed.items()}
    added = ("leader.replication.throttled.replicas", APPEND, "2:3")
    assert change(client, topic, added).error_code == 0
    assert described(client, topic, added[0]) == {added[0]: ("0:1,1:2,2:3", 1)}
    refused = change(client, topic, ("remote.storage.enable", SET, "true"))
    assert (refused.error_code, "tiered" in refused.error_message) == (errors.InvalidConfig.code, True)
    configs = [CreatableTopicConfig(name="remote.storage.enable", value="true")]
    wanted = CreatableTopic(name="tiered", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    assert client.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == errors.InvalidConfig.code


def test_options_without_effect_are_stored_and_described(client: Any) -> None:
    assert change(client, "", ("log.cleaner.threads", SET, "2"), kind=BROKER).error_code == 0
    for resource in ("", "1"):
        assert described(client, resource, "log.cleaner.threads", kind=BROKER) == {"log.cleaner.threads": ("2", 3)}
    assert change(client, "", ("log.cleaner.threads", DELETE, None), kind=BROKER).error_code == 0


def test_compaction_memory_that_kafka_refuses_is_refused(client: Any, broker: Any) -> None:
    """With room for one key, each key of a log would take a round of its own: minutes in which nothing is served."""
    name = "log.cleaner.dedupe.buffer.size"
    for value in ("1", "1048576"):
        refused = change(client, "", (name, SET, value), kind=BROKER)
        assert (refused.error_code, name in refused.error_message) == (errors.InvalidRequest.code, True)
    assert change(client, "", (name, SET, "1048577"), kind=BROKER).error_code == 0
    assert node_of(broker).config.integer(name) == 1048577


def test_changed_intervals_apply_immediately(client: Any, broker: Any) -> None:
    node = node_of(broker)
    wanted = (("group.consumer.assignment.interval.ms", SET, "77"), ("log.cleaner.backoff.ms", SET, "88"))
    assert node.groups.consumers.limits("g").assignment_interval_ms == 0
    assert change(client, "", *wanted, kind=BROKER).error_code == 0
    assert node.groups.consumers.limits("g").assignment_interval_ms == 77
    assert node.config.integer("log.cleaner.backoff.ms") == 88


def test_dynamic_options_are_restored_after_restart(connect: Any, data_dir: str) -> None:
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        client.call(CreateTopicsRequest(topics=[wanted]), 7)
        assert change(client, "t", ("segment.bytes", SET, "2000000")).error_code == 0
        assert change(client, "", ("log.retention.ms", SET, "123"), kind=BROKER).error_code == 0
        cluster.restart()
        client = connect(cluster)
        assert described(client, "t", "segment.bytes", "retention.ms") == {
            "segment.bytes": ("2000000", 1),
            "retention.ms": ("123", 3),
        }
        assert node_of(cluster).logs.defaults.retention_ms == 123


def test_list_config_resources_has_resources_with_options(client: Any, topic: str) -> None:
    def listed(version: int, *kinds: int) -> Any:
        return client.call(ListConfigResourcesRequest(resource_types=list(kinds)), version)

    resources = {(each.resource_type, each.resource_name) for each in listed(1).config_resources}
    assert {(TOPIC, topic), (BROKER, "1")} <= resources
    assert {each.resource_type for each in listed(1, TOPIC, TOPIC).config_resources} == {TOPIC}
    assert listed(0).config_resources == []
    assert listed(1, 99).error_code == errors.UnsupportedVersion.code
