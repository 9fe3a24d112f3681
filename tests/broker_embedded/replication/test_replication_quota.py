"""The throttle of replication (KIP-73): its rate on virtual time, and partitions that wait on leaders and followers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded.replication.following import Following
from pyclient.broker_embedded.replication.replication_quota import ReplicationQuota, is_listed
from pyclient.broker_embedded.scheduling.timers import Timer
from pyclient.protocol.messages.metadata_log import ConfigRecord
from pyclient.types import TopicPartition
from tests.broker_embedded.replication.hand_controlled import TOPIC, TOPIC_ID, Nodes, run
from tests.waiting import until_async

TOPIC_RESOURCE: Final = 2
VALUE: Final = b"x" * 1000
FAR: Final = 1_000
"""Windows of a second in these nodes' quotas: what is throttled waits until the clock is advanced."""
QUIET: Final = 20  # checks, one every two milliseconds
SETTINGS: Final = {
    "replication_quota_window_num": str(FAR),
    "replica_fetch_max_bytes": "1",  # one batch in each answer
    "replica_fetch_wait_max_ms": "60000",
    "log_retention_ms": "-1",  # time is advanced
}


def quota(limit: int, windows: int = 11) -> ReplicationQuota:
    return ReplicationQuota(lambda: limit, windows=windows, seconds=1.0)


def test_rate_runs_from_the_start_of_the_oldest_window() -> None:
    made = quota(1000)
    assert made.rate(0.0) == made.wait(0.0) == 0.0
    made.record(3000, 10.0)
    made.record(1000, 10.5)
    assert made.rate(10.5) == 4000.0  # one window at least
    assert made.rate(12.0) == 2000.0
    assert made.is_exceeded(12.0)
    assert made.wait(12.0) == 2.0
    assert made.wait(14.0) == 0.0
    assert not made.is_exceeded(14.0)


def test_windows_expire() -> None:
    made = quota(1)
    made.record(1_000_000, 0.0)
    made.record(1_000_000, 5.0)
    assert made.wait(5.0) == 11.0  # not the two million seconds that the rate alone would take
    assert made.rate(11.0) == 1_000_000 / 6
    assert made.rate(15.9) > 1
    assert made.rate(16.0) == 0.0


def test_zero_limit_lets_one_answer_pass_when_windows_are_empty() -> None:
    made = quota(0)
    assert made.wait(0.0) == 0.0
    made.record(1, 0.0)
    assert made.wait(0.5) == 10.5
    assert made.wait(11.0) == 0.0


@given(st.integers(1, 10_000), st.lists(st.integers(1, 50_000), min_size=20, max_size=200))
def test_reader_that_waits_keeps_the_rate(limit: int, sizes: list[int]) -> None:
    """Check that within the windows the bytes before an answer are at most what the limit allows until then."""
    made, now, sent = quota(limit, windows=10_000_000), 0.0, 0
    for size in sizes:
        wait = made.wait(now)
        assert (wait > 0) is made.is_exceeded(now)
        now += wait
        assert sent <= limit * max(now, 1.0) * (1 + 1e-9)
        made.record(size, now)
        sent += size


def test_listed_replicas_are_pairs_or_all() -> None:
    assert is_listed(("0:1", "1:2"), 1, 2)
    assert not is_listed(("0:1", "1:2"), 1, 1)
    assert is_listed(("*",), 7, 9)
    assert not is_listed((), 0, 1)


def test_follower_is_in_sync_with_all_that_was_committed() -> None:
    following = Following(TopicPartition(TOPIC, 0), TOPIC_ID, 0)
    states = []
    for lag in (None, 5, 0, -1):
        following.lag = lag
        states.append(following.is_in_sync)
    assert states == [False, False, True, True]


# Nodes


def throttle(nodes: Nodes, side: str, replicas: str | None, name: str = TOPIC) -> None:
    option = f"{side}.replication.throttled.replicas"
    nodes.append(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=option, value=replicas))


