"""DescribeConfigs: values, sources and synonyms of options."""

from __future__ import annotations

from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pyclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, LOGGER = 2, 4, 8


def describe(client: Any, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **options: Any) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    [result] = client.call(DescribeConfigsRequest(resources=[resource], **options), version).results
    return result


def by_name(result: Any) -> dict[str, Any]:
    assert result.error_code == 0, result
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_has_all_topic_options(client: Any, topic: str, version: int) -> None:
    configs = by_name(describe(client, TOPIC, topic, version=version))
    assert configs["retention.ms"].value == "604800000"
    assert configs["retention.ms"].config_source == 5
    assert configs["file.delete.delay.ms"].config_source == 4  # the test profile sets log.segment.delete.delay.ms
    assert not any(name.startswith("internal.") for name in configs)
    if version >= 3:
        assert configs["retention.ms"].config_type == 5
        assert configs["preallocate"].config_type == 1
        assert configs["cleanup.policy"].config_type == 7


@pytest.mark.parametrize("keys", [None, []])
def test_null_names_request_all_options(client: Any, topic: str, keys: Any) -> None:
    assert len(describe(client, TOPIC, topic, keys).configs) > 20


def test_named_options_are_described(client: Any, topic: str) -> None:
    configs = by_name(describe(client, TOPIC, topic, ["segment.bytes", "no.such.option"]))
    assert set(configs) == {"segment.bytes"}


def test_documentation_and_synonyms_are_included_on_request(client: Any, topic: str) -> None:
    configs = by_name(describe(client, TOPIC, topic, include_synonyms=True, include_documentation=True))
    option = configs["max.message.bytes"]
    assert option.documentation
    assert [(entry.name, entry.value, entry.source) for entry in option.synonyms] == [
        ("message.max.bytes", "1048588", 5)
    ]
    assert configs["retention.ms"].synonyms == []
    plain = by_name(describe(client, TOPIC, topic))["max.message.bytes"]
    assert plain.documentation is None
    assert plain.synonyms == []


def test_topic_option_overrides_broker_option(connect: Any) -> None:
    with EmbeddedCluster(config={"log.retention.minutes": 5, "log.retention.hours": 1}) as cluster:
        client = connect(cluster)
        own = [CreatableTopicConfig(name="retention.ms", value="7")]
        for name, configs in (("own", own), ("inherited", [])):
            wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
            client.call(CreateTopicsRequest(topics=[wanted]), 5)
        inherited = by_name(describe(client, TOPIC, "inherited", include_synonyms=True))["retention.ms"]
        assert (inherited.value, inherited.config_source) == ("300000", 4)
        assert [entry.name for entry in inherited.synonyms] == [
            "log.retention.minutes",
            "log.retention.hours",
        ]
        option = by_name(describe(client, TOPIC, "own"))["retention.ms"]
        assert (option.value, option.config_source) == ("7", 1)


def test_describe_configs_has_broker_options(client: Any, broker: Any) -> None:
    configs = by_name(describe(client, BROKER, "1", include_synonyms=True))
    assert configs["group.initial.rebalance.delay.ms"].value == "0"
    assert configs["group.initial.rebalance.delay.ms"].config_source == 4
    assert configs["num.partitions"].config_source == 5
    assert configs["log.dirs"].value == broker.data_dir
    assert configs["log.retention.ms"].value is None
    assert configs["node.id"].read_only
    assert not configs["log.retention.ms"].read_only
    assert configs["log.retention.hours"].read_only


def test_option_without_effect_has_its_set_value(connect: Any) -> None:
    with EmbeddedCluster(config={"num.io.threads": 9, "auto.include.jmx.reporter": "true"}) as cluster:
        configs = by_name(describe(connect(cluster), BROKER, "1", include_synonyms=True))
        option = configs["num.io.threads"]
        assert (option.value, option.config_source, option.read_only) == ("9", 4, False)
        assert [(entry.value, entry.source) for entry in option.synonyms] == [("9", 4), ("8", 5)]
        assert configs["listeners"].value == f"PLAINTEXT://{cluster.bootstrap_servers}"
        secret = configs["ssl.keystore.password"]
        assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 9)
        assert len([name for name in configs if not name.startswith("internal.")]) == 340
        assert "auto.include.jmx.reporter" not in configs


def test_cluster_has_no_dynamic_options_by_default(client: Any) -> None:
    assert by_name(describe(client, BROKER, "")) == {}


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nowhere", errors.UnknownTopicOrPartition),
        (TOPIC, "a/b", errors.InvalidTopic),
        (BROKER, "2", errors.InvalidRequest),
        (BROKER, "x", errors.InvalidRequest),
        (LOGGER, "2", errors.InvalidRequest),
        (99, "1", errors.InvalidRequest),
    ],
)
def test_resource_without_options_is_refused(client: Any, kind: int, name: str, error: Any) -> None:
    result = describe(client, kind, name)
    assert result.error_code == error.code
    assert result.error_message
    assert (result.resource_type, result.resource_name) == (kind, name)
