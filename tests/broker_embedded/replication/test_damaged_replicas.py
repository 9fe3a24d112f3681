"""Bits are flipped in the logs of some replicas: they notice, and get the records again from the others."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controller.image import PartitionImage
from pyclient.broker_embedded.controller.replication_control import LOST, UNASSIGNED
from pyclient.broker_embedded.replication.damaged_replicas import DamagedReplicas, Step, next_step
from pyclient.errors import CorruptBatch, CorruptMessage, CorruptRecord
from pyclient.records import iter_batches
from tests.waiting import PATIENCE, until

SENT = [b"%06d" % number + b"x" * 200 for number in range(300)]
MORE = [b"more %06d" % number + b"x" * 200 for number in range(40)]
ALL = [1, 2, 3]
BASE_LENGTH_EPOCH = struct.Struct(">qii")
MOST_FETCHES = 500
"""Fetches of three brokers in the 3 s of a poll: without pauses there are thousands, with them about 30 a second."""


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedCluster]:
    config = {"broker.session.timeout.ms": 6000}  # on a busy machine, too, leaders change by faults only
    with EmbeddedCluster(3, config=config, control_port=0) as cluster:
        yield cluster


def send(cluster: EmbeddedCluster, topic: str, values: list[bytes]) -> None:
    """Send values in many batches."""
    with Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=1000) as producer:
        for future in [producer.send(topic, value) for value in values]:
            future.result(60)


def filled(cluster: EmbeddedCluster, name: str, **configs: str) -> str:
    """Return a topic with one partition, and records in many batches and segments."""
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1, 3, configs={"internal.segment.bytes": "20000"} | configs)])
    send(cluster, name, SENT)
    cluster.wait_isr(name, 0, 3)
    until(lambda: len(set(logs(cluster, name).values())) == 1)
    return name


def directory(cluster: EmbeddedCluster, node: int, topic: str) -> Path:
    return Path(cluster.node(node).data_dir) / f"{topic}-0"


def logs(cluster: EmbeddedCluster, topic: str) -> dict[int, bytes]:
    """Return the batches of each replica."""
    return {
        node: b"".join(path.read_bytes() for path in sorted(directory(cluster, node, topic).glob("*.log")))
        for node in ALL
    }


def flip(path: Path, seed: int) -> None:
    chosen, content = random.Random(seed), bytearray(path.read_bytes())
    with path.open("r+b") as file:
        position = chosen.randrange(len(content))
        file.seek(position)
        file.write(bytes([content[position] ^ 1 << chosen.randrange(8)]))


def segments(cluster: EmbeddedCluster, node: int, topic: str) -> list[Path]:
    return sorted(directory(cluster, node, topic).glob("*.log"))


def read(cluster: EmbeddedCluster, topic: str, count: int = len(SENT)) -> list[bytes]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes] = []
        while len(found) < count:
            found += [record.value or b"" for record in consumer.poll(30)]
        return found


def check_repaired(
    cluster: EmbeddedCluster, topic: str, damaged: int | None = None, values: list[bytes] = SENT
) -> None:
    """Check that all replicas are in sync and equal, and that the damaged bytes of a node are kept."""

    def equal() -> bool:
        return len(set(logs(cluster, topic).values())) == 1

    cluster.wait_isr(topic, 0, 3)
    until(equal, "the replicas differ")
    assert damaged is None or list(directory(cluster, damaged, topic).glob("*.damaged"))
    assert read(cluster, topic, len(values)) == values


@pytest.mark.parametrize("seed", range(3))
def test_damaged_leader_hands_leadership_over_and_is_repaired(three: EmbeddedCluster, seed: int) -> None:
    topic = filled(three, f"leader-{seed}")
    leader = three.leader_of(topic, 0)
    assert leader is not None
    flip(segments(three, leader, topic)[[0, 2, -1][seed]], seed)
    assert read(three, topic) == SENT
    until(lambda: three.leader_of(topic, 0) not in (leader, None))
    check_repaired(three, topic, leader)
    three.move_leader(topic, 0, leader, PATIENCE)  # when the controller knows that the repair is over
    assert read(three, topic) == SENT


def test_damaged_follower_is_repaired_when_it_is_checked(three: EmbeddedCluster) -> None:
    topic = filled(three, "follower")
    leader = three.leader_of(topic, 0)
    follower = next(node for node in ALL if node != leader)
    flip(segments(three, follower, topic)[1], 5)
    three.node(follower).call("POST", "/verify", {"topic": topic})
    until(lambda: bool(list(directory(three, follower, topic).glob("*.damaged"))))
    check_repaired(three, topic, follower)
    assert three.leader_of(topic, 0) == leader


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_periodic_check_finds_damage_that_nothing_reads(role: str) -> None:
    """Damage older segments that no client and no follower reads again: only the check does."""
    config = {"internal.replica.check.interval.ms": 200, "broker.session.timeout.ms": 6000}
    with EmbeddedCluster(3, config=config) as cluster:
        topic = filled(cluster, "unread")
        leader = cluster.leader_of(topic, 0)
        damaged = leader if role == "leader" else next(node for node in ALL if node != leader)
        assert damaged is not None
        flip(segments(cluster, damaged, topic)[1], 11)
        until(lambda: bool(list(directory(cluster, damaged, topic).glob("*.damaged"))))
        check_repaired(cluster, topic, damaged)


def test_leader_notices_when_a_follower_cannot_use_what_it_got(three: EmbeddedCluster) -> None:
    topic = filled(three, "catching-up")
    leader = three.leader_of(topic, 0)
    assert leader is not None
    follower = next(node for node in ALL if node != leader)
    three.kill(follower)
    for path in directory(three, follower, topic).glob("*"):
        path.unlink()
    flip(segments(three, leader, topic)[0], 1)
    three.start(follower)
    check_repaired(three, topic, leader)
    assert three.leader_of(topic, 0) != leader


def test_repair_goes_on_after_a_restart(three: EmbeddedCluster) -> None:
    topic = filled(three, "restarted")
    leader = three.leader_of(topic, 0)
    assert leader is not None
    flip(segments(three, leader, topic)[1], 7)
    three.node(leader).call("POST", "/verify", {"topic": topic})
    three.kill(leader)
    three.start(leader)
    check_repaired(three, topic)
    three.move_leader(topic, 0, leader, PATIENCE)


def last_batches(path: Path, count: int) -> list[int]:
    """Return the positions of the last batches of a segment."""
    return [position for position, _header in iter_batches(path.read_bytes())][-count:]


def change_header(path: Path, position: int, field: str) -> None:
    """Change a field of a batch header that the checksum does not cover."""
    content = bytearray(path.read_bytes())
    base, _length, epoch = BASE_LENGTH_EPOCH.unpack_from(content, position)
    bit = next(bit for bit in range(62) if not base >> bit & 1)  # the offset grows
    changed = {
        "offset by a little": (base | 1 << bit, epoch),
        "offset by much": (base | 1 << 40, epoch),
        "higher epoch": (base, epoch | 1 << 20),
        "epoch of no leader": (base, -1),
    }[field]
    BASE_LENGTH_EPOCH.pack_into(content, position, changed[0], _length, changed[1])
    path.write_bytes(content)


FIELDS = ["offset by a little", "offset by much", "higher epoch", "epoch of no leader"]


@pytest.mark.parametrize("moves", [False, True], ids=["same-leader", "another-leader"])
@pytest.mark.parametrize("batch", [1, 3], ids=["last-batch", "earlier-batch"])
@pytest.mark.parametrize("field", FIELDS)
def test_follower_replaces_batches_with_a_changed_header(
    three: EmbeddedCluster, field: str, batch: int, moves: bool
) -> None:
    topic = filled(three, f"header-{FIELDS.index(field)}-{batch}-{moves}", **{"internal.segment.bytes": "1000000"})
    leader = three.leader_of(topic, 0)
    follower, other = (node for node in ALL if node != leader)
    three.kill(follower)
    path = segments(three, follower, topic)[-1]
    change_header(path, last_batches(path, batch)[0], field)
    if moves:
        three.move_leader(topic, 0, other)
    send(three, topic, MORE)
    three.start(follower)
    three.wait_isr(topic, 0, 3)
    three.node(follower).call("POST", "/verify", {"topic": topic})  # a lower epoch is found when the batch is read
    check_repaired(three, topic, values=[*SENT, *MORE])


def test_only_replica_stays_as_it_is(three: EmbeddedCluster) -> None:
    with Admin(three.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("alone", 1, 1)])
    with Producer(three.bootstrap_servers) as producer:
        producer.send("alone", b"x" * 1000).result(60)
    leader = three.leader_of("alone", 0)
    assert leader is not None
    path = segments(three, leader, "alone")[0]
    flip(path, 3)
    before = path.read_bytes()
    with (
        Consumer(bootstrap_servers=three.bootstrap_servers, auto_offset_reset="earliest") as consumer,
        pytest.raises((CorruptMessage, CorruptRecord)),
    ):
        consumer.assign([TopicPartition("alone", 0)])
        for _ in range(5):
            consumer.poll(5)
    assert path.read_bytes() == before
    assert three.leader_of("alone", 0) == leader


def damage_everywhere(cluster: EmbeddedCluster, topic: str, batch: int) -> int:
    """Flip a bit of the same batch of a closed segment on all nodes. Return its offset."""
    for node in ALL:
        path = segments(cluster, node, topic)[1]
        content = path.read_bytes()
        position, header = [*iter_batches(content)][batch]
        at = position + 80
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([content[at] ^ 4]))
    return header.base_offset


@pytest.mark.parametrize("batch", [0, 5], ids=["first-batch-of-a-fetch", "later-batch"])
def test_damage_on_all_replicas_is_an_error_of_one_partition(
    three: EmbeddedCluster, caplog: pytest.LogCaptureFixture, batch: int
) -> None:
    topic, other = filled(three, f"damaged-everywhere-{batch}"), filled(three, f"whole-{batch}")
    offset = damage_everywhere(three, topic, batch)
    place, found = TopicPartition(topic, 0), 0
    with Consumer(bootstrap_servers=three.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        with pytest.raises(CorruptBatch) as raised:
            while True:
                found += len(consumer.poll(30))
        assert found == offset, "all records before the damage can be read"
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == (topic, 0, offset)
        assert f"{topic}-0" in str(raised.value)
        assert f"offset {offset}" in str(raised.value)
        assert read(three, other) == SENT
        consumer.assign([TopicPartition(other, 0)])
        consumer.seek_to_end()
        consumer.position(TopicPartition(other, 0))
        with three.faults.delay("Fetch", 0, times=None, client="broker-*-fetcher") as fetches:
            assert not consumer.poll(3)
            assert 0 < fetches.hits() < MOST_FETCHES, "the replicas fetch from each other without a pause"
    send(three, other, MORE)
    assert read(three, other, len(SENT) + len(MORE)) == [*SENT, *MORE]
    lines = [each.getMessage() for each in caplog.records if topic in each.getMessage() and each.levelname == "ERROR"]
    assert any(line.startswith(f"{topic}-0: ") and f"batch at offset {offset}:" in line for line in lines), lines
    assert len(lines) < 20, lines
    assert three.leader_of(topic, 0) is not None


def state(leader: int, isr: list[int], *, lost: bool) -> PartitionImage:
    return PartitionImage(
        0,
        replicas=list(ALL),
        isr=isr,
        leader=leader,
        leader_epoch=4,
        partition_epoch=9,
        directories=[LOST if lost else UNASSIGNED, UNASSIGNED, UNASSIGNED],
    )


@pytest.mark.parametrize(
    ("leader", "isr", "lost", "is_truncated", "has_all", "step"),
    [
        (1, [1, 2, 3], False, False, False, Step.LEAVE),
        (2, [1, 2], False, False, True, Step.LEAVE),
        (2, [2], False, False, True, Step.LEAVE),
        (1, [1], False, False, False, Step.WAIT),
        (-1, [1], False, False, False, Step.WAIT),
        (2, [2, 3], True, False, False, Step.TRUNCATE),
        (2, [1, 2], True, False, True, Step.LEAVE),
        (-1, [2], True, False, False, Step.WAIT),
        (-1, [1], True, False, False, Step.RETURN),
        (-1, [1], True, True, False, Step.LEAVE),
        (-1, [1], True, True, True, Step.RETURN),
        (2, [2], True, True, False, Step.WAIT),
        (2, [2], True, True, True, Step.WAIT),
        (2, [1, 2], True, True, False, Step.CATCH_UP),
        (2, [1, 2], True, True, True, Step.RETURN),
        (2, [1, 2], False, True, True, Step.END),
    ],
)
def test_steps_of_a_repair(
    leader: int, isr: list[int], lost: bool, is_truncated: bool, has_all: bool, step: Step
) -> None:
    assert next_step(1, state(leader, isr, lost=lost), is_truncated=is_truncated, has_all=has_all) is step


@pytest.mark.parametrize("lost", [False, True])
def test_replica_whose_repair_is_to_be_resumed_fetches_nothing_yet(lost: bool) -> None:
    """Take the state of the repair from the metadata: a restarted node has nothing else."""
    env: Any = SimpleNamespace(node_id=1, image=SimpleNamespace(partition=lambda *_: state(2, [2, 3], lost=lost)))
    unused: Any = None
    repairs = DamagedReplicas(env, unused, unused, unused, unused, unused)
    hosted: Any = SimpleNamespace(topic_partition=TopicPartition("t", 0))
    assert repairs.may_fetch(hosted) is not lost
