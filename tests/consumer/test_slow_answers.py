"""Calls to silent brokers end at their timeout and name the broker."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Admin, AsyncConsumer, NewTopic, Producer, RebalanceListener, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import PATIENCE, ConsumerFactory, close_in_time, read
from tests.patience import retry_until_error

PATIENT = 600_000  # request_timeout_ms: whatever waits for that instead of its own timeout never ends here


@pytest.fixture(scope="module")
def frozen() -> Iterator[EmbeddedCluster]:
    """Yield a separate cluster: freezing its nodes must not delay other tests."""
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(frozen: EmbeddedCluster) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin(frozen.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, partitions=2)])
    with Producer(frozen.bootstrap_servers, linger_ms=0) as producer:
        producer.send(name, b"x", partition=0, timestamp_ms=1_000)
    yield name
    frozen.faults.clear()


CALLS: dict[str, Callable[[Any, list[TopicPartition], float], Any]] = {
    "beginning_offsets": lambda consumer, wanted, timeout: consumer.beginning_offsets(wanted, timeout=timeout),
    "end_offsets": lambda consumer, wanted, timeout: consumer.end_offsets(wanted, timeout=timeout),
    "offsets_for_times": lambda consumer, wanted, timeout: consumer.offsets_for_times(
        dict.fromkeys(wanted, 0), timeout=timeout
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_silent_leader_costs_the_timeout_and_is_named(
    name: str, consumers: ConsumerFactory, frozen: EmbeddedCluster, topic: str
) -> None:
    wanted = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    consumer = consumers(bootstrap_servers=frozen.bootstrap_servers, request_timeout_ms=PATIENT)
    CALLS[name](consumer, wanted, 20)  # connected, and the topic is known
    leader = re.escape(f"node 1 ({frozen.bootstrap_servers})")
    says = rf"{topic}-0, {topic}-1.*within 0\.6 s.*{leader} has not responded to ListOffsets for {topic}-0"

    def ask() -> None:
        with frozen.faults.hold("ListOffsets", times=None) as held:
            try:
                CALLS[name](consumer, wanted, 0.6)
            except errors.KafkaTimeout as error:
                if re.search(says, str(error), re.DOTALL):  # a busy client may not have asked yet
                    held.wait(1)  # a busy broker counts it after the client's timeout
                    assert held.hits() == 1
                raise

    retry_until_error(ask, says)
    assert len(CALLS[name](consumer, wanted, 20)) == 2  # nothing is broken by it


def test_retried_error_is_named_after_the_timeout(
    consumers: ConsumerFactory, frozen: EmbeddedCluster, topic: str
) -> None:
    consumer = consumers(bootstrap_servers=frozen.bootstrap_servers, request_timeout_ms=PATIENT)
    with frozen.faults.fail("ListOffsets", errors.NotLeaderOrFollower, times=None, topic=topic):
        says = rf"{topic}-1: not found within 0\.5 s.*offset of"
        retry_until_error(lambda: consumer.end_offsets([(topic, 1)], timeout=0.5), says)


def test_several_topics_that_do_not_exist_cost_one_timeout(consumers: ConsumerFactory, frozen: EmbeddedCluster) -> None:
    consumer = consumers(bootstrap_servers=frozen.bootstrap_servers, allow_auto_create_topics=False)
    places = [(f"missing-{number}", 0) for number in range(1000)]
    retry_until_error(lambda: consumer.end_offsets(places, timeout=0.3), "missing-0")


def test_close_with_a_silent_leader_keeps_its_timeout(
    consumers: ConsumerFactory, frozen: EmbeddedCluster, topic: str
) -> None:
    consumer = consumers(
        topic, bootstrap_servers=frozen.bootstrap_servers, group_id=f"g-{topic}", request_timeout_ms=PATIENT
    )
    consumer.end_offsets([(topic, 0)])
    with frozen.faults.hold("ListOffsets", times=None):
        with pytest.raises(errors.KafkaTimeout):
            consumer.end_offsets([(topic, 0)], timeout=0.1)
        close_in_time(consumer, 0.3)


def test_with_statement_after_an_error_waits_only_briefly(
    consumers: ConsumerFactory, frozen: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("consumer", "async_consumer"):
        monkeypatch.setattr(f"pyclient.consumer.{module}.SECONDS_AFTER_ERROR", 0.2)
    consumer = consumers(
        topic,
        bootstrap_servers=frozen.bootstrap_servers,
        group_id=f"g-{topic}",
        request_timeout_ms=PATIENT,
        default_api_timeout_ms=PATIENT,
    )
    assert len(read(consumer, 1)) == 1
    consumer.poll(0)  # what the poll before returned is done with, so there is something to commit
    frozen.faults.hold(["OffsetCommit", "LeaveGroup"], times=None)
    with pytest.raises(KeyError, match="mine"), consumer:
        raise KeyError("mine")
    assert consumer.raw.closed


@pytest.fixture
def committing(consumers: ConsumerFactory, frozen: EmbeddedCluster, topic: str) -> Callable[..., Any]:
    """Create consumers of one group that would wait ten minutes for their coordinator."""

    def make(*topics: str, **options: Any) -> Any:
        patient = {"request_timeout_ms": PATIENT, "default_api_timeout_ms": PATIENT}
        return consumers(
            *topics, bootstrap_servers=frozen.bootstrap_servers, group_id=f"g-{topic}", **patient, **options
        )

    return make


def test_close_calls_back_for_commits_that_its_timeout_cuts_off(
    committing: Callable[..., Any], frozen: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    partition, outcomes = TopicPartition(topic, 0), []
    consumer = committing()
    consumer.assign([partition])
    assert consumer.committed() == {partition: None}  # the coordinator is known
    with frozen.faults.hold("OffsetCommit", times=None) as held:
        consumer.commit_async(
            {partition: 7}, lambda offsets, error: outcomes.append((offsets[partition].offset, error))
        )
        consumer.commit_async({partition: 8})
        held.wait(1)
        close_in_time(consumer, 0.3)
    [(offset, error)] = outcomes
    assert offset == 7
    with pytest.raises(errors.KafkaTimeout, match=rf"closed before.*'g-{topic}' confirmed {topic}-0 up to 7.*unknown"):
        raise error
    for offset in (7, 8):
        assert f"confirmed {topic}-0 up to {offset}: " in caplog.text


def test_close_keeps_its_timeout_if_its_commit_waits_for_another(
    committing: Callable[..., Any], frozen: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, outcomes = committing(topic), []
    assert len(read(consumer, 1)) == 1
    with frozen.faults.hold(["OffsetCommit", "LeaveGroup"], times=None) as held, caplog.at_level(logging.INFO):
        consumer.commit_async(lambda offsets, error: outcomes.append(error))
        held.wait(1)
        with pytest.raises(errors.KafkaTimeout, match=r"within 0\.1 s, because an earlier commit has no response yet"):
            consumer.commit(timeout=0.1)
        assert not outcomes
        assert "because an earlier commit has no response yet" in consumer.health()["last_errors"]["commit"]
        assert consumer.metrics()["commits_failed"] == 1
        close_in_time(consumer, 0.3)
    assert [type(error) for error in outcomes] == [errors.KafkaTimeout]
    assert "auto-commit" in caplog.text
    assert f"leaving group 'g-{topic}': not confirmed within" in caplog.text


def test_close_calls_back_though_a_rebalance_listener_fails(
    committing: Callable[..., Any], frozen: EmbeddedCluster, topic: str
) -> None:
    class Failing(RebalanceListener):
        def on_revoked(self, partitions: Any) -> None:
            raise ZeroDivisionError

    consumer, outcomes = committing(enable_auto_commit=False), []
    consumer.subscribe(topic, listener=Failing())
    assert len(read(consumer, 1)) == 1
    with frozen.faults.hold("OffsetCommit", times=None) as held:
        consumer.commit_async(lambda offsets, error: outcomes.append(error))
        held.wait(1)
        with pytest.raises(ZeroDivisionError):
            close_in_time(consumer, 0.3)
    assert [type(error) for error in outcomes] == [errors.KafkaTimeout]


def test_callback_that_commits_during_close_gets_an_error(
    committing: Callable[..., Any], frozen: EmbeddedCluster, topic: str
) -> None:
    partition, outcomes = TopicPartition(topic, 0), []
    consumer = committing()
    consumer.assign([partition])
    assert consumer.committed() == {partition: None}

    def try_again(offsets: Any, error: Exception | None) -> None:
        outcomes.append(error)
        consumer.raw.commit_async(offsets, try_again)  # refused the second time, for the consumer is closed

    with frozen.faults.hold("OffsetCommit", times=None) as held:
        consumer.commit_async({partition: 7}, try_again)
        held.wait(1)
        close_in_time(consumer, 0.3)
    assert [type(error) for error in outcomes] == [errors.KafkaTimeout] * 2
    assert "the consumer ended before" in str(outcomes[1])


def test_asynchronous_commit_without_a_later_call_is_done_by_close(committing: Callable[..., Any], topic: str) -> None:
    partition, outcomes = TopicPartition(topic, 0), []
    consumer = committing()
    consumer.assign([partition])
    consumer.commit_async({partition: 1}, lambda offsets, error: outcomes.append(error))
    consumer.close()
    assert outcomes == [None]


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_cancelled_close_ends(end: str, auto_commit: bool, frozen: EmbeddedCluster, topic: str) -> None:
    outcomes: list[Exception | None] = []

    async def main() -> None:
        consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
            topic,
            bootstrap_servers=frozen.bootstrap_servers,
            group_id=f"g-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=auto_commit,
            request_timeout_ms=PATIENT,
            default_api_timeout_ms=PATIENT,
        )
        while not await consumer.poll(30):
            pass
        if not auto_commit:
            consumer.commit_async(lambda offsets, error: outcomes.append(error))
        with frozen.faults.hold(["OffsetCommit", "LeaveGroup"], times=None) as held:
            ending = asyncio.create_task(consumer.close(None) if end == "close" else consumer.unsubscribe())
            await asyncio.to_thread(held.wait, 1)
            ending.cancel()
            await asyncio.wait([ending], timeout=PATIENCE)
            assert ending.cancelled()
        assert consumer.closed == (end == "close")
        await consumer.close()

    asyncio.run(main())
    for error in outcomes:
        assert re.search(
            r"(closed|unsubscribed) before.*Check with committed\(\), or use commit\(\), which waits$", str(error)
        )
    assert len(outcomes) == (not auto_commit)
