"""The decisions of a follower: when it fetches from a leader, which partitions, and what the answers mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyclient import errors
from pyclient.broker_embedded.replication.fetcher_state import (
    AbandonDue,
    Act,
    Appended,
    Effect,
    Event,
    FetcherState,
    FetchFailed,
    Followed,
    Forgotten,
    LogFailure,
    OffsetsFound,
    PartitionAnswered,
    Responded,
    Restart,
    Restarted,
    Send,
    Signal,
    StartAbandonTimer,
    StepFailed,
    Take,
    TakeAnswers,
    WakeAt,
)
from pyclient.broker_embedded.replication.following import Append, FindOffsets, Following, Truncate, Wait
from pyclient.broker_embedded.replication.replication_quota import ReplicationQuota
from pyclient.protocol.messages.fetch import EpochEndOffset, FetchResponse, PartitionData
from pyclient.types import TopicPartition

TOPIC_ID = UUID(int=1)
EPOCH = 3
LONGEST_BACKOFF = 1.0


@dataclass
class Log:
    """The offsets of a log."""

    end_offset: int = 10
    start_offset: int = 0
    high_watermark: int = 0
    leader_epoch: int = EPOCH
    failure: str | None = None
    closed: bool = False

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return epoch, self.end_offset


@dataclass
class Facts:
    """The metadata and the options of the node that fetches."""

    is_leader_known: bool = True
    longest_backoff: float = LONGEST_BACKOFF
    partition_max_bytes: int = 1 << 20
    throttled: set[int] = field(default_factory=set)
    limit: int = 1 << 40

    def is_throttled(self, key: tuple[UUID, int]) -> bool:
        return key[1] in self.throttled

    def fetcher(self) -> FetcherState:
        return FetcherState(self, ReplicationQuota(lambda: self.limit, windows=11, seconds=1.0))


def following(index: int = 0, epoch: int = EPOCH) -> Following:
    return Following(TopicPartition("orders", index), TOPIC_ID, epoch)


def key(index: int = 0) -> tuple[UUID, int]:
    return TOPIC_ID, index


def response(code: int = 0) -> FetchResponse:
    return FetchResponse(error_code=code, session_id=0, responses=[])


def answer(
    index: int = 0,
    code: int = 0,
    *,
    records: bytes = b"",
    high_watermark: int = 5,
    diverging: tuple[int, int] = (-1, -1),
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=high_watermark,
        records=records,
        diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
    )


def fetching(facts: Facts, *logs: Log) -> tuple[FetcherState, int, dict[int, Any]]:
    """Return a fetcher whose first fetch is in flight at 0, its number, and what was asked for by partition."""
    state = facts.fetcher()
    for index, log in enumerate(logs):
        assert state.receive(Followed(following(index), log), 0.0) == [WakeAt(0.0)]
    return state, *sent(state.receive(Signal.DUE, 0.0))


def sent(effects: list[Effect]) -> tuple[int, dict[int, Any]]:
    """Return the number of the only fetch that is sent, and what it asks for by partition."""
    [effect] = [each for each in effects if isinstance(each, Send)]
    return effect.fetch, {index: asked for (_topic, index), asked in effect.content.partitions.items()}


def test_fetch_asks_from_the_end_of_each_log() -> None:
    _state, _fetch, asked = fetching(Facts(), Log(10, high_watermark=7), Log(4, leader_epoch=2))
    offsets = {
        index: (each.fetch_offset, each.last_fetched_epoch, each.high_watermark) for index, each in asked.items()
    }
    assert offsets == {0: (10, EPOCH, 7), 1: (4, 2, 0)}
    assert {each.current_leader_epoch for each in asked.values()} == {EPOCH}


def test_one_fetch_is_in_flight_at_a_time() -> None:
    state, fetch, _asked = fetching(Facts(), Log())
    assert state.receive(Signal.DUE, 0.1) == []
    assert state.receive(Responded(fetch, response()), 0.2) == [TakeAnswers(response())]
    assert sent(state.receive(Signal.ANSWERS_TAKEN, 0.2))[0] == fetch + 1


def test_records_are_appended_and_counted_as_in_sync() -> None:
    log = Log(10)
    state, fetch, _asked = fetching(Facts(), log)
    state.receive(Responded(fetch, response()), 0.1)
    given = answer(records=b"batch", high_watermark=12)
    assert state.receive(PartitionAnswered(key(), given), 0.1) == [Take(key(), Append(given), EPOCH)]
    log.end_offset = 11
    state.receive(Appended(key(), 12), 0.1)
    followed = state.following(key())
    assert followed is not None
    assert (followed.lag, followed.is_in_sync) == (1, False)
    log.end_offset = 12
    state.receive(Appended(key(), 12), 0.1)
    assert followed.is_in_sync


def test_checkpoints_are_written_between_a_truncation_and_the_next_fetch() -> None:
    log = Log(10)
    state, fetch, _asked = fetching(Facts(), log)
    state.receive(Responded(fetch, response()), 0.1)
    [step] = state.receive(PartitionAnswered(key(), answer(diverging=(2, 6))), 0.1)
    assert isinstance(step, Take)
    assert isinstance(step.step, Truncate)
    assert step.step.offset == 6
    log.end_offset = 6
    state.receive(Signal.TRUNCATED, 0.1)
    effects = state.receive(Signal.ANSWERS_TAKEN, 0.1)
    assert effects[0] is Act.FLUSH_CHECKPOINTS
    assert sent(effects)[1][0].fetch_offset == 6


@pytest.mark.parametrize(
    ("code", "step"),
    [(errors.OffsetOutOfRange.code, FindOffsets), (errors.UnknownLeaderEpoch.code, Wait)],
)
def test_failed_partition_pauses_while_the_others_are_fetched(code: int, step: type[object]) -> None:
    state, fetch, _asked = fetching(Facts(), Log(), Log())
    state.receive(Responded(fetch, response()), 1.0)
    [taken] = state.receive(PartitionAnswered(key(0), answer(0, code)), 1.0)
    assert isinstance(taken, Take)
    assert isinstance(taken.step, step)
    fetch, asked = sent(state.receive(Signal.ANSWERS_TAKEN, 1.0))
    assert set(asked) == {1}
    state.receive(Responded(fetch, response()), 1.5)
    assert set(sent(state.receive(Signal.ANSWERS_TAKEN, 1.5))[1]) == {0, 1}


def test_fenced_partition_is_fetched_in_a_newer_epoch_only() -> None:
    state, fetch, _asked = fetching(Facts(), Log())
    state.receive(Responded(fetch, response()), 1.0)
    assert state.receive(PartitionAnswered(key(), answer(code=errors.FencedLeaderEpoch.code)), 1.0) == []
    assert state.receive(Signal.ANSWERS_TAKEN, 1.0) == []
    assert state.receive(Signal.DUE, 1000.0) == []
    assert state.receive(Followed(following(epoch=EPOCH + 1), Log()), 1000.0) == [WakeAt(1000.0)]
    assert sent(state.receive(Signal.DUE, 1000.0))[1][0].current_leader_epoch == EPOCH + 1


def test_failed_fetches_pause_longer_each_time_and_are_logged_once() -> None:
    state, fetch, _asked = fetching(Facts(), Log())
    error, now, pauses = errors.ConnectionFailed("refused"), 0.0, []
    for number in range(10):
        *logged, wake = state.receive(FetchFailed(fetch, error), now)
        assert logged == ([] if number else [LogFailure(error)])
        assert isinstance(wake, WakeAt)
        pauses.append(wake.due - now)
        assert state.receive(Signal.DUE, now) == [wake]
        now = wake.due
        fetch, _ = sent(state.receive(Signal.DUE, now))
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0, 1.0])


def test_change_of_the_leader_ends_the_pause() -> None:
    facts = Facts()
    state, fetch, _asked = fetching(facts, Log())
    state.receive(FetchFailed(fetch, errors.ConnectionFailed("refused")), 0.0)
    facts.is_leader_known = False
    assert state.receive(Signal.LEADER_CHANGED, 0.001) == [WakeAt(0.001)]
    assert state.receive(Signal.DUE, 0.001) == []
    facts.is_leader_known = True
    state.receive(Signal.LEADER_CHANGED, 0.002)
    sent(state.receive(Signal.DUE, 0.002))


def test_unknown_session_is_opened_again_and_other_errors_pause() -> None:
    state, fetch, _asked = fetching(Facts(), Log())
    fetch, _ = sent(state.receive(Responded(fetch, response(errors.FetchSessionIdNotFound.code)), 0.0))
    effects = state.receive(Responded(fetch, response(errors.ClusterAuthorizationFailed.code)), 0.0)
    assert isinstance(effects[0], LogFailure)
    assert effects[1] == WakeAt(0.02)


def test_new_partition_waits_a_moment_only_for_a_fetch_in_flight() -> None:
    state, fetch, _asked = fetching(Facts(), Log())
    [patience] = state.receive(Followed(following(1), Log()), 0.1)
    assert isinstance(patience, StartAbandonTimer)
    assert patience.fetch == fetch
    assert state.receive(Followed(following(2), Log()), 0.1) == []
    assert state.receive(AbandonDue(fetch), 0.11) == [Act.RECONNECT, WakeAt(0.11)]
    again, asked = sent(state.receive(Signal.DUE, 0.11))
    assert set(asked) == {0, 1, 2}
    assert state.receive(Responded(fetch, response()), 0.12) == []
    assert state.receive(FetchFailed(fetch, errors.ConnectionFailed("closed")), 0.12) == []
    assert state.receive(AbandonDue(fetch), 0.12) == []
    assert state.receive(Responded(again, response()), 0.13) == [TakeAnswers(response())]


def test_each_fetch_has_a_patience_of_its_own() -> None:
    state, fetch, _asked = fetching(Facts(), Log())
    state.receive(Followed(following(1), Log()), 0.1)
    state.receive(Responded(fetch, response()), 0.102)
    again, _ = sent(state.receive(Signal.ANSWERS_TAKEN, 0.102))
    [patience] = state.receive(Followed(following(2), Log()), 0.105)
    assert isinstance(patience, StartAbandonTimer)
    assert patience.fetch == again


def test_throttled_partition_out_of_sync_waits_for_the_quota() -> None:
    facts = Facts(throttled={0}, limit=100)
    log = Log(10)
    state, fetch, _asked = fetching(facts, log, Log())
    state.receive(Responded(fetch, response()), 0.0)
    state.receive(PartitionAnswered(key(0), answer(0, records=bytes(1000), high_watermark=99)), 0.0)
    state.receive(Appended(key(0), 99), 0.0)
    fetch, asked = sent(state.receive(Signal.ANSWERS_TAKEN, 0.0))
    assert set(asked) == {1}
    facts.limit = 1 << 40
    state.receive(Responded(fetch, response()), 0.1)
    assert set(sent(state.receive(Signal.ANSWERS_TAKEN, 0.1))[1]) == {0, 1}


def test_log_outside_of_the_leaders_restarts_where_the_leader_has_records() -> None:
    log = Log(10)
    state, fetch, _asked = fetching(Facts(), log)
    followed = state.following(key())
    assert followed is not None
    state.receive(Responded(fetch, response()), 0.0)
    state.receive(PartitionAnswered(key(), answer(code=errors.OffsetOutOfRange.code)), 0.0)
    assert state.receive(Signal.ANSWERS_TAKEN, 0.0) == [WakeAt(followed.not_before)]
    restart = state.receive(OffsetsFound(followed, 10, 20, 30), 0.0)
    assert restart == [Restart(key(), 20, True, 20, 30)]
    log.end_offset = log.start_offset = 20
    assert state.receive(Restarted(key()), 0.0) == [WakeAt(0.0)]
    assert sent(state.receive(Signal.DUE, 0.0))[1][0].fetch_offset == 20


def test_offsets_found_for_an_earlier_state_are_ignored() -> None:
    log = Log(10)
    state, _fetch, _asked = fetching(Facts(), log)
    followed = state.following(key())
    assert followed is not None
    log.end_offset = 11
    assert state.receive(OffsetsFound(followed, 10, 20, 30), 0.0) == []
    state.receive(Followed(following(), log), 0.0)
    assert state.receive(OffsetsFound(followed, 11, 20, 30), 0.0) == []


@pytest.mark.parametrize("log", [Log(failure="no space left"), Log(closed=True)])
def test_log_that_cannot_be_written_is_not_fetched(log: Log) -> None:
    state, fetch, asked = fetching(Facts(), log, Log())
    assert set(asked) == {1}
    state.receive(Forgotten(key(1)), 0.0)
    state.receive(Responded(fetch, response()), 0.0)
    assert state.receive(Signal.ANSWERS_TAKEN, 0.0) == []


def test_closed_fetcher_does_nothing() -> None:
    state, fetch, _asked = fetching(Facts(), Log())
    assert state.receive(Signal.CLOSED, 0.0) == []
    assert state.receive(Responded(fetch, response()), 0.0) == []
    assert state.receive(Followed(following(), Log()), 0.0) == []
    assert len(state) == 0


class Fetching(RuleBasedStateMachine):
    """A fetcher with what carries out its effects: it never stops to fetch what it can fetch."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.facts = Facts()
        self.state = self.facts.fetcher()
        self.logs: dict[int, Log] = {}
        self.fenced: set[int] = set()
        self.in_flight: int | None = None
        self.stale: list[int] = []
        self.wake_at: float | None = None
        self.patience: int | None = None
        self.is_frozen = False

    def give(self, event: Event) -> None:
        for effect in self.state.receive(event, self.now):
            match effect:
                case Send(fetch, content):
                    assert self.in_flight is None
                    assert not self.is_frozen
                    assert self.facts.is_leader_known
                    assert {index for _topic, index in content.partitions} <= self.logs.keys() - self.fenced
                    self.in_flight, self.wake_at = fetch, None
                case WakeAt(due):
                    assert due < inf
                    assert due <= self.now + 2 * LONGEST_BACKOFF
                    self.wake_at = due
                case StartAbandonTimer(fetch, _seconds):
                    self.patience = fetch
                case Act.RECONNECT:
                    assert self.in_flight is not None
                    self.stale.append(self.in_flight)
                    self.in_flight = None
                case Take(_key, Append(given)):
                    self.give(Appended(_key, given.high_watermark))
                case TakeAnswers() | Take() | LogFailure() | Restart() | Act.FLUSH_CHECKPOINTS:
                    pass

    @rule(index=st.integers(0, 3), epoch=st.integers(1, 3))
    def follow(self, index: int, epoch: int) -> None:
        self.logs[index] = Log(leader_epoch=1)
        self.fenced.discard(index)
        self.give(Followed(following(index, epoch), self.logs[index]))

    @rule(index=st.integers(0, 3))
    def forget(self, index: int) -> None:
        self.logs.pop(index, None)
        self.fenced.discard(index)
        self.give(Forgotten(key(index)))

    @precondition(lambda self: self.in_flight is not None)
    @rule(data=st.data())
    def respond(self, data: st.DataObject) -> None:
        fetch, self.in_flight = self.in_flight, None
        assert fetch is not None
        if data.draw(st.booleans()):
            return self.give(FetchFailed(fetch, errors.ConnectionFailed("closed")))
        self.give(Responded(fetch, response()))
        codes = [0, errors.FencedLeaderEpoch.code, errors.OffsetOutOfRange.code, errors.UnknownLeaderEpoch.code]
        for index in data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), unique=True)):
            before = self.state.following(key(index))
            self.give(PartitionAnswered(key(index), answer(index, data.draw(st.sampled_from(codes)))))
            if before is not None and before.not_before == inf:
                self.fenced.add(index)
        if self.logs and data.draw(st.booleans()):
            self.give(StepFailed(key(data.draw(st.sampled_from(sorted(self.logs.keys() - self.fenced) or [9])))))
        return self.give(Signal.ANSWERS_TAKEN)

    @precondition(lambda self: self.stale)
    @rule()
    def respond_late(self) -> None:
        self.give(Responded(self.stale.pop(), response()))

    @precondition(lambda self: self.patience is not None)
    @rule()
    def patience_over(self) -> None:
        fetch, self.patience = self.patience, None
        assert fetch is not None
        self.give(AbandonDue(fetch))

    @precondition(lambda self: self.wake_at is not None)
    @rule()
    def due(self) -> None:
        assert self.wake_at is not None
        self.now, self.wake_at = max(self.now, self.wake_at), None
        self.give(Signal.DUE)

    @rule()
    def freeze(self) -> None:
        self.is_frozen = True
        self.give(Signal.FROZEN)

    @rule()
    def thaw(self) -> None:
        self.is_frozen = False
        self.give(Signal.THAWED)

    @rule(is_known=st.booleans())
    def change_leader(self, is_known: bool) -> None:
        self.facts.is_leader_known = is_known
        self.give(Signal.LEADER_CHANGED)

    @invariant()
    def goes_on(self) -> None:
        if self.logs.keys() - self.fenced and self.facts.is_leader_known and not self.is_frozen:
            assert self.in_flight is not None or self.wake_at is not None


TestFetching = Fetching.TestCase
TestFetching.settings = settings(stateful_step_count=40, max_examples=100)
