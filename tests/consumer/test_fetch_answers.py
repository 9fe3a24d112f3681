"""What an answer to a Fetch means: pure decisions, with answers no honest broker would give."""

from __future__ import annotations

import pytest
from consumer_samples import T0, batch_of, marker
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.consumer.fetch_plan import FetchOutcome, Target, memory_of
from pyclient.consumer.subscription import Phase
from pyclient.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tests.consumer.fetch_desk import Desk


def test_data_is_taken_and_the_next_fetch_begins_behind_it() -> None:
    desk = Desk(T0)
    (state,) = desk.states
    outcome = desk.answer(state, records=batch_of(0, 3) + batch_of(3, 2)[:-1], last_stable_offset=90)
    assert outcome.records
    assert (state.fetch_offset, state.position, state.high_watermark, state.last_stable_offset) == (3, 0, 100, 90)
    assert [piece.count for piece in desk.buffer.take(10)] == [3]


def test_an_answer_that_a_seek_overtook_is_dropped() -> None:
    desk = Desk(T0)
    (state,) = desk.states
    target = Target(state, state.version, state.fetch_offset, False)
    state.start_at(50)
    outcome = FetchOutcome()
    desk.take(target, 0.0, outcome, error_code=errors.OffsetOutOfRange.code)
    desk.take(target, 0.0, outcome, records=batch_of(0, 1))
    assert (outcome.records or outcome.trouble, state.phase, state.position, len(desk.buffer)) == (
        False,
        Phase.FETCH,
        50,
        0,
    )


def test_the_same_partition_twice_in_one_answer_counts_once() -> None:
    desk = Desk(T0)
    (state,) = desk.states
    target = Target(state, state.version, 0, False)
    for _ in range(2):
        desk.take(target, 0.0, FetchOutcome(), records=batch_of(0, 3))
    assert sum(piece.count for piece in desk.buffer.take(10)) == 3


@pytest.mark.parametrize(
    "error",
    [
        errors.NotLeaderOrFollower,
        errors.UnknownTopicOrPartition,
        errors.UnknownTopicId,
        errors.FencedLeaderEpoch,
        errors.KafkaStorageError,
        errors.ReplicaNotAvailable,
        errors.OffsetNotAvailable,
        errors.LeaderNotAvailable,
    ],
)
def test_a_transient_error_asks_for_metadata_waits_and_never_moves_the_position(
    error: type[errors.BrokerError],
) -> None:
    desk = Desk(T0, position=7)
    (state,) = desk.states
    outcome = desk.answer(state, now=1.0, error_code=error.code)
    assert outcome.refresh_metadata
    assert outcome.errors == []
    assert (state.phase, state.position, state.retry_at) == (Phase.FETCH, 7, 1.1)


@pytest.mark.parametrize("error", [errors.UnknownLeaderEpoch, errors.UnknownServerError])
def test_a_broker_that_lags_or_failed_is_asked_again(error: type[errors.BrokerError]) -> None:
    desk = Desk(T0, position=7)
    outcome = desk.answer(desk.states[0], error_code=error.code)
    assert (outcome.refresh_metadata, outcome.errors, desk.states[0].position) == (False, [], 7)


@pytest.mark.parametrize("code", [errors.TopicAuthorizationFailed.code, 9999])
def test_other_errors_are_for_the_user(code: int) -> None:
    desk = Desk(T0, position=7)
    outcome = desk.answer(desk.states[0], error_code=code)
    assert [error.code for error in outcome.errors] == [code]
    assert desk.states[0].position == 7


def test_an_offset_out_of_range_is_left_to_the_policy() -> None:
    for policy, phase in (("earliest", Phase.RESET), ("latest", Phase.RESET), ("none", Phase.STOPPED)):
        desk = Desk(T0, position=7, auto_offset_reset=policy)
        desk.answer(desk.states[0], error_code=errors.OffsetOutOfRange.code)
        assert desk.states[0].phase is phase
        assert isinstance(desk.states[0].error, errors.OffsetOutOfRange) == (policy == "none")


