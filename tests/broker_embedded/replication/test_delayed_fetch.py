"""The decisions about a Fetch that waits for more data."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyclient.broker_embedded.replication.delayed_fetch import (
    OFFSETS_WAIT,
    Act,
    Answer,
    Answered,
    Attempt,
    Began,
    DelayedFetch,
    Effect,
    Event,
    Fail,
    Failed,
    Grown,
    Signal,
    WakeIn,
)

RESPONSE = object()


@dataclass
class Data:
    """The data that there is for a fetch."""

    is_enough: bool = False
    is_behind: bool = False
    checked: list[set[str]] = field(default_factory=list)

    def may_be_enough(self, grown: Collection[str]) -> bool:
        self.checked.append(set(grown))
        return self.is_enough


def begun(data: Data) -> DelayedFetch:
    """Return a fetch that waits since 0, for half a second at most."""
    fetch = DelayedFetch(data)
    assert fetch.receive(Began(0.5), 0.0) == [WakeIn(OFFSETS_WAIT if data.is_behind else 0.5)]
    return fetch


def grow(fetch: DelayedFetch, log: str, now: float) -> list[Effect]:
    """Let a log grow, and let the next iteration of the loop come."""
    assert fetch.receive(Grown(log), now) == [Act.WAKE_SOON]
    return fetch.receive(Signal.WOKEN, now)


def test_appends_of_one_iteration_cost_one_check() -> None:
    data = Data(is_enough=True)
    fetch = begun(data)
    assert fetch.receive(Grown("a"), 0.1) == [Act.WAKE_SOON]
    assert fetch.receive(Grown("a"), 0.1) == []
    assert fetch.receive(Grown("b"), 0.1) == []
    assert fetch.receive(Signal.WOKEN, 0.1) == [Attempt(last=False)]
    assert data.checked == [{"a", "b"}]
    assert fetch.receive(Answered(RESPONSE), 0.1) == [Answer(RESPONSE)]


def test_check_without_enough_data_leads_to_no_attempt() -> None:
    fetch = begun(Data())
    assert grow(fetch, "a", 0.1) == []
    assert grow(fetch, "a", 0.2) == []


def test_last_attempt_answers_when_the_time_is_over() -> None:
    data = Data()
    assert begun(data).receive(Signal.ANSWER_NOW, 0.5) == [Attempt(last=True)]
    assert data.checked == []


def test_offsets_alone_are_sent_to_a_follower_after_a_short_wait() -> None:
    data = Data()
    fetch = begun(data)
    data.is_behind = True
    assert grow(fetch, "a", 0.1) == [WakeIn(OFFSETS_WAIT)]
    assert grow(fetch, "a", 0.101) == []


def test_follower_that_is_behind_waits_a_moment_only() -> None:
    begun(Data(is_behind=True))


def test_short_wait_does_not_go_beyond_the_time_limit() -> None:
    data = Data()
    fetch = begun(data)
    data.is_behind = True
    [wake] = grow(fetch, "a", 0.499)
    assert isinstance(wake, WakeIn)
    assert wake.seconds == pytest.approx(0.001)


def test_growth_during_an_attempt_causes_the_next() -> None:
    data = Data(is_enough=True)
    fetch = begun(data)
    assert grow(fetch, "a", 0.1) == [Attempt(last=False)]
    assert grow(fetch, "b", 0.1) == []
    assert fetch.receive(Signal.TOO_LITTLE, 0.2) == [Attempt(last=False)]
    assert data.checked == [{"a"}, {"b"}]
    assert fetch.receive(Signal.ANSWER_NOW, 0.2) == []
    assert fetch.receive(Signal.TOO_LITTLE, 0.3) == [Attempt(last=True)]


def test_opened_log_is_attempted_and_watched() -> None:
    fetch = begun(Data())
    assert fetch.receive(Signal.OPENED, 0.1) == [Attempt(last=False)]
    assert fetch.receive(Signal.TOO_LITTLE, 0.1) == [Act.WATCH_LOGS]


def test_failure_of_an_attempt_is_the_response() -> None:
    error = KeyError("a bug")
    fetch = begun(Data())
    fetch.receive(Signal.ANSWER_NOW, 0.5)
    assert fetch.receive(Failed(error), 0.5) == [Fail(error)]
    assert fetch.receive(Signal.ANSWER_NOW, 0.5) == []


def test_abandoned_fetch_has_no_response() -> None:
    fetch = begun(Data())
    fetch.receive(Signal.ANSWER_NOW, 0.5)
    assert fetch.receive(Signal.ABANDONED, 0.5) == [Act.RELEASE]
    assert fetch.receive(Answered(RESPONSE), 0.5) == []


class Waiting(RuleBasedStateMachine):
    """A fetch with what carries out its effects: no data is forgotten, and it is answered once, in time."""

    @initialize(wait=st.floats(0.001, 1.0), is_behind=st.booleans())
    def begin(self, wait: float, is_behind: bool) -> None:
        self.now = 0.0
        self.data = Data(is_behind=is_behind)
        self.fetch = DelayedFetch(self.data)
        self.wake_at: float | None = None
        self.is_woken = self.is_over = self.must_answer = False
        self.attempt: Attempt | None = None
        self.answers = 0
        self.unseen: set[str] = set()
        """The logs that have grown since the last check or attempt."""
        self.deadline = wait
        self.give(Began(wait))

    def give(self, event: Event) -> None:
        effects = self.fetch.receive(event, self.now)
        for grown in self.data.checked:
            assert grown == self.unseen
            assert not self.must_answer
            self.unseen = set()
        self.data.checked.clear()
        for effect in effects:
            assert not self.is_over
            self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case WakeIn(seconds):
                assert seconds >= 0
                self.wake_at = self.now + seconds
                assert self.wake_at <= self.deadline + 1e-9
            case Act.WAKE_SOON:
                self.is_woken = True
            case Attempt(last):
                assert self.attempt is None
                assert last == self.must_answer
                self.attempt = effect
                self.unseen.clear()
            case Answer() | Fail() | Act.RELEASE:
                self.is_over, self.wake_at = True, None
                self.answers += effect is not Act.RELEASE
            case Act.WATCH_LOGS:
                pass

    def is_open(self) -> bool:
        return not self.is_over

    @rule(is_enough=st.booleans(), is_behind=st.booleans())
    def change(self, is_enough: bool, is_behind: bool) -> None:
        self.data.is_enough, self.data.is_behind = is_enough, is_behind

    @precondition(is_open)
    @rule(log=st.sampled_from("abc"))
    def grow(self, log: str) -> None:
        self.unseen.add(log)
        self.give(Grown(log))

    @precondition(lambda self: self.is_woken)
    @rule()
    def woken(self) -> None:
        self.is_woken = False
        self.give(Signal.WOKEN)

    @precondition(lambda self: self.attempt is not None)
    @rule(ends=st.sampled_from(["answered", "too little", "failed"]))
    def attempted(self, ends: str) -> None:
        assert self.attempt is not None
        was_last, self.attempt = self.attempt.last, None
        if ends == "failed":
            self.give(Failed(KeyError("a bug")))
        elif ends == "answered" or was_last:
            self.give(Answered(RESPONSE))
        else:
            self.give(Signal.TOO_LITTLE)

    @precondition(is_open)
    @rule()
    def opened(self) -> None:
        self.give(Signal.OPENED)

    @precondition(lambda self: self.wake_at is not None)
    @rule()
    def time_over(self) -> None:
        assert self.wake_at is not None
        self.now = max(self.now, self.wake_at)
        self.wake_at, self.must_answer = None, True
        self.give(Signal.ANSWER_NOW)

    @precondition(lambda self: self.wake_at is not None)
    @rule(share=st.floats(0.0, 0.9))
    def pass_time(self, share: float) -> None:
        assert self.wake_at is not None
        self.now += (self.wake_at - self.now) * share

    @rule()
    def abandon(self) -> None:
        self.give(Signal.ABANDONED)
        self.attempt = None
        assert self.is_over

    @invariant()
    def answered_once(self) -> None:
        assert self.answers <= self.is_over

    @invariant()
    def data_is_not_forgotten(self) -> None:
        if self.unseen and not self.is_over:
            assert self.is_woken or self.attempt is not None

    @invariant()
    def ends_some_time(self) -> None:
        assert self.is_over or self.wake_at is not None or (self.must_answer and self.attempt is not None)


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(stateful_step_count=30, max_examples=100)
