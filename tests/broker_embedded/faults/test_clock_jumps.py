"""advance_time: the node's clock and everything that waits for it, and nothing else."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pyclient import Consumer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.scheduling.timers import ShiftedClock, Timers
from pyclient.errors import ConfigError, KafkaTimeout
from pyclient.net.loop_thread import new_event_loop
from pyclient.protocol.messages.fetch import FetchRequest
from pyclient.testing.clock import ManualClock
from tests.broker_embedded.nodes import node_of
from tests.broker_embedded.topics import create
from tests.waiting import until

MODES = pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])


def test_clock_is_ahead_by_the_seconds_it_was_advanced() -> None:
    real = ManualClock()
    clock = ShiftedClock(real)
    assert (clock.monotonic(), clock.time_ms()) == (real.monotonic(), real.time_ms())
    clock.advance(1.5)
    clock.advance(0.25)
    real.advance(10)
    assert clock.monotonic() == real.monotonic() + 1.75
    assert clock.time_ms() == real.time_ms() + 1750
    assert clock.shift == 1.75


def test_calls_that_become_due_run_in_order_and_the_others_come_nearer() -> None:
    async def run() -> list[str]:
        timers, seen = Timers(asyncio.get_running_loop()), []
        for delay, name in ((30.0, "c"), (10.0, "a"), (20.0, "b"), (3600.0, "far")):
            timers.schedule(delay, lambda name=name: seen.append(name))
        cancelled = timers.schedule(5.0, lambda: seen.append("cancelled"))
        cancelled.cancel()
        cancelled.cancel()
        assert timers.advance(25) == 2
        while len(seen) < 2:  # noqa: ASYNC110 - what is awaited are calls of the loop
            await asyncio.sleep(0)
        seen.append("then")
        assert timers.advance(10) == 1
        while len(seen) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0)
        [far] = timers.pending
        assert far.due - asyncio.get_running_loop().time() < 3600 - 35 + 1
        far.cancel()
        assert not timers.pending
        return seen

    assert asyncio.run(asyncio.wait_for(run(), 30)) == ["a", "b", "then", "c"]


def test_no_timer_runs_before_its_time() -> None:
    async def run() -> list[float]:
        timers, early = Timers(asyncio.get_running_loop()), []
        last = asyncio.get_running_loop().create_future()

        def due(moment: float) -> None:
            if time.monotonic() < moment:
                early.append(moment)
            if not timers.pending:
                last.set_result(None)

        for each in range(1, 400):
            delay = each / 10_000
            timers.schedule(delay, partial(due, time.monotonic() + delay))
        await asyncio.wait_for(last, 30)
        return early

    loop = new_event_loop()
    try:
        assert loop.run_until_complete(run()) == []
    finally:
        loop.close()


@MODES
def test_a_session_expires_and_the_group_is_empty(processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "session_timeout_ms": 45_000}
        with Consumer("orders", group_id="billing", **options) as consumer:  # type: ignore[arg-type]
            consumer.poll(timeout=0)
            found = cluster.wait_group("billing", "Stable", members=1)
            assert [each["client_id"] for each in found["members"]] == ["pyclient"]
            with cluster.faults.drop("*", client="pyclient", times=None):
                cluster.advance_time(46)
                assert cluster.wait_group("billing", ["Empty", "Dead"])["members"] == []
                with pytest.raises(KafkaTimeout, match="state=Empty"):  # after the faults the consumer joins again
                    cluster.wait_group("billing", members=5, timeout=0.02)


@MODES
def test_records_grow_old_and_are_removed(
    connect: Any, produce: Any, batch: Any, fetch_request: Any, processes: bool
) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        client = connect(cluster)
        create(client, "orders", retention_ms="60000", message_timestamp_type="LogAppendTime")
        produce(client, "orders", batch(b"old"))
        assert cluster.retention_now() == 0
        cluster.advance_time(61)
        assert cluster.retention_now() == 1
        found = cluster.wait_topic("orders", partitions=1)["partitions"]
        assert [(each["start_offset"], each["end_offset"]) for each in found] == [(1, 1)]
        produce(client, "orders", batch(b"new"))
        assert cluster.retention_now() == 0
        assert cluster.wait_topic("orders", records=1)["partitions"][0]["end_offset"] == 2


@pytest.mark.parametrize(("config", "start"), [({}, 0), ({"log.retention.check.interval.ms": "300000"}, 1)])
def test_records_with_times_of_long_ago_stay_in_the_test_profile(
    connect: Any, produce: Any, batch: Any, config: dict[str, str], start: int
) -> None:
    """As in Kafka they are removed after five minutes if its interval is set."""
    with EmbeddedCluster(config=config) as cluster:
        client = connect(cluster)
        create(client, "orders")
        produce(client, "orders", batch(b"old", timestamp_ms=1_700_000_000_000))
        cluster.advance_time(600)
        until(lambda: cluster.wait_topic("orders", partitions=1)["partitions"][0]["start_offset"] == start)
        assert cluster.retention_now() == 1 - start


def test_a_fetch_that_waits_is_answered(broker: Any, client: Any, topic: str, fetch_request: Any) -> None:
    sent = client.send(fetch_request(topic, {0: 0}, max_wait_ms=600_000), 11)
    until(lambda: len(node_of(broker).purgatory))
    broker.advance_time(600)
    assert client.receive(FetchRequest, 11)[1] == sent


def test_deleted_files_go_when_their_time_has_come(connect: Any, produce: Any, batch: Any) -> None:
    from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest

    with EmbeddedCluster(config={"log.segment.delete.delay.ms": 3_600_000}) as cluster:
        client = connect(cluster)
        create(client, "orders")
        produce(client, "orders", batch(b"a"))
        client.call(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 4)
        assert [path for path in Path(cluster.data_dir).iterdir() if path.name.endswith("-delete")]
        cluster.advance_time(3_601)
        until(lambda: not list(Path(cluster.data_dir).glob("orders*")))  # they do not run on the loop


@MODES
def test_a_compacted_topic_is_compacted_on_command(connect: Any, processes: bool) -> None:
    from pyclient import Producer, TopicPartition

    with EmbeddedCluster(processes=processes) as cluster:
        create(connect(cluster), "prices", cleanup_policy="compact")
        with Producer(cluster.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("prices", b"%d" % number, key=b"apple").result(30)
        assert cluster.compact_now("prices") >= 1
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("prices", 0)])
            seen = [(each.offset, each.value) for each in consumer.poll(timeout=30)]
        assert seen == [(9, b"9")]


@pytest.mark.parametrize("seconds", [-1, float("nan"), "soon", None])
def test_time_does_not_go_back(broker: Any, seconds: Any) -> None:
    with pytest.raises(ConfigError, match="seconds is"):
        broker.advance_time(seconds)
