"""Guarantees of a consumer while leaders, followers and coordinators of three nodes, Kafka's or ours, die and move."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, NewTopic, Producer, TopicPartition, errors
from tests.consumer.consumer_factory import ConsumerFactory, EventLog, poll_until, shares
from tests.kafka import topics
from tests.kafka.runner import REPLICATED
from tests.kafka.test_consumer_rolling import Load
from tests.kafka.three import KINDS, Three, some_seconds_on_ours, three_nodes_of
from tests.kafka.tools import run
from tests.kafka.topics import PATIENCE, wait_until

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LEADER, FOLLOWER, OTHER = 1, 2, 3
PARTITIONS = 6  # as many as `Load` writes to


@pytest.fixture(scope="module", params=KINDS)
def kafka(request: pytest.FixtureRequest) -> Iterator[Three]:
    """Three nodes, each in a rack of its own, that let a reader fetch from the one in its rack."""
    settings = {
        **REPLICATED,
        "controlled.shutdown.retry.backoff.ms": "500",
        "broker.rack": "rack-{node}",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    with three_nodes_of(request.param, settings) as kafka:
        yield kafka


@pytest.fixture
def factories(kafka: Three) -> Iterator[dict[str, ConsumerFactory]]:
    """Makers of consumers of both APIs."""
    with ExitStack() as stack:
        made = {}
        for name in ("sync", "async"):
            made[name] = ConsumerFactory(name, kafka.bootstrap_servers, retry_backoff_ms=50)
            stack.callback(made[name].close)
        yield made


def create(kafka: Three, topic: str, *replicas: int, partitions: int = 1, **configs: str) -> None:
    """Create a topic whose partitions have these replicas, the leader first."""
    assignments = dict.fromkeys(range(partitions), replicas)
    topics.create(kafka.bootstrap_servers, NewTopic(topic, assignments=assignments, configs=configs))


def leaders_of(kafka: Three, topic: str) -> list[int]:
    return topics.leaders_of(kafka.bootstrap_servers, topic)


def coordinator_of(kafka: Three, group: str) -> int:
    with Admin(kafka.bootstrap_servers) as admin:
        return admin.describe_groups([group])[group].coordinator


def numbers(*range_: int) -> list[bytes]:
    return [b"%d" % number for number in range(*range_)]


class Reader:
    """A consumer, and the values it has read of partition 0."""

    def __init__(self, consumer: Any, partition: TopicPartition) -> None:
        self.consumer, self.partition = consumer, partition
        self.values: list[bytes] = []
        consumer.assign([partition])

    def read_until(self, *values: bytes, seconds: float = PATIENCE) -> None:
        """Read until just these values were read, in this order, and nothing else."""
        deadline = time.monotonic() + seconds
        while len(self.values) < len(values):
            self.values += [record.value for record in self.consumer.poll(0.1)]
            assert time.monotonic() < deadline, (len(self.values), self.consumer.health())
        assert self.values == list(values)

    def bytes_from(self, node: int) -> int:
        """Return the bytes of records that a node has served."""
        served: dict[int, int] = self.consumer.metrics()["fetched_bytes_by_node"]
        return served.get(node, 0)


@some_seconds_on_ours
def test_consumer_fetches_from_follower_in_its_rack_or_else_the_leader(
    kafka: Three, topic: str, factories: dict[str, ConsumerFactory]
) -> None:
    """KIP-392: the bytes that each node has served show which one was read; every record comes once and in order."""
    create(kafka, topic, LEADER, FOLLOWER, OTHER)
    readers = [
        Reader(make(client_rack=f"rack-{FOLLOWER}", fetch_max_wait_ms=100), TopicPartition(topic, 0))
        for make in factories.values()
    ]
    sent = 0

    with Producer(kafka.bootstrap_servers, linger_ms=0) as producer:

        def more() -> None:
            """Ten records more are sent and read."""
            nonlocal sent
            producer.send_many(topic, numbers(sent, sent + 10))
            producer.flush()
            sent += 10
            for reader in readers:
                reader.read_until(*numbers(sent))

        def until_served_by(node: int, what: str) -> None:
            before = [reader.bytes_from(node) for reader in readers]
            deadline = time.monotonic() + PATIENCE
            while any(reader.bytes_from(node) == old for reader, old in zip(readers, before, strict=True)):
                assert time.monotonic() < deadline, what
                more()

        def all_come_from_the_follower() -> bool:
            """Five times; the leader may step in where a busy machine makes the follower late."""
            before = [(reader.bytes_from(LEADER), reader.bytes_from(FOLLOWER)) for reader in readers]
            for _ in range(5):
                more()
            after = [(reader.bytes_from(LEADER), reader.bytes_from(FOLLOWER)) for reader in readers]
            return all(now[0] == then[0] and now[1] > then[1] for then, now in zip(before, after, strict=True))

        wait_until(all_come_from_the_follower, "the leader is read from, though a follower is nearer")
        kafka.kill(FOLLOWER)
        try:
            until_served_by(LEADER, "nothing is read while the follower is dead")
        finally:
            kafka.restart(FOLLOWER)
        until_served_by(FOLLOWER, "the follower is not read from again")
        assert [reader.bytes_from(OTHER) for reader in readers] == [0, 0]


@some_seconds_on_ours
def test_truncation_after_an_unclean_change_of_leader_is_never_silent(
    kafka: Three, topic: str, group: str, factories: dict[str, ConsumerFactory]
) -> None:
    """Guarantee 18: a reader is ten records past what the new leader has, which then goes past the reader. Without a
    policy that is `LogTruncation`, also for a consumer that starts at a committed offset; with one
    it continues where the logs diverge.
    """
    create(
        kafka, topic, LEADER, FOLLOWER,
        **{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    )  # fmt: skip
    partition = TopicPartition(topic, 0)
    strict = [
        Reader(make(auto_offset_reset="none", group_id=f"{group}-{name}", enable_auto_commit=False), partition)
        for name, make in factories.items()
    ]
    lenient = [Reader(make(auto_offset_reset=policy), partition)
               for make in factories.values() for policy in ("earliest", "latest")]  # fmt: skip
    for reader in [*strict, *lenient]:
        reader.consumer.seek(partition, 0)
    write(kafka, topic, numbers(20))
    kafka.stop(FOLLOWER)
    write(kafka, topic, numbers(20, 30))
    for reader in [*strict, *lenient]:
        reader.read_until(*numbers(30))
    for reader in strict:
        reader.consumer.commit()
        assert reader.consumer.committed()[partition].leader_epoch >= 0
    kafka.kill(LEADER)
    try:
        kafka.restart(FOLLOWER)
        wait_until(lambda: leaders_of(kafka, topic) == [FOLLOWER], "the follower does not lead")
        write(kafka, topic, [b"new %d" % number for number in range(15)])
        for reader in strict:
            error = raised_by(reader.consumer)
            assert isinstance(error, errors.LogTruncation)
            assert "ends at offset 20 and this consumer is at 30" in str(error)
            assert isinstance(raised_by(reader.consumer), errors.LogTruncation)  # until the user decides
        for name, make in factories.items():
            late = make(auto_offset_reset="none", group_id=f"{group}-{name}", enable_auto_commit=False)
            late.assign([partition])
            assert isinstance(raised_by(late), errors.LogTruncation)
            late.seek(partition, 20)
            assert len(poll_until([late], lambda late=late: late.position(partition) == 35)) == 15  # type: ignore[misc]
        for reader in lenient:
            reader.read_until(*numbers(30), *[b"new %d" % number for number in range(15)])
    finally:
        kafka.restart(LEADER)


def write(kafka: Three, topic: str, values: list[bytes]) -> None:
    with Producer(kafka.bootstrap_servers, linger_ms=0) as producer:
        producer.send_many(topic, values)
        producer.flush()


def raised_by(consumer: Any) -> BaseException:
    """Poll until it raises, and return the error; no record may come before."""
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            assert len(consumer.poll(0.1)) == 0
    except errors.KafkaError as error:
        return error
    raise AssertionError(f"polling raises nothing: {consumer.health()}")


class Groups:
    """A group of each protocol, each with a member of each client, over one topic."""

    def __init__(self, factories: dict[str, ConsumerFactory], topic: str, group: str) -> None:
        self.groups = {protocol: f"{group}-{protocol}" for protocol in ("classic", "consumer")}
        self.seen: dict[str, Counter[bytes]] = {protocol: Counter() for protocol in self.groups}
        self.event_logs: list[EventLog] = []
        self.members: dict[str, list[Any]] = {}
        for protocol, name in self.groups.items():
            made = [make(group_id=name, group_protocol=protocol, session_timeout_ms=45_000)
                    if protocol == "classic" else make(group_id=name, group_protocol=protocol)
                    for make in factories.values()]  # fmt: skip
            self.members[protocol] = made
            for member in made:
                self.event_logs.append(EventLog())
                member.subscribe(topic, listener=self.event_logs[-1])
        for made in self.members.values():
            poll_until(made, lambda made=made: sorted(map(len, shares(made))) == [3, 3], seconds=PATIENCE)  # type: ignore[misc]
        for event_log in self.event_logs:
            event_log.lines.clear()

    def read(self, enough: Callable[[], int], seconds: float = PATIENCE) -> None:
        """Wait until each group has read so many records, and committed what it has read."""
        deadline = time.monotonic() + seconds
        while any(seen.total() < enough() for seen in self.seen.values()):
            for protocol, made in self.members.items():
                for member in made:
                    self.seen[protocol].update(record.value for record in member.poll(0.02))
            assert time.monotonic() < deadline, [member.health() for made in self.members.values() for member in made]
        for made in self.members.values():
            for member in made:
                member.commit()

    def check(self, sent: int, topic: str) -> None:
        """Every record came to each group once, all are committed, and no member was rebalanced."""
        wanted = Counter(b"%d" % number for number in range(sent))
        assert self.seen == dict.fromkeys(self.groups, wanted)
        assert [event_log.lines for event_log in self.event_logs] == [[] for _ in self.event_logs]
        for made in self.members.values():
            offsets = [offset.offset for member in made for offset in member.committed().values() if offset]
            assert sum(offsets) == sent


def test_groups_survive_moves_of_leaders_and_coordinators(
    kafka: Three, topic: str, group: str, factories: dict[str, ConsumerFactory], tmp_path: Path
) -> None:
    """No error from `poll` or `commit`, every record once, no rebalance: while a leader is killed and elected again,
    partitions are moved to other nodes, and the coordinators are killed."""
    create(kafka, topic, LEADER, FOLLOWER, OTHER, partitions=PARTITIONS, **{"min.insync.replicas": "1"})
    groups = Groups(factories, topic, group)
    servers = kafka.bootstrap_servers
    with Load(servers, topic) as load:

        def read_on() -> None:
            groups.read(lambda goal=load.sent + 60: goal)  # type: ignore[misc]

        read_on()
        kafka.kill(LEADER)
        try:
            wait_until(lambda: LEADER not in leaders_of(kafka, topic), "the dead node leads")
            read_on()
        finally:
            kafka.restart(LEADER)
        read_on()
        wait_until(lambda: elected(kafka, topic, LEADER), "the preferred node does not lead")
        read_on()
        moves = [{"topic": topic, "partition": n, "replicas": [OTHER, FOLLOWER]} for n in range(PARTITIONS)]
        plan = tmp_path / "moves.json"
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        run(REASSIGN, "--bootstrap-server", servers, "--reassignment-json-file", str(plan), "--execute")
        wait_until(lambda: LEADER not in leaders_of(kafka, topic), "the partitions have not moved")
        read_on()
        for name in groups.groups.values():
            victim = coordinator_of(kafka, name)
            kafka.kill(victim)
            try:
                wait_until(lambda: coordinator_of(kafka, name) != victim, "the group has not moved")  # noqa: B023
                read_on()
            finally:
                kafka.restart(victim)
            read_on()
        sent = load.stop()
    assert load.failures == []
    groups.read(lambda: sent)
    groups.check(sent, topic)


def elected(kafka: Three, topic: str, node: int) -> bool:
    """Elect the preferred leaders; return True if the node leads everything now."""
    servers = kafka.bootstrap_servers
    arguments = ("--election-type", "preferred", "--all-topic-partitions")
    run("leader-election", "--bootstrap-server", servers, *arguments, check=False)
    return set(leaders_of(kafka, topic)) == {node}
