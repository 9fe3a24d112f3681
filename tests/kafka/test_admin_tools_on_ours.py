"""Kafka's own tools for administrators, of two releases, do their work on our broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka import tools
from tests.kafka.jars import VERSIONS
from tests.kafka.needs import skip_without_kafka

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def ours() -> Iterator[EmbeddedCluster]:
    """Our broker in a process of its own."""
    with EmbeddedCluster(processes=True) as cluster:
        yield cluster


@pytest.fixture
def at(ours: EmbeddedCluster) -> tuple[str, str]:
    """The option that every tool has."""
    return "--bootstrap-server", ours.bootstrap_servers


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """The release whose tools are used."""
    skip_without_kafka(request.param)
    return str(request.param)


@pytest.fixture
def filled(ours: EmbeddedCluster, topic: str) -> str:
    """A topic with ten records in partition 0."""
    with Producer(ours.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    return topic


def test_topics_are_reconfigured(at: tuple[str, str], version: str, filled: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", filled)
    added = "retention.ms=5000,cleanup.policy=[delete,compact]"
    tools.run("configs", *at, *entity, "--alter", "--add-config", added, version=version)
    output = tools.run("configs", *at, *entity, "--describe", version=version).out
    assert "retention.ms=5000" in output
    assert "cleanup.policy=delete,compact" in output
    tools.run("configs", *at, *entity, "--alter", "--delete-config", "retention.ms", version=version)
    output = tools.run("configs", *at, *entity, "--describe", "--all", version=version).out
    assert re.search(r"retention\.ms=604800000 .*synonyms=\{", output)
    wrong = tools.run(
        "configs", *at, *entity, "--alter", "--add-config", "retention.ms=x", version=version, check=False
    )
    assert "InvalidConfigurationException" in wrong.out + wrong.err


def test_brokers_are_reconfigured(at: tuple[str, str], version: str, filled: str) -> None:
    default = ("--entity-type", "brokers", "--entity-default")
    one = ("--entity-type", "brokers", "--entity-name", "1")
    tools.run("configs", *at, *default, "--alter", "--add-config", "log.retention.ms=77777", version=version)
    try:
        output = tools.run("configs", *at, *default, "--describe", version=version).out
        assert "log.retention.ms=77777" in output
        output = tools.run("configs", *at, *one, "--describe", "--all", version=version).out
        assert re.search(r"log\.retention\.ms=77777 .*DYNAMIC_DEFAULT_BROKER_CONFIG:log\.retention\.ms=77777", output)
        topic = ("--entity-type", "topics", "--entity-name", filled)
        output = tools.run("configs", *at, *topic, "--describe", "--all", version=version).out
        assert "retention.ms=77777 " in output
    finally:
        tools.run("configs", *at, *default, "--alter", "--delete-config", "log.retention.ms", version=version)


def test_levels_of_loggers_are_changed(at: tuple[str, str], version: str) -> None:
    entity = ("--entity-type", "broker-loggers", "--entity-name", "1")
    own = "pyclient.broker_embedded"
    tools.run("configs", *at, *entity, "--alter", "--add-config", f"root=ERROR,{own}=DEBUG", version=version)
    output = tools.run("configs", *at, *entity, "--describe", version=version).out
    assert f"{own}=DEBUG" in output
    assert "root=ERROR" in output
    tools.run("configs", *at, *entity, "--alter", "--delete-config", own, version=version)
    assert f"{own}=ERROR" in tools.run("configs", *at, *entity, "--describe", version=version).out


def test_clients_get_quotas_and_users_credentials(at: tuple[str, str], version: str) -> None:
    client = ("--entity-type", "clients", "--entity-name", f"app-{version}")
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
    tools.run("configs", *at, *client, "--alter", "--add-config", rates, version=version)
    output = tools.run("configs", *at, *client, "--describe", version=version).out
    assert "producer_byte_rate=1024.0" in output
    assert "consumer_byte_rate=2048.0" in output
    user = ("--entity-type", "users", "--entity-name", f"alice-{version}")
    password = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    tools.run("configs", *at, *user, "--alter", "--add-config", password, version=version)
    output = tools.run("configs", *at, *user, "--describe", version=version).out
    assert "iterations=8192" in output
    assert "secret" not in output


def test_records_are_deleted(at: tuple[str, str], version: str, filled: str, tmp_path: Path) -> None:
    chosen = {"version": 1, "partitions": [{"topic": filled, "partition": 0, "offset": 4}]}
    (tmp_path / "offsets.json").write_text(json.dumps(chosen))
    output = tools.run("delete-records", *at, "--offset-json-file", str(tmp_path / "offsets.json"), version=version).out
    assert f"partition: {filled}-0\tlow_watermark: 4" in output
    for time, offset in (("-2", 4), ("-1", 10)):
        output = tools.run("get-offsets", *at, "--topic", filled, "--time", time, version=version).out
        assert output.strip() == f"{filled}:0:{offset}"


def test_directories_producers_and_leaders_are_described(at: tuple[str, str], version: str, filled: str) -> None:
    output = tools.run("log-dirs", *at, "--describe", "--topic-list", filled, version=version).out
    [broker] = json.loads(output.strip().splitlines()[-1])["brokers"]
    [partition] = broker["logDirs"][0]["partitions"]
    assert (partition["partition"], partition["offsetLag"], partition["isFuture"]) == (f"{filled}-0", 0, False)
    assert partition["size"] > 0
    chosen = ("--topic", filled, "--partition", "0")
    output = tools.run("transactions", *at, "describe-producers", *chosen, version=version).out
    assert "ProducerId" in output
    assert len(output.strip().splitlines()) == 2
    output = tools.run("leader-election", *at, "--election-type", "preferred", *chosen, version=version).out
    assert "Valid replica already elected" in output


def test_quorum_and_features_are_described(at: tuple[str, str], version: str) -> None:
    output = tools.run("metadata-quorum", *at, "describe", "--status", version=version).out
    assert re.search(r"LeaderId:\s+1\b", output)
    assert re.search(r"CurrentVoters:\s+\[.*1", output)
    output = tools.run("metadata-quorum", *at, "describe", "--replication", version=version).out
    assert "Leader" in output
    output = tools.run("features", *at, "describe", version=version).out
    assert re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: (4\.3-IV0|UNKNOWN 30)\s", output)
    assert re.search(r"Feature: group\.version\s.*FinalizedVersionLevel: 1\s", output)


def test_partitions_are_reassigned_to_where_they_are(
    at: tuple[str, str], version: str, filled: str, tmp_path: Path
) -> None:
    plan = {"version": 1, "partitions": [{"topic": filled, "partition": 0, "replicas": [1]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    chosen = ("--reassignment-json-file", str(tmp_path / "plan.json"))
    output = tools.run(REASSIGN, *at, *chosen, "--execute", version=version).out
    assert "Successfully started partition reassignment" in output
    output = tools.run(REASSIGN, *at, *chosen, "--verify", version=version).out
    assert f"Reassignment of partition {filled}-0 is completed." in output
    output = tools.run(REASSIGN, *at, "--list", version=version).out
    assert "No partition reassignments found." in output


def test_versions_tool_identifies_the_emulated_release(version: str) -> None:
    with EmbeddedCluster(as_version=version) as cluster:
        output = tools.run("api-versions", "--bootstrap-server", cluster.bootstrap_servers, version=version).out
    assert re.search(rf"Fetch\(1\): 4 to {18 if version.startswith('4') else 17}\b", output)
    assert "UNSUPPORTED" not in re.sub(r"^.*\(\d+\): UNSUPPORTED.*$", "", output, flags=re.MULTILINE)