async def reassign(nodes: Nodes, records: int, throttled: str, *, other: list[int]) -> None:
    """Let node 2 get a replica of some records on node 1, with a throttle; a second topic has other replicas."""
    nodes.create(other, name="other")
    nodes.create([1])
    for _ in range(records):
        await nodes.produce(1, VALUE)
    throttle(nodes, throttled, "*")
    nodes.change(replicas=[1, 2], adding_replicas=[2])
    await until_async(lambda: nodes.end(2) == 1)


async def fetch_waits(nodes: Nodes) -> None:
    """Wait until node 2 has no new fetch at node 1 for a while: the leader holds it, and does not answer at once."""
    times: list[float] = []

    def is_quiet() -> bool:
        times.append(nodes.hosted(1).partition.followers[2].fetched_at)
        return len(times) > QUIET and len(set(times[-QUIET:])) == 1

    await until_async(is_quiet, "throttled fetches are answered at once, one after the other")


def watch_delays(nodes: Nodes, node_id: int) -> list[float]:
    """Return the list to which the delays of a node's timers are added from now on."""
    node, delays = nodes.nodes[node_id], [0.0]

    class Watched(set[Timer]):
        def add(self, timer: Timer) -> None:
            delays.append(timer.due - node.loop.time())
            super().add(timer)

    node.timers.pending = Watched(node.timers.pending)
    return delays


def advance(nodes: Nodes, node_id: int) -> None:
    """Advance a node's time until the windows of its quotas are empty."""
    nodes.advance(node_id, FAR + 1)


def test_leader_leaves_throttled_partitions_out_until_its_quota_has_room(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        await reassign(nodes, 3, "leader", other=[1, 2])
        await fetch_waits(nodes)
        assert (await nodes.produce(1, b"not slowed down", name="other")).error_code == 0
        assert (await nodes.produce(1, VALUE, acks=1)).error_code == 0
        await fetch_waits(nodes)
        assert nodes.end(2) == 1
        advance(nodes, 1)
        await until_async(lambda: nodes.end(2) == 2)
        throttle(nodes, "leader", None)
        advance(nodes, 1)  # the leader answers a waiting fetch when its time is over
        await until_async(lambda: nodes.isr() == [1, 2])
        assert nodes.end(2) == 4

    run(tmp_path, scenario, leader_replication_throttled_rate="1", **SETTINGS)


def test_follower_leaves_throttled_partitions_out_until_its_quota_has_room(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        delays = watch_delays(nodes, 2)
        await reassign(nodes, 4, "follower", other=[1])
        await until_async(lambda: max(delays) > FAR / 2, "the follower does not sleep until its quota has room")
        assert nodes.end(2) == 1
        advance(nodes, 2)
        await until_async(lambda: nodes.end(2) == 2)
        throttle(nodes, "follower", None)
        await until_async(lambda: nodes.isr() == [1, 2])
        assert nodes.end(2) == 4

    run(tmp_path, scenario, follower_replication_throttled_rate="1", **SETTINGS)


def test_follower_fetches_its_other_partitions_meanwhile(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        await reassign(nodes, 3, "follower", other=[1, 2])
        for _ in range(3):
            assert (await nodes.produce(1, b"not slowed down", name="other")).error_code == 0
        assert nodes.end(2) == 1

    run(tmp_path, scenario, follower_replication_throttled_rate="1", **SETTINGS)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replica_that_is_in_sync_is_not_throttled(tmp_path: Path, side: str) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2])
        throttle(nodes, side, "*")
        for _ in range(3):
            assert (await nodes.produce(1, VALUE)).error_code == 0
        assert nodes.end(2) == 3
        replicas = nodes.nodes[1 if side == "leader" else 2].replicas
        assert replicas is not None
        used = replicas.leader_quota if side == "leader" else replicas.fetchers.quota
        assert used.is_exceeded(nodes.nodes[1].clock.monotonic())  # but its bytes count

    run(tmp_path, scenario, **{f"{side}_replication_throttled_rate": "1"}, **SETTINGS)
