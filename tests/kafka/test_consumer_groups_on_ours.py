"""Kafka's own tools in and on consumer groups (KIP-848) of our broker, and on what it writes of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests import waiting
from tests.broker_embedded.groups.consumer.harness import ConsumerHarness
from tests.broker_embedded.groups.consumer.scenarios import SETTINGS
from tests.kafka import tools
from tests.kafka.runner import RealKafka
from tests.kafka.topics import PATIENCE

NEW_PROTOCOL = ("--command-property", "group.protocol=consumer")


def until(ask: Callable[[], str], pattern: str) -> str:
    """Run the tool until its output matches, and return it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        said = ask()
        if re.search(pattern, said, re.MULTILINE):
            return said
        assert time.monotonic() < deadline, said


@pytest.mark.usefixtures("kafka_tools")
def test_java_consumers_share_a_topic_and_are_described(tmp_path: Path, topic: str, group: str) -> None:
    with EmbeddedCluster(processes=True, data_dir=str(tmp_path)) as cluster:
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        tools.run("topics", *at, "--create", "--topic", topic, "--partitions", "4")
        lines = [f"line {n}" for n in range(200)]
        tools.run("console-producer", *at, "--topic", topic, stdin="".join(f"{line}\n" for line in lines))
        read = tools.run(
            "console-consumer", *at, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "200",
            "--timeout-ms", "90000", *NEW_PROTOCOL,
        )  # fmt: skip
        assert sorted(read.out.splitlines()) == sorted(lines)

        def describe(*what: str) -> str:
            return tools.run("groups", *at, "--describe", "--group", group, *what, check=False).out

        offsets = [line.split() for line in describe("--offsets").splitlines() if line.startswith(group)]
        assert sum(int(row[3]) for row in offsets) == 200
        running = [
            tools.start("console-consumer", *at, "--topic", topic, "--group", group, *NEW_PROTOCOL),
            tools.start("console-consumer", *at, "--include", f"{topic[:-1]}.", "--group", group, *NEW_PROTOCOL),
        ]
        try:
            until(lambda: describe("--state"), rf"^{group}\s.*\sStable\s.*\s2$")
            members = until(lambda: describe("--members", "--verbose"), rf"(^{group}\s.*\n){{2}}")
            assert len(re.findall(rf"{topic}:\d,\d", members)) >= 2, members
            listed = tools.run("groups", *at, "--list", "--type", "consumer", "--state").out
            assert re.search(rf"^{group}\s+Consumer\s+Stable", listed, re.MULTILINE), listed
            refused = tools.run("groups", *at, "--delete", "--group", group, check=False)
            assert "GroupNotEmptyException" in refused.out + refused.err
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.communicate(timeout=PATIENCE)
        until(lambda: describe("--state"), rf"^{group}\s.*\sEmpty\s.*\s0$")
    for log in sorted(tmp_path.glob("__consumer_offsets-*/*.log")):
        said = tools.run("dump-log", "--offsets-decoder", "--print-data-log", "--files", str(log))
        assert "error" not in (said.out + said.err).lower()
        if group in said.out:
            kinds = set(re.findall(r'key: \{"type":"(\d+)"', said.out))
            assert kinds >= {"1", "3", "5", "6", "7", "8"}, kinds
            return
    raise AssertionError("the group is in no log")


@pytest.mark.usefixtures("kafka_tools")
def test_group_continues_where_it_was_when_its_data_directory_moves(tmp_path: Path) -> None:
    data_dir = tmp_path / "node1" / "data"
    with EmbeddedCluster(data_dir=str(data_dir), profile="kafka", config=SETTINGS) as cluster:
        begun = ConsumerHarness(cluster.bootstrap_servers)
        begun.prepare()
        begun.enter("a", instance_id="one")
        begun.enter("b")
        assert begun.commit_as("b", 3).topics[0].partitions[0].error_code == 0
        here = begun.group_is()
        begun.close()
    with RealKafka(heap="512M", settings=SETTINGS, directory=tmp_path) as kafka:
        there = continued(begun, kafka.bootstrap_servers)
        assert there.group_is() == here
        assert there.beat("a", 2, instance_id="one").error_code == 0
        there.enter("c", subscribed_topic_names=[], subscribed_topic_regex=f"{there.other[:-1]}.")
        waiting.until(lambda: settled(there))
        assert sorted(there.held["a"][there.topic] + there.held["b"][there.topic]) == [0, 1, 2, 3]
        assert there.held["c"] == {there.other: [0, 1]}
        found = there.group_is()
        there.close()
    with EmbeddedCluster(data_dir=str(data_dir)) as cluster:
        back = continued(there, cluster.bootstrap_servers)
        assert back.group_is() == found
        for member in ("a", "b", "c"):
            instance = {"instance_id": "one"} if member == "a" else {}
            assert back.beat(member, back.epoch(member), **instance).error_code == 0
        offsets = back.fetch_as("b", back.epoch("b")).groups[0].topics
        assert next(topic for topic in offsets if topic.name == back.topic).partitions[0].committed_offset == 7
        back.close()


def settled(harness: ConsumerHarness) -> bool:
    """Send a heartbeat of each member; return True if the group is stable and the pattern resolved."""
    for member in ("a", "b", "c"):
        instance = {"instance_id": "one"} if member == "a" else {}
        harness.beat(member, harness.epoch(member), owns=harness.held[member], quiet=True, **instance)
    return harness.described("a")[0].group_state == "Stable" and bool(harness.held["c"])


def continued(harness: ConsumerHarness, servers: str) -> ConsumerHarness:
    """Return the same group and topics on another broker, whose coordinator serves them."""
    other = ConsumerHarness(servers)
    other.topic, other.other, other.group = harness.topic, harness.other, harness.group
    other.ids, other.held = harness.ids, harness.held
    for name in harness.clients:
        other.connection(name)
    find = FindCoordinatorRequest(key=harness.group)
    waiting.until(lambda: other.connection("admin").ask(find, 1).error_code == 0)
    wanted = ConsumerGroupDescribeRequest(group_ids=[harness.group], include_authorized_operations=False)
    waiting.until(lambda: other.connection("admin").ask(wanted, 1).groups[0].error_code == 0)
    other.learn({harness.topic: 4, harness.other: 2})
    return other