def test_out_of_range_waits_until_the_user_has_had_what_came_before() -> None:
    desk = Desk(T0)
    (state,) = desk.states
    desk.answer(state, records=batch_of(0, 2))
    desk.answer(state, now=1.0, error_code=errors.OffsetOutOfRange.code)
    assert (state.phase, state.retry_at) == (Phase.FETCH, 1.1)
    desk.buffer.take(10)
    desk.answer(state, now=2.0, error_code=errors.OffsetOutOfRange.code)
    assert state.phase is Phase.RESET


def test_a_follower_that_lags_sends_the_reader_back_to_the_leader_without_a_reset() -> None:
    desk = Desk(T0, position=7)
    (state,) = desk.states
    desk.answer(state, preferred_read_replica=3)
    desk.answer(state, from_replica=True, error_code=errors.OffsetOutOfRange.code)
    assert (state.phase, state.position, state.preferred_replica) == (Phase.FETCH, 7, -1)


def test_a_corrupt_log_at_the_broker_stops_the_partition_with_its_place() -> None:
    desk = Desk(T0, position=7)
    desk.answer(desk.states[0], error_code=errors.CorruptMessage.code)
    error = desk.subscription.first_error()
    assert isinstance(error, errors.CorruptBatch)
    assert (error.offset, error.next_offset) == (7, 8)


def test_only_the_beginning_of_a_batch_is_asked_for_again_after_a_pause() -> None:
    desk = Desk(T0)
    desk.answer(desk.states[0], now=1.0, records=batch_of(0, 9)[:100])
    assert (desk.states[0].fetch_offset, desk.states[0].retry_at, len(desk.buffer)) == (0, 1.1, 0)


def test_nonsense_is_not_fetched_again_and_again() -> None:
    desk = Desk(T0)
    desk.answer(desk.states[0], records=batch_of(0, 2) + b"\xff" * 80)
    desk.buffer.take(1)
    assert desk.asked(now=1e9) == []
    desk.states[0].start_at(5)
    assert desk.asked() == [T0]


def test_aborted_records_are_left_out_only_in_read_committed() -> None:
    records = batch_of(0, 2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True) + marker(2, 7)
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    for isolation, count in (("read_committed", 0), ("read_uncommitted", 2)):
        desk = Desk(T0, isolation_level=isolation)
        desk.answer(desk.states[0], records=records, aborted_transactions=aborted)
        assert sum(piece.count for piece in desk.buffer.take(10)) == count
        assert desk.states[0].position == 3


def test_impossible_watermarks_do_no_harm() -> None:
    desk = Desk(T0, position=7)
    desk.answer(desk.states[0], high_watermark=-5, last_stable_offset=2**63 - 1, log_start_offset=-9)
    assert desk.states[0].lag() is None
    desk.answer(desk.states[0], high_watermark=3)
    assert desk.states[0].lag() == 0


@given(st.binary(max_size=150), st.integers(-2, 130), st.integers(-5, 5))
def test_no_answer_moves_a_position(records: bytes, code: int, replica: int) -> None:
    desk = Desk(T0, position=7, auto_offset_reset="none")
    desk.answer(desk.states[0], records=records, error_code=code, preferred_read_replica=replica)
    assert desk.states[0].position == 7


def test_an_answer_keeps_all_of_its_frame_in_memory() -> None:
    frame = memoryview(bytearray(1_000))
    pieces = (frame[:100], None, frame[9:])
    parts = [PartitionData(partition_index=0, error_code=0, high_watermark=9, records=piece) for piece in pieces]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])
    assert memory_of(response) == (1_091, 1_091)
    parts[1:] = []
    assert memory_of(response) == (100, 1_000)
    assert memory_of(FetchResponse(responses=[])) == (0, 0)
