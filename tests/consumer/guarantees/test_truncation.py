"""Guarantee 18: a truncated log (KIP-320) raises an error, or is read from where the policy says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import OffsetAndMetadata, TopicPartition, errors
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.consumer.consumer_factory import ConsumerFactory, read
from tests.consumer.scripted_log import QUICK, Log, ScriptedLog, end_of_epoch
from tests.net.scripted import CLOSE

T = TopicPartition("t", 0)
BEFORE = ((0, 10, 3), (10, 10, 3), (20, 10, 4))
CUT = ((0, 10, 3), (10, 10, 3), (20, 5, 5), (25, 20, 5))  # everything of epoch 4 is lost, and other records follow

Start = Callable[..., Any]


@pytest.fixture
def script() -> Iterator[ScriptedLog]:
    """Yield a log of 30 records; the last ten were written by the leader of epoch 4, which still leads."""
    script = ScriptedLog(Log(*BEFORE, leader_epoch=4))
    yield script
    script.close()


@pytest.fixture(params=["sync", "async"])
def start(request: pytest.FixtureRequest, script: ScriptedLog) -> Iterator[Start]:
    """Yield `start(policy, **options)`, which returns a consumer of the log, at offset 0."""
    factory = ConsumerFactory(request.param, script.first.address, **QUICK)

    def make(policy: str, **options: Any) -> Any:
        consumer = factory(auto_offset_reset=policy, **options)
        consumer.assign([T])
        consumer.seek(T, 0)
        return consumer

    yield make
    factory.close()


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


def truncated(consumer: Any) -> errors.LogTruncation:
    """Return the error of polling; no record may come before."""
    with pytest.raises(errors.LogTruncation) as caught:
        for _ in range(200):
            assert len(consumer.poll(0.05)) == 0
    return caught.value


def test_truncation_without_a_policy_raises_until_the_user_seeks(script: ScriptedLog, start: Start) -> None:
    consumer = start("none")
    assert offsets(read(consumer, 30)) == [*range(30)]
    script.elect(*CUT, leader_epoch=5)
    for _ in range(3):
        text = str(truncated(consumer))
        assert "t-0: the log was truncated: epoch 4 ends at offset 20 and this consumer is at 30" in text
    consumer.seek(T, 20)
    assert offsets(read(consumer, 25)) == [*range(20, 45)]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_truncation_with_a_policy_continues_where_the_logs_diverge(
    script: ScriptedLog, start: Start, policy: str
) -> None:
    consumer = start(policy)
    assert offsets(read(consumer, 30)) == [*range(30)]
    script.elect(*CUT, leader_epoch=5)
    assert offsets(read(consumer, 25)) == [*range(20, 45)]
    assert len(consumer.poll(0.1)) == 0


def test_leader_without_the_epoch_applies_the_policy(script: ScriptedLog, start: Start) -> None:
    consumer, strict = start("earliest"), start("none")
    for each in (consumer, strict):
        assert len(read(each, 30)) == 30
    script.elect((0, 40, 6), leader_epoch=6)
    assert offsets(read(consumer, 40)) == [*range(40)]
    assert "this consumer is at 30" in str(truncated(strict))


def test_looked_up_end_is_validated_like_any_position(script: ScriptedLog, start: Start) -> None:
    consumer = start("none")
    consumer.seek_to_end(T)
    assert consumer.position(T) == 30
    script.elect(*CUT, leader_epoch=5)
    assert "this consumer is at 30" in str(truncated(consumer))


def test_leader_changes_without_truncation_give_each_record_once(script: ScriptedLog, start: Start) -> None:
    consumer = start("latest")
    seen, listed = offsets(read(consumer, 1)), script.listed  # between assign and seek the policy may have been asked
    for epoch in range(5, 15):
        seen += offsets(read(consumer, 2))  # the rest is fetched already
        script.elect(*BEFORE, leader_epoch=epoch)
        script.until_asked(OffsetForLeaderEpochRequest, epoch - 4)
    seen += offsets(read(consumer, 30 - len(seen)))
    assert seen == [*range(30)]
    assert script.listed == listed


def test_replaced_leader_resets_no_position_of_a_newer_epoch(script: ScriptedLog, start: Start) -> None:
    consumer = start("earliest")
    assert offsets(read(consumer, 30)) == [*range(30)]
    listed, asked = script.listed, script.first.count(MetadataRequest)
    consumer.seek(T, OffsetAndMetadata(35, "", 5))  # committed by a consumer that knows the next leader
    for times in range(1, 4):
        assert len(consumer.poll(0.01)) == 0
        script.until_asked(MetadataRequest, asked + 2 * times)
    script.elect(*BEFORE, (30, 20, 5), leader_epoch=5)
    assert offsets(read(consumer, 15)) == [*range(35, 50)]
    assert script.listed == listed


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_replaced_leader_resets_no_position_without_an_epoch(script: ScriptedLog, start: Start, policy: str) -> None:
    consumer = start(policy)
    assert offsets(read(consumer, 30)) == [*range(30)]
    listed = script.listed
    script.replace_unknowingly(*BEFORE, (30, 20, 5), leader_epoch=5)
    consumer.seek(T, 35)
    assert offsets(read(consumer, 15)) == [*range(35, 50)]
    assert script.listed == listed


def test_position_of_an_unknown_epoch_is_read_after_the_timeout(script: ScriptedLog, start: Start) -> None:
    consumer = start("earliest", default_api_timeout_ms=300)
    assert offsets(read(consumer, 30)) == [*range(30)]
    consumer.seek(T, OffsetAndMetadata(25, "", 99))  # of another cluster
    assert offsets(read(consumer, 5)) == [*range(25, 30)]


PASSING: dict[str, Any] = {
    error.__name__: end_of_epoch(-1, -1, error.code)
    for error in (
        errors.NotLeaderOrFollower,
        errors.FencedLeaderEpoch,
        errors.UnknownLeaderEpoch,
        errors.LeaderNotAvailable,
        errors.UnknownTopicOrPartition,
        errors.KafkaStorageError,
        errors.UnknownServerError,
    )
} | {"a connection that ends": CLOSE}


@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING.keys())
def test_failed_validation_is_retried_and_resets_nothing(script: ScriptedLog, start: Start, answer: Any) -> None:
    consumer, left = start("latest"), [answer] * 3
    assert len(read(consumer, 7)) == 7
    listed = script.listed  # between assign and seek the policy may have been asked
    script.answer(OffsetForLeaderEpochRequest, lambda *asked: left.pop() if left else script.ends(*asked))
    script.elect(*BEFORE, leader_epoch=5)
    assert offsets(read(consumer, 23)) == [*range(7, 30)]
    assert script.listed == listed
