"""Every option that a real Kafka describes, ours describes, too: name, type, default, and if it may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker_embedded.groups.raw import RawConnection
from tests.kafka.jars import VERSIONS
from tests.kafka.runner import RealKafka

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
STATIC, DEFAULT = 4, 5
ELR: Final = "min.insync.replicas"
"""Kafka 4.1 and later set it for all brokers of a new cluster by themselves, with eligible leader replicas."""

Described = dict[str, Any]


@pytest.fixture(scope="module")
def kafkas(kafka_tools: None) -> Iterator[dict[int, Described]]:
    with RealKafka(VERSIONS[0], heap="512M") as kafka:
        yield everything(kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def ours() -> Iterator[dict[int, Described]]:
    with EmbeddedCluster(profile="kafka") as cluster:
        yield everything(cluster.bootstrap_servers)


def everything(servers: str) -> dict[int, Described]:
    """Return the described options of a broker, a topic, a group and client metrics, by name."""
    with RawConnection(servers) as connection:
        plain = CreatableTopic(name="plain", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        connection.ask(CreateTopicsRequest(topics=[plain], timeout_ms=20_000), 7)
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in ((BROKER, "1"), (TOPIC, "plain"), (GROUP, "g"), (METRICS, "m"))
        ]
        while True:  # a real broker learns of the topic a little after its controller has created it
            answer = connection.ask(DescribeConfigsRequest(resources=resources, include_synonyms=True), 4)
            if all(result.error_code == 0 for result in answer.results):
                return {
                    result.resource_type: {config.name: config for config in result.configs}
                    for result in answer.results
                }


def facts(config: Any) -> tuple[Any, ...]:
    """Return the facts about an option that are the same on every broker of a release."""
    default = [(synonym.name, synonym.value) for synonym in config.synonyms if synonym.source == DEFAULT]
    return config.name, config.config_type, config.read_only, config.is_sensitive, default


@pytest.mark.parametrize("kind", [BROKER, TOPIC, GROUP, METRICS])
def test_options_equal_kafkas(kafkas: dict[int, Described], ours: dict[int, Described], kind: int) -> None:
    assert ours[kind].keys() == kafkas[kind].keys()
    for name, theirs in kafkas[kind].items():
        assert facts(ours[kind][name]) == facts(theirs)
        if STATIC not in {theirs.config_source, ours[kind][name].config_source} and name != ELR:
            assert ours[kind][name] == theirs
