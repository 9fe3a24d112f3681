"""Finding positions: committed offsets, policies, truncation; with failing, slow and wrong brokers."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pyclient import errors
from pyclient.config import resolve
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.context import ConsumerContext
from pyclient.consumer.offsets_request_manager import OffsetsRequestManager
from pyclient.consumer.subscription import AssignedPartition, Phase, SubscriptionState
from pyclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from pyclient.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from tests.consumer.consumer_samples import T0, T1

Answers = list[Any]


class Script:
    """A position finder with scripted responses: a value, an error, or a function called at that moment."""

    def __init__(self, *partitions: TopicPartition, committed: bool = True, **options: Any) -> None:
        self.config = resolve(
            ConsumerConfig, {"bootstrap_servers": "h:1", "group_id": "g", "retry_backoff_ms": 1, **options}
        )
        self.subscription = SubscriptionState(looks_up_committed=committed)
        self.subscription.assign(partitions or (T0,))
        self.state: AssignedPartition = next(iter(self.subscription))
        self.committed: Answers = []
        self.listed: Answers = []
        self.epochs: Answers = []
        self.asked_times: list[Mapping[TopicPartition, int]] = []
        self.errors: list[errors.KafkaError] = []
        self.refreshes = 0
        self.metadata: Answers = []  # of brokers that are asked until one is not behind
        self.asked_topics: list[str] = []
        self.elsewhere: Answers = []  # of other brokers than the leader that refuses a position
        self.asked_elsewhere: list[tuple[list[str], int]] = []
        self.clock = _LoopClock()
        self.leaders: dict[TopicPartition, int] = {}  # 1 leads the others
        self.once: Callable[[Mapping[TopicPartition, int]], Awaitable[Any]] = self._once

    def run(self, until: Callable[[], bool]) -> None:
        """Run the finder until the condition holds."""
        asyncio.run(self._run(until))

    async def _run(self, until: Callable[[], bool]) -> None:
        changed = asyncio.Event()

        def on_change(found: list[errors.KafkaError]) -> None:
            self.errors += found
            changed.set()

        metadata = SimpleNamespace(leader=lambda *partition: self.leaders.get(TopicPartition(*partition), 1))
        cluster: Any = SimpleNamespace(
            metadata=metadata,
            request=self._request,
            request_refresh=self._refresh,
            request_topic=self.asked_topics.append,
            wait_metadata=self._wait_metadata,
            refresh_elsewhere=self._refresh_elsewhere,
        )
        finder: Any = SimpleNamespace(once=self.once)
        positions = OffsetsRequestManager(
            ConsumerContext(self.config, cluster, self.subscription, threading.Lock(), self.clock, random.Random(1)),
            finder,
            look_up_committed=self._look_up,
            on_change=on_change,
        )
        positions.start()
        async with asyncio.timeout(30):
            while not until():
                await changed.wait()
                changed.clear()
        positions.stop()

    def _refresh(self) -> None:
        self.refreshes += 1

    async def _wait_metadata(
        self, predicate: Callable[[Any], bool], timeout: float, request: Callable[[], object]
    ) -> None:
        while not predicate(None):
            request()
            await asyncio.sleep(0)
            _give(self.metadata)

    async def _refresh_elsewhere(self, topics: Iterable[str], node_id: int) -> None:
        self.asked_elsewhere.append((sorted(topics), node_id))
        _give(self.elsewhere)

    def after(self, seconds: float, answer: Any = None) -> Callable[[], Any]:
        """Return an answer that takes so long."""

        def pass_time() -> Any:
            self.clock.ahead += seconds
            return answer

        return pass_time

    async def _look_up(self, partitions: Sequence[TopicPartition]) -> Any:
        return _give(self.committed)

    async def _once(self, wanted: Mapping[TopicPartition, int]) -> Any:
        self.asked_times.append(dict(wanted))
        return _give(self.listed)

    async def _request(self, request: Any, *, node_id: int) -> Any:
        return _give(self.epochs)


class _LoopClock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead

    def time_ms(self) -> int:
        return 10_000


def _give(answers: Answers) -> Any:
    answer = answers.pop(0)
    if callable(answer):
        answer = answer()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def at(offset: int) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(offset, -1)


def fetching(script: Script) -> Callable[[], bool]:
    return lambda: all(state.phase is Phase.FETCH for state in script.subscription)


# ---- committed offsets


def test_reading_starts_at_the_committed_offset() -> None:
    script = Script()
    script.committed = [{T0: OffsetAndMetadata(7, "", 3)}]
    script.run(fetching(script))
    assert (script.state.position, script.state.position_epoch) == (7, 3)


def test_policy_applies_without_a_committed_offset() -> None:
    script = Script(auto_offset_reset="earliest")
    script.committed, script.listed = [{T0: None}], [{T0: at(4)}]
    script.run(fetching(script))
    assert (script.state.position, script.asked_times) == (4, [{T0: -2}])


def test_partition_without_a_policy_stops_with_an_error() -> None:
    script = Script(auto_offset_reset="none")
    script.committed = [{T0: None}]
    script.run(lambda: script.state.phase is Phase.STOPPED)
    assert isinstance(script.subscription.first_error(), errors.NoOffsetForPartition)


def test_silent_coordinator_never_causes_a_reset() -> None:
    script = Script(auto_offset_reset="earliest")
    script.committed = [errors.KafkaTimeout("no answer"), errors.NotCoordinator("moved"), {T0: OffsetAndMetadata(7)}]
    script.run(fetching(script))
    assert (script.state.position, script.asked_times, script.errors) == (7, [], [])


def test_unauthorized_offset_fetch_is_reported_to_the_user() -> None:
    script = Script()
    script.committed = [errors.GroupAuthorizationFailed("no"), {T0: OffsetAndMetadata(7)}]
    script.run(fetching(script))
    assert [type(error) for error in script.errors] == [errors.GroupAuthorizationFailed]


def test_committed_offset_that_arrives_after_a_seek_is_ignored() -> None:
    script = Script()

    def late() -> Any:
        script.state.start_at(40)
        return {T0: OffsetAndMetadata(7)}

    script.committed = [late]
    script.run(fetching(script))
    assert script.state.position == 40


# ---- policies


def test_failed_list_offsets_is_retried() -> None:
    script = Script(T0, T1, committed=False, auto_offset_reset="latest")
    refusal = errors.NotLeaderOrFollower("moved")
    script.listed = [{T0: at(5), T1: refusal}, {T1: refusal}, {T1: at(6)}]
    script.run(fetching(script))
    assert [state.position for state in script.subscription] == [5, 6]
    assert script.asked_times == [{T0: -1, T1: -1}, {T1: -1}, {T1: -1}]


def test_time_after_the_last_record_means_the_end() -> None:
    script = Script(committed=False, auto_offset_reset="by_duration:PT4S")
    script.listed = [{T0: at(-1)}, {T0: at(9)}]
    script.run(fetching(script))
    assert (script.state.position, script.asked_times) == (9, [{T0: 6_000}, {T0: -1}])


def test_seek_to_an_end_is_ignored_after_a_later_seek() -> None:
    script = Script(committed=False)

    def late() -> Any:
        script.state.start_at(3)
        return {T0: at(100)}

    script.listed = [late]
    script.run(fetching(script))
    assert script.state.position == 3


def test_partition_without_group_and_policy_has_no_position() -> None:
    script = Script(committed=False, auto_offset_reset="none", group_id=None)
    script.run(lambda: script.state.phase is Phase.STOPPED)
    assert "there is no group" in str(script.subscription.first_error())


# ---- outdated metadata


def outdated() -> Script:
    """Return a partition whose committed offset has leader epoch 5, while the metadata have epoch 4."""
    script = Script(auto_offset_reset="earliest")
    script.state.leader_epoch = 4
    script.committed = [{T0: OffsetAndMetadata(7, "", 5)}]
    return script


def test_committed_offset_waits_for_metadata_with_its_epoch() -> None:
    script = outdated()
    script.metadata = [None, None, lambda: script.subscription.note_leader(T0, 5, script.state.topic_id)]
    script.run(fetching(script))
    assert (script.state.position, script.state.position_epoch, script.asked_times) == (7, 5, [])
    assert (script.metadata, script.asked_topics) == ([], ["t", "t", "t"])


def test_committed_offset_older_than_the_awaited_metadata_is_validated() -> None:
    script = outdated()
    script.metadata = [lambda: script.subscription.note_leader(T0, 6, script.state.topic_id)]
    script.epochs = [end_of_epoch(5, 9)]
    script.run(fetching(script))
    assert (script.state.position, script.state.position_epoch, script.epochs) == (7, 5, [])


def test_wait_for_an_epoch_that_no_broker_has_times_out() -> None:
    script = outdated()
    limit = script.config.default_api_timeout_ms / 1000
    script.metadata = [None, script.after(limit - 30), None, script.after(31)]
    script.run(fetching(script))
    assert (script.state.position, script.state.position_epoch, script.asked_times) == (7, -1, [])
    assert script.metadata == []


def test_failed_wait_for_metadata_is_retried() -> None:
    script = outdated()
    script.metadata = [
        errors.KafkaTimeout("no broker answers"),
        lambda: script.subscription.note_leader(T0, 5, script.state.topic_id),
    ]
    script.run(fetching(script))
    assert (script.state.position, script.state.position_epoch, script.errors) == (7, 5, [])


def test_seek_ends_the_wait_for_metadata() -> None:
    script = outdated()
    script.metadata = [lambda: script.state.start_at(3)]
    script.run(fetching(script))
    assert (script.state.position, script.asked_topics) == (3, ["t"])


# ---- positions without an epoch that the leader refuses


def refused(**options: Any) -> Script:
    """Return a partition at offset 7, which its leader, node 1 with epoch 4, refuses as out of range."""
    script = Script(**{"auto_offset_reset": "earliest", **options})
    script.state.leader_epoch = 4
    script.state.start_at(7)
    script.state.out_of_range(resets=True)
    return script


def test_refused_position_is_reset_if_another_broker_names_the_leader() -> None:
    script = refused()
    script.elsewhere, script.listed = [None], [{T0: at(3)}]
    script.run(fetching(script))
    assert (script.state.position, script.asked_elsewhere, script.asked_times) == (3, [(["t"], 1)], [{T0: -2}])


def test_refused_position_is_read_from_the_newer_leader_of_another_broker() -> None:
    script = refused()

    def newer() -> None:
        script.leaders[T0] = 2
        script.subscription.note_leader(T0, 5, script.state.topic_id)

    script.elsewhere = [newer]
    script.run(fetching(script))
    assert (script.state.position, script.asked_elsewhere, script.asked_times) == (7, [(["t"], 1)], [])


def test_refused_position_is_kept_while_another_broker_knows_no_leader() -> None:
    script = refused()
    script.elsewhere = [lambda: script.leaders.update({T0: -1})]
    script.run(fetching(script))
    assert (script.state.position, script.asked_times) == (7, [])


def test_confirmed_refusal_without_policy_is_an_error() -> None:
    script = refused(auto_offset_reset="none")
    script.elsewhere = [None]
    script.run(lambda: script.state.phase is Phase.STOPPED)
    assert isinstance(script.subscription.first_error(), errors.OffsetOutOfRange)


def test_refused_position_awaits_another_broker_for_a_limited_time() -> None:
    script = refused()
    failure = errors.ConnectionFailed("no other broker")
    limit = script.config.default_api_timeout_ms / 1000
    script.elsewhere = [failure, script.after(limit - 30, failure), failure, script.after(31, failure)]
    script.listed = [{T0: at(3)}]
    script.run(fetching(script))
    assert (script.state.position, script.elsewhere, script.asked_times) == (3, [], [{T0: -2}])


def test_seek_ends_the_wait_for_another_broker() -> None:
    script = refused()
    script.elsewhere = [lambda: script.state.start_at(3)]
    script.run(fetching(script))
    assert (script.state.position, script.asked_times) == (3, [])


# ---- truncation (KIP-320)


def validating(policy: str = "earliest") -> Script:
    """Return a partition at offset 10, read under epoch 4, whose new leader has epoch 5."""
    script = Script(auto_offset_reset=policy)
    script.state.leader_epoch = 5
    script.state.start_at(10, leader_epoch=4)
    assert script.state.phase is Phase.VALIDATE
    return script


def end_of_epoch(epoch: int, end: int, error_code: int = 0) -> OffsetForLeaderEpochResponse:
    answer = EpochEndOffset(error_code=error_code, partition=0, leader_epoch=epoch, end_offset=end)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[answer])])


@pytest.mark.parametrize("end", [10, 11])
def test_log_that_holds_the_position_is_read_on(end: int) -> None:
    script = validating()
    script.epochs = [end_of_epoch(4, end)]
    script.run(fetching(script))
    assert (script.state.position, script.state.position_epoch) == (10, 4)


def test_truncated_log_is_read_on_where_it_diverged() -> None:
    script = validating()
    script.epochs = [end_of_epoch(3, 8)]
    script.run(fetching(script))
    assert (script.state.position, script.state.position_epoch) == (8, 3)


def test_truncated_log_is_an_error_without_a_policy() -> None:
    script = validating("none")
    script.epochs = [end_of_epoch(4, 8)]
    script.run(lambda: script.state.phase is Phase.STOPPED)
    error = script.subscription.first_error()
    assert isinstance(error, errors.LogTruncation)
    assert "epoch 4 ends at offset 8 and this consumer is at 10" in str(error)


def test_log_without_the_epoch_applies_the_policy() -> None:
    script = validating()
    script.epochs, script.listed = [end_of_epoch(-1, -1)], [{T0: at(2)}]
    script.run(fetching(script))
    assert script.state.position == 2


@pytest.mark.parametrize("error", [errors.FencedLeaderEpoch, errors.UnknownLeaderEpoch, errors.NotLeaderOrFollower])
def test_validation_is_retried_after_the_leader_moves(error: type[errors.BrokerError]) -> None:
    script = validating()
    script.epochs = [end_of_epoch(-1, -1, error.code), errors.ConnectionFailed("cut"), end_of_epoch(4, 10)]
    script.run(fetching(script))
    assert (script.state.position, script.refreshes) == (10, 1)


def test_validation_is_retried_after_a_broker_failure() -> None:
    script = validating()
    script.epochs = [end_of_epoch(-1, -1, errors.UnknownServerError.code), end_of_epoch(4, 10)]
    script.run(fetching(script))
    assert (script.state.position, script.errors) == (10, [])


def test_response_without_a_partition_is_reported_and_retried() -> None:
    script = validating()
    script.epochs = [OffsetForLeaderEpochResponse(topics=[]), end_of_epoch(4, 10)]
    script.run(fetching(script))
    assert [str(error) for error in script.errors] == ["node 1: the OffsetForLeaderEpoch response lacks t-0"]


def test_response_of_a_replaced_leader_is_ignored() -> None:
    script = validating()

    def late() -> Any:
        script.subscription.note_leader(T0, 6, script.state.topic_id)
        return end_of_epoch(4, 11)

    script.epochs = [late, end_of_epoch(4, 8)]
    script.run(fetching(script))
    assert (script.state.position, script.epochs) == (8, [])


def test_looked_up_position_has_its_epoch() -> None:
    script = Script(committed=False, auto_offset_reset="latest")
    script.state.leader_epoch = 5
    script.listed = [{T0: OffsetAndTimestamp(9, -1, 5)}]
    script.run(fetching(script))
    assert (script.state.position, script.state.position_epoch) == (9, 5)
    script.subscription.note_leader(T0, 6, script.state.topic_id)
    assert script.state.phase is Phase.VALIDATE


def test_silent_leader_does_not_block_others() -> None:
    script = Script(T0, T1, committed=False, auto_offset_reset="earliest")
    script.leaders = {T0: 1, T1: 2}

    async def once(wanted: Mapping[TopicPartition, int]) -> Any:
        if T0 in wanted:
            await asyncio.Event().wait()
        return {partition: at(4) for partition in wanted}

    script.once = once
    first, second = script.subscription
    script.run(lambda: second.phase is Phase.FETCH)
    assert (first.phase, second.position) == (Phase.RESET, 4)


def test_broker_without_validation_keeps_the_position() -> None:
    script = validating()
    script.epochs = [errors.UnsupportedVersion("no such API")]
    script.run(fetching(script))
    assert script.state.position == 10
