"""What to fetch, and what an answer means: pure decisions, with answers no honest broker would give."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from consumer_samples import T0, T1, assigned, batch_of, marker, parse_records
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.config import resolve
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.fetch_buffer import FetchBuffer, FetchedPart, Frame
from pyclient.consumer.fetch_plan import (
    AnswerReader,
    FetchOutcome,
    FetchPlan,
    Target,
    high_bytes,
    low_bytes,
    memory_of,
    plan_fetch,
)
from pyclient.consumer.subscription import AssignedPartition, Phase
from pyclient.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from pyclient.types import TopicPartition


class Desk:
    """Two partitions led by node 1, and everything around them."""

    def __init__(self, *partitions: TopicPartition, position: int = 0, **options: Any) -> None:
        defaults = {"bootstrap_servers": "h:1", "max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 3_000}
        self.config = resolve(ConsumerConfig, {**defaults, **options})
        self.subscription, self.states = assigned(*(partitions or (T0, T1)), position=position)
        self.buffer = FetchBuffer(
            self.subscription, low_bytes=low_bytes(self.config), high_bytes=high_bytes(self.config), check_crcs=True
        )
        self.reader = AnswerReader(self.subscription, self.buffer, self.config, 0.1)
        self.leaders = dict.fromkeys(self.subscription.assignment(), 1)

    def plan(self, node: int = 1, now: float = 0.0, reserved: int = 0) -> FetchPlan:
        return plan_fetch(node, self.subscription, self.buffer, lambda p: self.leaders[p], self.config, now, reserved)

    def asked(self, now: float = 0.0) -> list[TopicPartition]:
        return list(self.plan(now=now).targets)

    def stock(self, state: AssignedPartition, size: int) -> None:
        """As if `size` bytes had been fetched."""
        data = batch_of(state.fetch_offset, 1)
        parsed = parse_records(memoryview(data), *state.topic_partition, state.fetch_offset)
        state.fetch_offset = parsed.next_offset
        self.buffer.add(FetchedPart(state, parsed, size, Frame(1, size)))

    def answer(
        self, state: AssignedPartition, now: float = 0.0, from_replica: bool = False, **data: Any
    ) -> FetchOutcome:
        outcome = FetchOutcome()
        target = Target(state, state.version, state.fetch_offset, from_replica)
        self.take(target, now, outcome, **data)
        return outcome

    def take(self, target: Target, now: float, outcome: FetchOutcome, **data: Any) -> None:
        fields: dict[str, Any] = {"error_code": 0, "high_watermark": 100, "records": None, **data}
        part = PartitionData(partition_index=target.state.topic_partition.partition, **fields)
        self.reader.take(target, part, Frame(1, len(fields["records"] or b"")), now, outcome)


# ---- planning


def test_every_partition_of_the_node_that_wants_data_is_asked_for() -> None:
    desk = Desk()
    assert desk.asked() == [T0, T1]
    desk.leaders[T1] = 2
    assert desk.asked() == [T0]
    assert list(desk.plan(2).targets) == [T1]


def test_who_brought_data_last_is_asked_last() -> None:
    desk = Desk()
    desk.answer(desk.states[0], records=batch_of(0, 1))
    assert desk.asked() == [T1, T0]


@pytest.mark.parametrize("phase", [Phase.COMMITTED, Phase.RESET, Phase.VALIDATE, Phase.STOPPED])
def test_a_partition_without_a_settled_position_is_left_out(phase: Phase) -> None:
    desk = Desk()
    desk.states[0].phase = phase
    assert desk.asked() == [T1]


def test_paused_partitions_and_those_already_asked_for_are_left_out() -> None:
    desk = Desk()
    desk.subscription.pause([T0])
    plan = desk.plan()
    plan.begin()
    assert desk.asked() == []
    desk.states[1].start_at(7)  # a seek: the answer on its way is void
    assert desk.asked() == [T1]
    plan.end()
    desk.subscription.resume([T0])
    assert desk.asked() == [T0, T1]


def test_a_fetch_that_an_old_leader_never_answers_does_not_keep_the_new_one_from_being_asked() -> None:
    desk = Desk(T0)
    (state,) = desk.states
    at_old = desk.plan(1)
    at_old.begin()
    desk.leaders[T0] = 2
    at_new = desk.plan(2)
    assert list(at_new.targets) == [T0]
    at_new.begin()
    desk.take(at_new.targets[T0], 0.0, FetchOutcome(), records=batch_of(0, 2))
    at_new.end()
    desk.take(at_old.targets[T0], 0.0, FetchOutcome(), records=batch_of(0, 2))
    at_old.end()
    assert sum(piece.count for piece in desk.buffer.take(10)) == 2
    assert state.position == 2


def test_a_partition_with_two_shares_in_stock_is_not_asked_for() -> None:
    desk = Desk(fetch_max_bytes=9_000)
    desk.stock(desk.states[0], 1_999)
    assert desk.asked() == [T0, T1]
    desk.stock(desk.states[0], 1)
    assert desk.asked() == [T1]


def test_nothing_is_asked_for_until_some_partition_has_less_than_a_share_left_and_then_as_much_as_possible() -> None:
    desk = Desk(fetch_max_bytes=9_000)
    desk.stock(desk.states[0], 1_000)
    desk.stock(desk.states[1], 1_000)
    assert desk.asked() == []
    desk.buffer.take(1)
    assert desk.buffer.wants_more
    assert desk.asked() == [T0, T1]


def behind(desk: Desk, count: int, stable: int = 100) -> None:
    """So many of its partitions have more in their logs than was fetched."""
    for state in desk.states[:count]:
        state.high_watermark, state.last_stable_offset = 100, stable


def five(fetch_max_bytes: int = 9_000, **options: Any) -> Desk:
    partitions = [TopicPartition("t", number) for number in range(5)]
    return Desk(*partitions, fetch_max_bytes=fetch_max_bytes, **options)


def test_half_of_the_partitions_that_are_behind_are_left_to_the_other_lane() -> None:
    desk = five()
    behind(desk, 4)
    first = desk.plan()
    assert [partition.partition for partition in first.targets] == [0, 1, 4]  # the last one is not known to be
    assert (first.max_bytes, first.more, set(first.positions)) == (3_000, True, set(first.targets))
    first.begin()
    second = desk.plan(reserved=first.max_bytes)
    assert [partition.partition for partition in second.targets] == [2, 3]
    assert not second.more
    second.begin()
    assert desk.asked() == []
    first.end()
    third = desk.plan(reserved=second.max_bytes)
    assert [partition.partition for partition in third.targets] == [0, 1, 4], "the other lane is at work already"


def test_of_many_partitions_that_are_behind_a_request_asks_for_a_few_megabytes() -> None:
    desk = five(fetch_max_bytes=50 * 1024 * 1024, max_partition_fetch_bytes=2 * 1024 * 1024)
    behind(desk, 5)
    assert len(desk.asked()) == 1


def test_a_single_partition_that_is_behind_is_asked_for_beside_all_others() -> None:
    desk = five()
    behind(desk, 1)
    assert len(desk.asked()) == 5
    assert not desk.plan().more


@pytest.mark.parametrize(("level", "asked"), [("read_committed", 5), ("read_uncommitted", 3)])
def test_what_an_open_transaction_holds_back_is_not_there_to_be_read(level: str, asked: int) -> None:
    desk = five(isolation_level=level)
    behind(desk, 5, stable=0)
    assert len(desk.asked()) == asked


def test_a_partition_in_backoff_says_when_to_look_again() -> None:
    desk = Desk()
    desk.states[0].retry_at = 5.0
    plan = desk.plan(now=4.0)
    assert (list(plan.targets), plan.wake_at) == ([T1], 5.0)
    assert desk.asked(now=5.0) == [T0, T1]


def test_what_is_held_asked_and_reserved_stays_below_fetch_max_bytes() -> None:
    desk = Desk(fetch_max_bytes=3_500)
    assert desk.plan().max_bytes == 2_000  # two partitions, a share each
    desk.stock(desk.states[0], 2_000)
    assert desk.plan().max_bytes == 1_000
    assert desk.plan(reserved=400).max_bytes == 1_000
    assert desk.plan(reserved=600).targets == {}  # the user has something to poll meanwhile
    desk.buffer.take(10)
    plan = desk.plan(reserved=3_400)
    assert (set(plan.targets), plan.max_bytes) == ({T0, T1}, 1_000)


def test_topics_go_by_id_only_if_every_id_is_known() -> None:
    desk = Desk()
    assert not desk.plan().by_id
    desk.states[0].topic_id = uuid.UUID(int=1)
    assert not desk.plan().by_id
    desk.states[1].topic_id = uuid.UUID(int=1)
    plan = desk.plan()
    assert plan.by_id
    assert plan.topic_names() == {uuid.UUID(int=1): "t"}


def test_a_preferred_replica_is_asked_until_it_expires() -> None:
    desk = Desk()
    desk.answer(desk.states[0], preferred_read_replica=3)
    assert (desk.asked(), list(desk.plan(3).targets)) == ([T1], [T0])
    assert desk.plan(3).targets[T0].from_replica
    assert T0 in desk.plan(1, now=301.0).targets


def test_the_node_a_partition_moves_to_is_woken_and_its_leader_when_the_preference_ends() -> None:
    desk = Desk(T0)
    assert desk.answer(desk.states[0], now=1.0, preferred_read_replica=3).moved
    assert not desk.answer(desk.states[0], now=1.0, from_replica=True, preferred_read_replica=3).moved
    assert desk.plan(1, now=2.0).wake_at == desk.states[0].preferred_until == 301.0
    assert desk.plan(2, now=2.0).wake_at is None  # it has nothing to do with it


# ---- answers


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
