"""Kafka's own command-line tools, of two releases, work with our broker as with a Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka import tools
from tests.kafka.jars import VERSIONS
from tests.kafka.needs import skip_without_kafka


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    """Our broker in a process of its own."""
    with EmbeddedCluster(processes=True) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """The release whose tools are used."""
    skip_without_kafka(request.param)
    return str(request.param)


def produce(servers: str, topic: str, lines: list[str], version: str, *options: str) -> None:
    arguments = ("--bootstrap-server", servers, "--topic", topic, *options)
    tools.run("console-producer", *arguments, stdin="".join(f"{line}\n" for line in lines), version=version)


def test_topics_are_created_described_grown_and_deleted(ours: str, version: str, topic: str) -> None:
    at = ("--bootstrap-server", ours)
    config = ("--config", "retention.ms=1234567")
    made = tools.run("topics", *at, "--create", "--topic", topic, "--partitions", "3", *config, version=version)
    assert f"Created topic {topic}" in made.out
    described = tools.run("topics", *at, "--describe", "--topic", topic, version=version).out
    head, *partitions = described.strip().splitlines()
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s", head)
    assert "retention.ms=1234567" in head
    assert len(partitions) == 3
    tools.run("topics", *at, "--alter", "--topic", topic, "--partitions", "5", version=version)
    listed = [
        tools.start("topics", *at, "--describe", "--topic", topic, version=version),
        tools.start("configs", *at, "--describe", "--topic", topic, version=version),
    ]
    described, configured = (tools.finish(process).out for process in listed)
    assert "PartitionCount: 5" in described
    assert "retention.ms=1234567" in configured
    tools.run("topics", *at, "--delete", "--topic", topic, version=version)
    names = tools.run("topics", *at, "--list", version=version).out.split()
    assert topic not in names


def test_invalid_topic_is_refused_with_kafkas_reason(ours: str, version: str, topic: str) -> None:
    at = ("--bootstrap-server", ours, "--create", "--topic")
    attempts = {
        "InvalidReplicationFactorException": (topic, "--replication-factor", "3"),
        "InvalidTopicException": (f"{topic}/slash",),
    }
    running = {
        reason: tools.start("topics", *at, *arguments, version=version) for reason, arguments in attempts.items()
    }
    for reason, process in running.items():
        output = tools.finish(process, check=False)
        assert output.code != 0
        assert reason in output.out + output.err


def test_console_producer_and_consumer_and_a_groups_whole_life(ours: str, version: str, topic: str, group: str) -> None:
    at = ("--bootstrap-server", ours)
    lines = [f"key {n}\tvalue {n}" for n in range(500)]
    tools.run("topics", *at, "--create", "--topic", topic, "--partitions", "2", version=version)
    produce(ours, topic, lines, version, *tools.parses(version, key="true"), "--compression-codec", "lz4")
    read = tools.run(
        "console-consumer", *at, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "500",
        *tools.shows(version, key="true"), "--timeout-ms", "90000", version=version,
    )  # fmt: skip
    assert sorted(read.out.splitlines()) == sorted(lines)

    running = [
        tools.start("groups", *at, "--describe", "--group", group, "--offsets", version=version),
        tools.start("groups", *at, "--describe", "--group", group, "--state", version=version),
        tools.start("groups", *at, "--list", "--state", version=version),
    ]
    offsets, state, listed = (tools.finish(process).out for process in running)
    rows = [line.split() for line in offsets.splitlines() if line.startswith(group)]
    assert {row[1] for row in rows} == {topic}
    assert [row[3] for row in rows] == [row[4] for row in rows], "everything is committed"
    assert sum(int(row[3]) for row in rows) == 500
    assert "Empty" in state
    assert re.search(rf"^{group}\s.*Empty", listed, re.MULTILINE)

    reset = ("--reset-offsets", "--to-earliest", "--execute", "--group", group, "--topic", topic)
    assert "0" in tools.run("groups", *at, *reset, version=version).out
    again = tools.run(
        "console-consumer", *at, "--topic", topic, "--group", group, "--max-messages", "500", "--timeout-ms", "90000",
        version=version,
    )  # fmt: skip
    assert len(again.out.splitlines()) == 500
    deleted = tools.run("groups", *at, "--delete-offsets", "--group", group, "--topic", f"{topic}:0", version=version)
    assert "Successful" in deleted.out
    tools.run("groups", *at, "--delete", "--group", group, version=version)
    assert group not in tools.run("groups", *at, "--list", version=version).out


def test_a_member_of_a_running_group_is_described(ours: str, version: str, topic: str, group: str) -> None:
    at = ("--bootstrap-server", ours)
    tools.run("topics", *at, "--create", "--topic", topic, "--partitions", "4", version=version)
    member = tools.start("console-consumer", *at, "--topic", topic, "--group", group, version=version)
    try:
        rows: list[list[str]] = []
        for _ in range(20):
            output = tools.run("groups", *at, "--describe", "--group", group, "--members", version=version, check=False)
            rows = [line.split() for line in output.out.splitlines() if line.startswith(group)]
            if rows and rows[0][-1] == "4":
                break
        assert [(row[1].startswith("console-consumer"), row[-1]) for row in rows] == [(True, "4")]
        refused = tools.run("groups", *at, "--delete", "--group", group, version=version, check=False)
        assert "GroupNotEmptyException" in refused.out + refused.err
    finally:
        member.kill()
        member.communicate()


def test_the_perf_tools_run(ours: str, version: str, topic: str) -> None:
    count, codecs = 50_000, ("none", "zstd")
    at = ("--bootstrap-server", ours)
    producers = [
        tools.start(
            "producer-perf", "--topic", f"{topic}-{codec}", "--num-records", str(count), "--record-size", "100",
            "--throughput", "-1", "--producer-props", f"bootstrap.servers={ours}", "acks=all",
            f"compression.type={codec}", version=version,
        )
        for codec in codecs
    ]  # fmt: skip
    for process in producers:
        assert f"{count} records sent" in tools.finish(process).out
    read = ("--messages", str(count), "--timeout", "90000")
    consumers = [tools.start("consumer-perf", *at, "--topic", f"{topic}-{c}", *read, version=version) for c in codecs]
    for process in consumers:
        figures = tools.finish(process).out.strip().splitlines()[-1].split(", ")
        assert figures[4] == str(count)
    offsets = tools.run("get-offsets", *at, "--topic-partitions", f"{topic}-.*:0", version=version).out
    assert sorted(offsets.split()) == [f"{topic}-{codec}:0:{count}" for codec in codecs]


def test_versions_tool_reads_our_api_versions(ours: str, version: str) -> None:
    printed = tools.run("api-versions", "--bootstrap-server", ours, version=version).out
    assert re.search(r"Fetch\(1\): 4 to 18", printed)
    assert re.search(r"JoinGroup\(11\): 0 to 9", printed)
    assert "ERROR" not in printed
