"""Handling of Fetch responses, including invalid ones; no I/O."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.consumer.completed_fetch import Target
from pyclient.consumer.fetch_buffer import FetchOutcome, memory_of
from pyclient.consumer.subscription import Phase
from pyclient.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from pyclient.records import stamp_offsets
from tests.consumer.consumer_samples import COMMIT, T0, batch_of, marker
from tests.consumer.fetch_fixture import FetchFixture


def test_data_is_buffered_and_the_next_fetch_starts_after_it() -> None:
    fixture = FetchFixture(T0)
    (state,) = fixture.states
    outcome = fixture.answer(state, records=batch_of(0, 3) + batch_of(3, 2)[:-1], last_stable_offset=90)
    assert outcome.records
    assert (state.fetch_offset, state.position, state.high_watermark, state.last_stable_offset) == (3, 0, 100, 90)
    assert [piece.count for piece in fixture.buffer.take(10)] == [3]


def test_response_is_dropped_after_a_seek() -> None:
    fixture = FetchFixture(T0)
    (state,) = fixture.states
    target = Target(state, state.version, state.fetch_offset, False)
    state.start_at(50)
    outcome = FetchOutcome()
    fixture.take(target, 0.0, outcome, error_code=errors.OffsetOutOfRange.code)
    fixture.take(target, 0.0, outcome, records=batch_of(0, 1))
    assert (outcome.records or outcome.trouble, state.phase, state.position, len(fixture.buffer)) == (
        False,
        Phase.FETCH,
        50,
        0,
    )


def test_duplicate_partition_in_a_response_counts_once() -> None:
    fixture = FetchFixture(T0)
    (state,) = fixture.states
    target = Target(state, state.version, 0, False)
    for _ in range(2):
        fixture.take(target, 0.0, FetchOutcome(), records=batch_of(0, 3))
    assert sum(piece.count for piece in fixture.buffer.take(10)) == 3


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
def test_transient_error_refreshes_metadata_and_keeps_the_position(
    error: type[errors.BrokerError],
) -> None:
    fixture = FetchFixture(T0, position=7)
    (state,) = fixture.states
    outcome = fixture.answer(state, now=1.0, error_code=error.code)
    assert outcome.refresh_metadata
    assert outcome.errors == []
    assert (state.phase, state.position, state.retry_at) == (Phase.FETCH, 7, 1.1)


@pytest.mark.parametrize("error", [errors.UnknownLeaderEpoch, errors.UnknownServerError])
def test_lagging_or_failed_broker_is_retried(error: type[errors.BrokerError]) -> None:
    fixture = FetchFixture(T0, position=7)
    outcome = fixture.answer(fixture.states[0], error_code=error.code)
    assert (outcome.refresh_metadata, outcome.errors, fixture.states[0].position) == (False, [], 7)


@pytest.mark.parametrize("code", [errors.TopicAuthorizationFailed.code, 9999])
def test_other_errors_are_reported_to_the_user(code: int) -> None:
    fixture = FetchFixture(T0, position=7)
    outcome = fixture.answer(fixture.states[0], error_code=code)
    assert [error.code for error in outcome.errors] == [code]
    assert fixture.states[0].position == 7


def test_offset_out_of_range_applies_the_policy() -> None:
    for policy, phase in (("earliest", Phase.RESET), ("latest", Phase.RESET), ("none", Phase.STOPPED)):
        fixture = FetchFixture(T0, position=7, auto_offset_reset=policy)
        fixture.answer(fixture.states[0], error_code=errors.OffsetOutOfRange.code)
        assert fixture.states[0].phase is phase
        assert isinstance(fixture.states[0].error, errors.OffsetOutOfRange) == (policy == "none")


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_offset_without_epoch_out_of_range_awaits_another_broker(policy: str) -> None:
    fixture = FetchFixture(T0, position=7, auto_offset_reset=policy)
    (state,) = fixture.states
    state.leader_epoch = 3
    fixture.answer(state, error_code=errors.OffsetOutOfRange.code)
    assert (state.phase, state.position, state.error) == (Phase.REFUSED, 7, None)
    assert fixture.requested(now=10.0) == []


def test_offset_of_a_known_epoch_out_of_range_applies_the_policy_at_once() -> None:
    fixture = FetchFixture(T0, auto_offset_reset="earliest")
    (state,) = fixture.states
    state.leader_epoch = 3
    state.start_at(7, leader_epoch=3)
    fixture.answer(state, error_code=errors.OffsetOutOfRange.code)
    assert state.phase is Phase.RESET


def test_offset_out_of_range_waits_until_earlier_data_is_polled() -> None:
    fixture = FetchFixture(T0)
    (state,) = fixture.states
    fixture.answer(state, records=batch_of(0, 2))
    fixture.answer(state, now=1.0, error_code=errors.OffsetOutOfRange.code)
    assert (state.phase, state.retry_at) == (Phase.FETCH, 1.1)
    fixture.buffer.take(10)
    fixture.answer(state, now=2.0, error_code=errors.OffsetOutOfRange.code)
    assert state.phase is Phase.RESET


def test_lagging_follower_falls_back_to_the_leader_without_a_reset() -> None:
    fixture = FetchFixture(T0, position=7)
    (state,) = fixture.states
    fixture.answer(state, preferred_read_replica=3)
    fixture.answer(state, from_replica=True, error_code=errors.OffsetOutOfRange.code)
    assert (state.phase, state.position, state.preferred_replica) == (Phase.FETCH, 7, -1)


def test_corrupt_broker_log_is_an_error_until_a_seek() -> None:
    fixture = FetchFixture(T0, position=7)
    (state,) = fixture.states
    outcome = fixture.answer(state, error_code=errors.CorruptMessage.code)
    assert outcome.records
    assert fixture.buffer.has_records()
    for _ in range(2):
        with pytest.raises(errors.CorruptBatch, match="t-0: the broker's own log is corrupt at offset 7") as raised:
            fixture.buffer.take(10)
        assert (raised.value.offset, raised.value.next_offset) == (7, 8)
    assert fixture.requested(now=1e9) == []
    state.start_at(8)
    assert fixture.buffer.take(10) == []
    assert fixture.requested() == [T0]


def test_records_before_corruption_of_broker_log_come_first() -> None:
    fixture = FetchFixture(T0)
    (state,) = fixture.states
    fixture.answer(state, records=batch_of(0, 3))
    fixture.answer(state, error_code=errors.CorruptMessage.code)
    assert [piece.count for piece in fixture.buffer.take(10)] == [3]
    assert state.position == 3
    with pytest.raises(errors.CorruptBatch) as raised:
        fixture.buffer.take(10)
    assert (raised.value.offset, raised.value.next_offset) == (3, 4)


def test_truncated_batch_is_fetched_again_after_a_pause() -> None:
    fixture = FetchFixture(T0)
    fixture.answer(fixture.states[0], now=1.0, records=batch_of(0, 9)[:100])
    assert (fixture.states[0].fetch_offset, fixture.states[0].retry_at, len(fixture.buffer)) == (0, 1.1, 0)


def test_garbage_is_not_fetched_repeatedly() -> None:
    fixture = FetchFixture(T0)
    fixture.answer(fixture.states[0], records=batch_of(0, 2) + b"\xff" * 80)
    fixture.buffer.take(1)
    assert fixture.requested(now=1e9) == []
    fixture.states[0].start_at(5)
    assert fixture.requested() == [T0]


def test_aborted_records_are_left_out_only_in_read_committed() -> None:
    records = batch_of(0, 2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True) + marker(2, 7)
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    for isolation, count in (("read_committed", 0), ("read_uncommitted", 2)):
        fixture = FetchFixture(T0, isolation_level=isolation)
        fixture.answer(fixture.states[0], records=records, aborted_transactions=aborted)
        assert sum(piece.count for piece in fixture.buffer.take(10)) == count
        assert fixture.states[0].position == 3


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_position_after_marker_has_epoch_of_marker(isolation: str) -> None:
    """With the epoch of the last record the log would seem to be truncated before the marker (KIP-320)."""
    records = batch_of(0, 2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    end = bytearray(marker(2, 7, COMMIT))
    stamp_offsets(end, 0, 2, 5)
    fixture = FetchFixture(T0, isolation_level=isolation)
    fixture.answer(fixture.states[0], records=records + bytes(end))
    assert sum(piece.count for piece in fixture.buffer.take(1)) == 1
    assert (fixture.states[0].position, fixture.states[0].position_epoch) == (1, 0)
    fixture.buffer.take(10)
    assert (fixture.states[0].position, fixture.states[0].position_epoch) == (3, 5)


def test_impossible_watermarks_do_no_harm() -> None:
    fixture = FetchFixture(T0, position=7)
    fixture.answer(fixture.states[0], high_watermark=-5, last_stable_offset=2**63 - 1, log_start_offset=-9)
    assert fixture.states[0].lag() is None
    fixture.answer(fixture.states[0], high_watermark=3)
    assert fixture.states[0].lag() == 0


@given(st.binary(max_size=150), st.integers(-2, 130), st.integers(-5, 5))
def test_responses_never_move_the_position(records: bytes, code: int, replica: int) -> None:
    fixture = FetchFixture(T0, position=7, auto_offset_reset="none")
    fixture.answer(fixture.states[0], records=records, error_code=code, preferred_read_replica=replica)
    assert fixture.states[0].position == 7


def test_response_counts_the_memory_of_its_whole_frame() -> None:
    frame = memoryview(bytearray(1_000))
    pieces = (frame[:100], None, frame[9:])
    parts = [PartitionData(partition_index=0, error_code=0, high_watermark=9, records=piece) for piece in pieces]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])
    assert memory_of(response) == (1_091, 1_091)
    parts[1:] = []
    assert memory_of(response) == (100, 1_000)
    assert memory_of(FetchResponse(responses=[])) == (0, 0)
