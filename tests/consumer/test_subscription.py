"""Subscription and positions: exclusions, seeks, and what may never move a position."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pyclient.consumer.subscription import AssignedPartition, Mode, Phase, SubscriptionState, split_by_topic
from pyclient.errors import ConfigError, LogTruncation, NotAssigned
from pyclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.consumer_samples import T0, T1, assigned

ID_1, ID_2, NO_ID = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=0)


def started_at_9(
    known_epoch: int, *, leader_epoch: int, topic_id: uuid.UUID = ID_1
) -> tuple[SubscriptionState, AssignedPartition]:
    """Return a partition of the leader epoch `known_epoch`, started at offset 9 of another epoch."""
    subscription, (state,) = assigned(T0)
    subscription.note_leader(T0, known_epoch, topic_id)
    state.start_at(9, leader_epoch=leader_epoch)
    return subscription, state


def test_subscribing_and_assigning_exclude_each_other() -> None:
    subscription = SubscriptionState(looks_up_committed=True)
    subscription.subscribe(["a", "b", "a"])
    assert subscription.topics == ("a", "b")
    with pytest.raises(ConfigError, match="unsubscribe"):
        subscription.assign([T0])
    subscription.unsubscribe()
    subscription.assign([T0])
    with pytest.raises(ConfigError, match="unsubscribe"):
        subscription.subscribe(["a"])
    assert subscription.mode is Mode.MANUAL


def test_unsubscribed_topic_is_not_read_any_more() -> None:
    subscription = SubscriptionState(looks_up_committed=True)
    subscription.subscribe(["t", "u"])
    subscription.set_assignment([T0, TopicPartition("u", 0)])
    for state in subscription:
        state.start_at(5, leader_epoch=2)
    other, state = subscription.require(TopicPartition("u", 0)), subscription.require(T0)
    version = state.version
    subscription.subscribe(["u"])
    assert (state.phase, other.phase) == (Phase.STOPPED, Phase.FETCH)
    assert not subscription.holds(state, version)  # fetched data is invalid
    assert subscription.positions()[T0] == OffsetAndMetadata(5, "", 2)  # and can still be committed
    assert subscription.first_error() is None
    subscription.subscribe(["t"])
    assert (state.phase, state.position) == (Phase.FETCH, 5)


def test_pattern_matches_whole_names_and_reports_changes() -> None:
    subscription = SubscriptionState(looks_up_committed=True)
    subscription.subscribe_pattern(re.compile("orders-.*"))
    assert subscription.match(["my-orders-1", "orders-1"])
    assert subscription.topics == ("orders-1",)
    assert not subscription.match(["orders-1", "x"])
    assert subscription.match(["orders-1", "orders-0"])
    assert subscription.topics == ("orders-0", "orders-1")


def test_new_partition_starts_at_committed_offset_or_policy() -> None:
    for with_group, phase in ((True, Phase.COMMITTED), (False, Phase.RESET)):
        subscription = SubscriptionState(looks_up_committed=with_group)
        subscription.assign([T0])
        assert [state.phase for state in subscription] == [phase]
        assert subscription.positions() == {}


def test_kept_partitions_keep_their_position_and_others_restart() -> None:
    subscription, (first, _) = assigned(T0, T1, position=5)
    subscription.pause([T0])
    subscription.set_assignment([T0])
    assert subscription.require(T0) is first
    assert first.paused
    subscription.set_assignment([T0, T1])
    assert subscription.require(T1).position == -1


def test_unassigned_partition_error_names_the_assigned_ones() -> None:
    subscription, _ = assigned(T0)
    with pytest.raises(NotAssigned, match=r"t-1 is not assigned to this consumer, which has t-0"):
        subscription.require(T1)
    with pytest.raises(NotAssigned):
        subscription.pause([T0, T1])
    assert not subscription.require(T0).paused


def test_response_is_valid_only_for_its_version() -> None:
    subscription, (state,) = assigned(T0)
    asked_at = state.version
    assert subscription.holds(state, asked_at)
    state.start_at(7)
    assert not subscription.holds(state, asked_at)
    asked_at = state.version
    subscription.set_assignment([])
    assert not subscription.holds(state, asked_at)


def test_positions_are_offsets_to_commit() -> None:
    subscription, (first, second) = assigned(T0, T1)
    first.start_at(4, leader_epoch=2)
    second.reset(None)
    assert subscription.positions() == {T0: OffsetAndMetadata(4, "", 2)}


def test_stopped_partition_keeps_its_error_until_a_seek() -> None:
    subscription, (first, _) = assigned(T0, T1, position=3)
    error = LogTruncation("cut")
    first.stop(error)
    assert subscription.first_error() is error
    assert first.position == 3
    first.start_at(2)
    assert subscription.first_error() is None
    assert first.phase is Phase.FETCH


def test_new_leader_epoch_validates_a_position_with_an_epoch() -> None:
    subscription, (state,) = assigned(T0)
    subscription.note_leader(T0, 3, ID_1)
    assert state.phase is Phase.FETCH
    subscription.note_leader(T0, 4, ID_1)
    assert state.phase is Phase.FETCH  # nothing was read yet: no epoch to compare
    state.start_at(9, leader_epoch=4)
    subscription.note_leader(T0, 4, ID_1)
    assert state.phase is Phase.FETCH
    subscription.note_leader(T0, 5, ID_1)
    assert (state.phase, state.position, state.fetch_offset) == (Phase.VALIDATE, 9, 9)
    state.validated()
    subscription.note_leader(T0, 3, ID_1)
    assert (state.phase, state.leader_epoch) == (Phase.FETCH, 5)


def test_position_with_an_epoch_is_validated_once_the_leader_is_known() -> None:
    subscription, (state,) = assigned(T0)
    state.start_at(9, leader_epoch=4)  # a seek before there is metadata
    assert state.phase is Phase.FETCH
    subscription.note_leader(T0, 5, ID_1)
    assert state.phase is Phase.VALIDATE


def test_validation_restarts_at_the_next_leader() -> None:
    subscription, state = started_at_9(5, leader_epoch=4)
    asked_at = state.version
    subscription.note_leader(T0, 6, ID_1)
    assert state.phase is Phase.VALIDATE
    assert not subscription.holds(state, asked_at)


def test_offset_committed_under_an_older_leader_is_validated() -> None:
    _, state = started_at_9(5, leader_epoch=4)
    assert state.phase is Phase.VALIDATE
    state.start_at(9, leader_epoch=5)
    assert state.phase is Phase.FETCH


def test_position_newer_than_the_metadata_waits_for_its_epoch() -> None:
    subscription, state = started_at_9(3, leader_epoch=5)
    assert (state.phase, state.position) == (Phase.OUTDATED, 9)
    asked_at = state.version
    subscription.note_leader(T0, 3, ID_1)  # of a broker that is behind, too
    subscription.note_leader(T0, 4, ID_1)
    assert state.phase is Phase.OUTDATED
    assert subscription.holds(state, asked_at)  # the wait goes on: its time does not begin again
    subscription.note_leader(T0, 5, ID_1)
    assert (state.phase, state.position, state.position_epoch) == (Phase.FETCH, 9, 5)


def test_position_newer_than_the_metadata_is_validated_by_a_later_leader() -> None:
    subscription, state = started_at_9(3, leader_epoch=5)
    subscription.note_leader(T0, 6, ID_1)
    assert (state.phase, state.position, state.position_epoch) == (Phase.VALIDATE, 9, 5)


def test_first_metadata_may_be_older_than_the_position() -> None:
    subscription, (state,) = assigned(T0)
    state.start_at(9, leader_epoch=5)  # committed offsets may arrive before there is metadata
    assert state.phase is Phase.FETCH  # but no leader is known
    subscription.note_leader(T0, 4, ID_1)
    assert state.phase is Phase.OUTDATED


def test_brokers_without_leader_epochs_delay_no_position() -> None:
    _, state = started_at_9(-1, leader_epoch=5, topic_id=NO_ID)
    assert state.phase is Phase.FETCH


def test_unknown_epoch_of_a_position_is_dropped() -> None:
    subscription, state = started_at_9(3, leader_epoch=50)
    state.forget_epoch()
    assert (state.phase, state.position) == (Phase.FETCH, 9)
    assert subscription.positions() == {T0: OffsetAndMetadata(9)}  # it is not committed again


def test_topic_recreated_with_lower_epochs_applies_the_policy() -> None:
    subscription, state = started_at_9(7, leader_epoch=8)
    subscription.note_leader(T0, 0, ID_2)
    assert (state.phase, state.position, state.reset_to) == (Phase.RESET, -1, None)


def refused() -> tuple[SubscriptionState, AssignedPartition]:
    """Return a position without an epoch that the leader of epoch 3 refuses."""
    subscription, state = started_at_9(3, leader_epoch=-1)
    state.out_of_range(resets=True)
    return subscription, state


def test_refused_position_without_epoch_is_kept_for_a_newer_leader() -> None:
    subscription, state = refused()
    asked_at = state.version
    subscription.note_leader(T0, 3, ID_1)
    assert (state.phase, state.position) == (Phase.REFUSED, 9)
    assert subscription.holds(state, asked_at)
    subscription.note_leader(T0, 4, ID_1)
    assert (state.phase, state.position) == (Phase.FETCH, 9)


def test_confirmed_refusal_resets_or_stops() -> None:
    _, state = refused()
    state.confirm_refusal(resets=True)
    assert (state.phase, state.position, state.reset_to) == (Phase.RESET, -1, None)
    _, state = refused()
    state.confirm_refusal(resets=False)
    assert (state.phase, state.position) == (Phase.STOPPED, 9)
    assert "t-0: the log does not have offset 9" in str(state.error)


@pytest.mark.parametrize(("known_epoch", "leader_epoch"), [(3, 3), (-1, -1)])
def test_refusal_needs_no_confirmation_with_epochs_or_where_there_are_none(known_epoch: int, leader_epoch: int) -> None:
    _, state = started_at_9(known_epoch, leader_epoch=leader_epoch)
    state.out_of_range(resets=True)
    assert (state.phase, state.position) == (Phase.RESET, -1)


def test_response_of_the_old_leader_is_dropped_where_no_epoch_validates_it() -> None:
    subscription, state = started_at_9(3, leader_epoch=-1)
    asked_at = state.version
    subscription.note_leader(T0, 4, ID_1)
    assert not subscription.holds(state, asked_at)
    assert (state.phase, state.position) == (Phase.FETCH, 9)


def test_offsets_to_commit_get_the_epochs_that_are_known() -> None:
    subscription, (first, second) = assigned(T0, T1)
    first.start_at(4, leader_epoch=2)
    second.start_at(4)
    given = {T0: OffsetAndMetadata(4, "mine"), T1: OffsetAndMetadata(4), TopicPartition("u", 0): OffsetAndMetadata(4)}
    assert subscription.with_epochs(given) == {**given, T0: OffsetAndMetadata(4, "mine", 2)}
    other = {T0: OffsetAndMetadata(4, "", 1), T1: OffsetAndMetadata(3)}
    assert subscription.with_epochs(other) == other  # the user's own epoch, and an offset that was not read
    assert subscription.with_epochs({T0: OffsetAndMetadata(3)}) == {T0: OffsetAndMetadata(3)}


def test_offsets_within_a_poll_have_its_epoch_if_it_is_one() -> None:
    _, (state,) = assigned(T0)
    state.start_at(4, leader_epoch=2)
    state.polled_in, state.polled_from, state.polled_from_epoch = 1, 4, 2
    state.position, state.position_epoch = 9, 2
    assert [state.epoch_before(offset) for offset in (3, 4, 8, 9, 10)] == [-1, 2, 2, 2, -1]
    state.position_epoch = 3  # a record between 4 and 9 is the first of this epoch
    assert [state.epoch_before(offset) for offset in (3, 4, 8, 9, 10)] == [-1, -1, -1, 3, -1]
    state.start_at(8, leader_epoch=3)  # a seek: the last poll says nothing any more
    assert [state.epoch_before(offset) for offset in (6, 8)] == [-1, 3]


def test_recreated_topic_applies_the_policy() -> None:
    subscription, (state,) = assigned(T0, position=100)
    subscription.note_leader(T0, 0, ID_1)
    subscription.note_leader(T0, 0, NO_ID)
    assert state.phase is Phase.FETCH
    subscription.note_leader(T0, 0, ID_2)
    assert (state.phase, state.position, state.reset_to) == (Phase.RESET, -1, None)


def test_lag_is_known_once_both_ends_are() -> None:
    _, (state,) = assigned(T0, position=3)
    assert state.lag() is None
    state.high_watermark, state.last_stable_offset = 10, 8
    assert (state.lag(), state.lag(read_committed=True)) == (7, 5)
    state.high_watermark = 2
    assert state.lag() == 0


def test_partitions_are_grouped_for_requests() -> None:
    assert split_by_topic([T0, TopicPartition("u", 3), T1]) == {"t": [0, 1], "u": [3]}


class Moves(RuleBasedStateMachine):
    """Any order of seeks, resets, responses and new leaders: positions move only by a seek, a response or a poll."""

    def __init__(self) -> None:
        super().__init__()
        self.subscription, (self.state,) = assigned(T0)
        self.subscription.note_leader(T0, 0, ID_1)
        self.position: int | None = 0
        self.asked_at = self.state.version

    @rule(offset=st.integers(0, 50), epoch=st.integers(-1, 3))
    def seek(self, offset: int, epoch: int) -> None:
        self.state.start_at(offset, epoch)
        self.position = offset

    @rule(timestamp=st.sampled_from([None, -1, -2]))
    def seek_to_an_end(self, timestamp: int | None) -> None:
        self.state.reset(timestamp)
        self.position = None

    @rule()
    def ask(self) -> None:
        self.asked_at = self.state.version

    @rule(offset=st.integers(0, 50))
    def reset_is_answered(self, offset: int) -> None:
        if self.state.phase is Phase.RESET and self.subscription.holds(self.state, self.asked_at):
            self.state.start_at(offset)
            self.position = offset

    @rule(epoch=st.integers(0, 9))
    def leader_changes(self, epoch: int) -> None:
        self.subscription.note_leader(T0, epoch, ID_1)

    @rule()
    def validation_is_answered(self) -> None:
        if self.state.phase is Phase.VALIDATE and self.subscription.holds(self.state, self.asked_at):
            self.state.validated()

    @rule()
    def waiting_for_metadata_is_over(self) -> None:
        if self.state.phase is Phase.OUTDATED:
            self.state.forget_epoch()

    @rule()
    def leader_refuses(self) -> None:
        if self.state.phase is Phase.FETCH:
            has_epoch = self.state.position_epoch >= 0
            self.state.out_of_range(resets=True)
            self.position = None if has_epoch else self.position

    @rule()
    def another_broker_confirms(self) -> None:
        if self.state.phase is Phase.REFUSED:
            self.state.confirm_refusal(resets=True)
            self.position = None

    @rule()
    def pause(self) -> None:
        self.subscription.pause([T0])

    @rule()
    def another_partition_comes_and_goes(self) -> None:
        self.subscription.set_assignment([T0, T1] if len(self.subscription) == 1 else [T0])

    @invariant()
    def the_position_is_the_last_one_set(self) -> None:
        assert self.state.position == (-1 if self.position is None else self.position)
        assert self.state.fetch_offset == self.state.position
        known = self.state.phase in (Phase.FETCH, Phase.VALIDATE, Phase.OUTDATED, Phase.REFUSED)
        assert known == (self.position is not None)
        assert (T0 in self.subscription.positions()) == known

    @invariant()
    def older_leaders_are_not_fetched_from(self) -> None:
        is_newer = self.state.position_epoch > self.state.leader_epoch
        assert is_newer == (self.state.phase is Phase.OUTDATED)
        assert self.state.phase is not Phase.VALIDATE or self.state.position_epoch < self.state.leader_epoch

    @invariant()
    def known_epochs_need_no_other_broker(self) -> None:
        assert self.state.phase is not Phase.REFUSED or self.state.position_epoch < 0


TestMoves = Moves.TestCase
