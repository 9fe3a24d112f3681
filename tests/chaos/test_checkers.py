"""Each checker finds what was planted in a history, and nothing in a history of a cluster that keeps its promises."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.checkers import checkers, harmless_faults, lost_by_one
from tests.chaos.group_checkers import outdated_commits
from tests.chaos.history import (
    CLIENTS,
    COMMITTED,
    FAIL,
    INFO,
    ONE,
    UNCOMMITTED,
    Assignment,
    Call,
    Commit,
    Committed,
    Ends,
    Fault,
    FoundTopic,
    Freeze,
    History,
    Isolation,
    Log,
    Place,
    ProcessState,
    Read,
    Refusal,
    ReplicaState,
    Value,
    parsed,
    payload,
)
from tests.chaos.made_history import (
    ALL_RECORDS,
    LIMITS,
    OFFSETS,
    TIMEOUT,
    A,
    B,
    called,
    clean,
    commit,
    reads,
    send,
    state,
    stored,
    violations,
)
from tests.chaos.run import Result


def test_checkers_find_nothing_in_a_clean_history() -> None:
    assert violations(clean()) == {}


def lose(history: History) -> None:
    history.reads = [read for read in history.reads if read.value != Value("p1", 29)]


def lose_in_committed_transaction(history: History) -> None:
    history.reads = [read for read in history.reads if read.value not in (Value("t1", 5), Value("t1", 6))]


def read_an_aborted_value(history: History) -> None:
    history.add(Read("c1", 9, B, 7, Value("t1", 7), B, COMMITTED, jumped=True))


def read_a_failed_value(history: History) -> None:
    history.add(Read("c1", 99, A, 31, Value("p1", 20), A, UNCOMMITTED, jumped=True))


def read_an_own_value(history: History) -> None:
    """Read a value in its own transaction, whose commit was never requested."""
    history.transactions = [each for each in history.transactions if each.name != "t1-3"]
    history.add(Read("c4", 0, B, 8, Value("t1", 8), B, COMMITTED, transaction="t1-3"))


def tear_a_transaction(history: History) -> None:
    history.reads = [read for read in history.reads if read.value != Value("t1", 9)]


def put_two_values_at_an_offset(history: History) -> None:
    history.add(Read("c4", 0, A, 3, Value("p1", 3), A), Read("c5", 0, A, 3, Value("p9", 1), A))


def move_a_value_between_replicas(history: History) -> None:
    """Read from a leader that has other values at the same offsets."""
    history.add(Read("c4", 0, A, 5, Value("p1", 6), A))


def misroute(history: History) -> None:
    history.add(Read("c4", 0, B, 40, Value("p9", 1), A))


def damage(history: History) -> None:
    history.add(Read("c4", 0, B, 40, None, None))


def duplicate(history: History) -> None:
    history.add(Read("c1", 99, A, 35, Value("p1", 29), A))


def refuse_what_follows(history: History) -> None:
    history.batches[0] = replace(history.batches[0], producer_id=7, producer_epoch=0, base_sequence=100)
    history.add(Refusal("p1", A, 7, 0, 110, "refused"))


def swap_two_sends(history: History) -> None:
    first, second = history.sends[10], history.sends[11]
    history.sends[10:12] = replace(first, offset=11), replace(second, offset=10)


def swap_an_unknown_one(history: History) -> None:
    """Read the seventh value, whose send has no known outcome, before that of the sixth."""
    history.reads = [read for read in history.reads if read.value != Value("p1", 7)]
    history.add(Read("c4", 0, A, 5, Value("p1", 7), A))


def skip_across_polls(history: History) -> None:
    history.reads = [read for read in history.reads if not (read.consumer == "c2" and read.value == Value("p1", 12))]


def go_back(history: History) -> None:
    history.add(Read("c2", 50, A, 12, Value("p1", 12), A))


def go_back_in_a_poll(history: History) -> None:
    """Go back within a call of poll: a jump excuses only what comes in a later one."""
    history.add(Read("c6", 0, A, 12, Value("p1", 12), A), Read("c6", 0, A, 11, Value("p1", 11), A, jumped=True))


def forget_a_send(history: History) -> None:
    history.add(Call(Value("p1", 77), A, 77.0))


def complete_a_send_twice(history: History) -> None:
    history.add(history.sends[3])


def complete_what_was_not_sent(history: History) -> None:
    history.add(send(77, outcome=FAIL))


def answer_late(history: History) -> None:
    history.sends[3] = replace(history.sends[3], ended=history.sends[3].began + TIMEOUT + 1.5)


def acknowledge_at_no_offset(history: History) -> None:
    history.sends[31] = replace(history.sends[31], offset=-1)


def elect_two_leaders(history: History) -> None:
    history.add(state(2, at=2.0, leader=2))


def lead_from_outside_of_the_isr(history: History) -> None:
    history.add(state(2, at=2.0, leader=1, isr=(2, 3)))


def let_a_stranger_into_the_isr(history: History) -> None:
    history.add(state(2, at=2.0, isr=(1, 2, 4)))


def lower_the_high_watermark(history: History) -> None:
    history.add(state(3, at=2.0, high_watermark=9, stable_offset=9))


def raise_the_high_watermark_over_the_end(history: History) -> None:
    history.add(state(3, at=2.0, high_watermark=13))


def lower_the_epoch(history: History) -> None:
    history.add(state(3, at=2.0, leader_epoch=4))


def diverge(history: History) -> None:
    history.batches[4] = replace(history.batches[4], crc=99)


def lose_a_batch(history: History) -> None:
    del history.batches[4]


def change_the_epoch_of_a_batch(history: History) -> None:
    """Change the leader epoch of a batch, which its CRC does not include."""
    history.batches[4] = replace(history.batches[4], leader_epoch=4)


def empty_a_log(history: History) -> None:
    history.batches = [each for each in history.batches if each.node != 3]
    history.logs[2] = Log(3, A, 0, 0)


def lose_a_log(history: History) -> None:
    history.batches = [each for each in history.batches if each.node != 3]
    del history.logs[2]


def lose_the_end_of_a_log(history: History) -> None:
    history.batches = [each for each in history.batches if each.node != 2 or not each.offset]
    history.logs[1] = Log(2, A, 0, 9)


def lose_the_first_segment(history: History) -> None:
    history.batches = [each for each in history.batches if each.node != 2 or each.offset]
    history.logs[1] = Log(2, A, 10, 30)


def change_a_record_of_an_internal_topic(history: History) -> None:
    history.stored_records[-1] = stored(3, 5, 72, 99)


def change_the_epoch_of_an_internal_record(history: History) -> None:
    history.stored_records[-1] = stored(3, 5, 72, 6, leader_epoch=4)


def lose_a_record_of_an_internal_topic(history: History) -> None:
    """Remove a record although no later one has its key."""
    del history.stored_records[-1]


def empty_a_log_of_an_internal_topic(history: History) -> None:
    history.stored_records = [each for each in history.stored_records if each.node != 2]


def truncate_a_log_of_an_internal_topic(history: History) -> None:
    del history.stored_records[-1]
    history.logs[-1] = Log(3, OFFSETS, 0, 5)


def share_a_partition(history: History) -> None:
    history.add(Assignment("g", "m3", 2, (A,)))


def share_a_partition_with_a_further_member(history: History) -> None:
    """Give a further member a partition that another one has, together with one that is free."""
    history.add(Assignment("g", "theirs", 1, (Place("a", 1), B)))


def commit_what_was_not_read(history: History) -> None:
    history.add(Commit("g", "m2", 2, A, 9, at=3.0))


def commit_what_is_read_later(history: History) -> None:
    history.add(commit("m9", 7.0, 26), Read("m9", 9, A, 25, Value("p1", 25), A, COMMITTED, at=7.5))


def commit_backwards(history: History) -> None:
    history.add(Commit("g", "m1", 1, A, 5, at=3.0))


def commit_as_a_zombie(history: History) -> None:
    history.add(Commit("g", "m1", 2, A, 7, at=3.0))


def read_without_the_partition(history: History) -> None:
    history.add(Read("m1", 9, A, 4, Value("p1", 4), A, COMMITTED, at=3.0, assigned=False))


def commit_backwards_after_an_answer(history: History) -> None:
    """Commit backwards; the commit that was not answered was higher, and so explains nothing."""
    history.add(commit("m9", 8.0, 5))


def forget_a_commit(history: History) -> None:
    history.add(Committed("h", A, 8, 8.0, 8.1))


def forget_all_commits(history: History) -> None:
    history.add(Committed("h", A, -1, 8.0, 8.1))


def invent_a_commit(history: History) -> None:
    history.add(Committed("h", A, 16, 8.0, 8.1))


def restore_a_commit_of_long_ago(history: History) -> None:
    """Read the offset of a commit that was never answered, minutes later: its request does not arrive then."""
    history.add(Committed("h", A, 6, 200.0, 200.1))


def let_a_fenced_member_commit(history: History) -> None:
    """Have a commit without an answer come late, after another member has committed in the next generation."""
    history.add(commit("m8", 10.0, 16, INFO), replace(commit("m9", 12.0, 20), generation=2))
    history.add(Committed("h", A, 16, 13.0, 13.1))


def let_a_fenced_member_commit_with_an_answer(history: History) -> None:
    """Have an answered one of the same member come late, too: it must be refused as well."""
    history.add(commit("m8", 10.0, 16, INFO), replace(commit("m9", 12.0, 20), generation=2), commit("m8", 13.0, 16))


def skip_in_a_rebalance(history: History) -> None:
    history.add(Read("m8", 0, A, 17, Value("p1", 17), A, COMMITTED, jumped=True, at=9.0))


def skip_at_the_first_assignment(history: History) -> None:
    history.add(Read("m8", 0, A, 4, Value("p1", 4), A, COMMITTED, jumped=True, at=0.5))


def leave_a_transaction_open(history: History) -> None:
    history.add(*(Ends(A, 4, 10, at) for at in (1.0, 10.0, 23.0)))


def leave_a_transaction_open_at_the_end(history: History) -> None:
    """Keep a transaction open while the end of the partition still grows."""
    history.add(*(Ends(A, 4, 10 + at, at) for at in range(100, 130)))


def lose_a_topic(history: History) -> None:
    history.found_topics.remove(FoundTopic("kept", 2))


def lose_a_partition(history: History) -> None:
    history.found_topics[0] = FoundTopic("kept", 1)


def keep_a_deleted_topic(history: History) -> None:
    history.add(FoundTopic("deleted", 1))


def delete_a_topic_that_may_have_grown(history: History) -> None:
    history.found_topics.remove(FoundTopic("perhaps grown", 2))


def stand_still_after_a_fault(history: History) -> None:
    history.sends = [each for each in history.sends if not 6.0 < each.ended < 20.0]


def stand_still_during_a_fault(history: History) -> None:
    history.add(Fault("cut a follower", 40.0, 55.0))


def read_before_the_commit(history: History) -> None:
    history.add(replace(reads(history.sends[-1], consumer="c9")[0], at=9.5))


def acknowledge_alone(history: History) -> None:
    """Cut the leader of epoch 5 off from the others."""
    history.add(Isolation(1, 2.5, 4.5))


def freeze_the_leader(history: History, successor: ReplicaState, began: float = 29.0) -> None:
    """Freeze the leader of epoch 5 from 28.5 to 29.5; it acknowledges the last record at 29.6."""
    history.add(Freeze(1, 28.5, 29.5), successor)
    history.sends[29] = replace(history.sends[29], began=began, ended=29.6)


def acknowledge_after_a_freeze(history: History) -> None:
    freeze_the_leader(history, state(2, at=29.2, leader=2, leader_epoch=6))


def acknowledge_what_was_sent_after_a_freeze(history: History) -> None:
    freeze_the_leader(history, state(2, at=29.2, leader=2, leader_epoch=6), began=29.55)


def acknowledge_without_followers(history: History) -> None:
    alone = [state(1, at=at, isr=(1,), partition_epoch=21) for at in (9.0, 10.0, 11.5, 12.5)]
    history.add(*alone)


def stay_slow(history: History) -> None:
    """Leave one record in two seconds after the fault, where there were two."""
    history.sends = [each for each in history.sends if each.ended < 6 or each.value.number % 2]


def leak_files(history: History) -> None:
    history.add(*(ProcessState(2, 1, at, 40 + 20 * at, 9, 1 << 20) for at in range(60)))


def leak_threads(history: History) -> None:
    history.add(*(ProcessState(0, 1, at, 40, 9 + at, 1 << 20) for at in range(60)))


def leak_memory(history: History) -> None:
    history.add(*(ProcessState(2, 1, at, 40, 9, (100 + 4 * at) << 20) for at in range(60)))


PLANTS: dict[Callable[[History], None], str] = {
    lose: "lost",
    lose_in_committed_transaction: "lost",
    read_an_aborted_value: "aborted reads",
    read_a_failed_value: "failed but written",
    read_an_own_value: "precommitted reads",
    tear_a_transaction: "torn transactions",
    put_two_values_at_an_offset: "inconsistent offsets",
    move_a_value_between_replicas: "inconsistent offsets",
    misroute: "misrouted or damaged",
    damage: "misrouted or damaged",
    duplicate: "duplicated",
    refuse_what_follows: "refusals",
    swap_two_sends: "unordered sends",
    swap_an_unknown_one: "unordered sends",
    skip_across_polls: "skipping polls",
    go_back: "skipping polls",
    go_back_in_a_poll: "skipping polls",
    forget_a_send: "unaccounted sends",
    complete_a_send_twice: "unaccounted sends",
    complete_what_was_not_sent: "unaccounted sends",
    answer_late: "unaccounted sends",
    acknowledge_at_no_offset: "unaccounted sends",
    elect_two_leaders: "replicas",
    lead_from_outside_of_the_isr: "replicas",
    let_a_stranger_into_the_isr: "replicas",
    lower_the_high_watermark: "replicas",
    raise_the_high_watermark_over_the_end: "replicas",
    lower_the_epoch: "replicas",
    diverge: "replicas",
    lose_a_batch: "replicas",
    change_the_epoch_of_a_batch: "replicas",
    empty_a_log: "replicas",
    lose_a_log: "replicas",
    lose_the_end_of_a_log: "replicas",
    lose_the_first_segment: "replicas",
    change_a_record_of_an_internal_topic: "replicas",
    change_the_epoch_of_an_internal_record: "replicas",
    lose_a_record_of_an_internal_topic: "replicas",
    empty_a_log_of_an_internal_topic: "replicas",
    truncate_a_log_of_an_internal_topic: "replicas",
    share_a_partition: "groups",
    share_a_partition_with_a_further_member: "groups",
    commit_what_was_not_read: "unread commits",
    commit_what_is_read_later: "unread commits",
    read_without_the_partition: "groups",
    commit_backwards: "groups",
    commit_as_a_zombie: "groups",
    commit_backwards_after_an_answer: "groups",
    forget_a_commit: "lost commits",
    forget_all_commits: "lost commits",
    invent_a_commit: "lost commits",
    restore_a_commit_of_long_ago: "lost commits",
    let_a_fenced_member_commit: "lost commits",
    let_a_fenced_member_commit_with_an_answer: "groups",
    skip_in_a_rebalance: "group skips",
    skip_at_the_first_assignment: "group skips",
    leave_a_transaction_open: "stuck transactions",
    leave_a_transaction_open_at_the_end: "stuck transactions",
    lose_a_topic: "topics",
    lose_a_partition: "topics",
    keep_a_deleted_topic: "topics",
    delete_a_topic_that_may_have_grown: "topics",
    stand_still_after_a_fault: "stalls",
    stand_still_during_a_fault: "idle faults",
    stay_slow: "unrecovered rates",
    leak_files: "growing processes",
    leak_threads: "growing processes",
    leak_memory: "growing processes",
    read_before_the_commit: "precommitted reads",
    acknowledge_alone: "unsafe acknowledgements",
    acknowledge_after_a_freeze: "unsafe acknowledgements",
    acknowledge_what_was_sent_after_a_freeze: "unsafe acknowledgements",
    acknowledge_without_followers: "unsafe acknowledgements",
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_checker_finds_the_planted_violation(plant: Callable[[History], None]) -> None:
    history = clean()
    plant(history)
    assert PLANTS[plant] in violations(history)


def test_every_checker_has_a_planted_violation() -> None:
    assert {*PLANTS.values()} == {*checkers(LIMITS)}


def test_log_of_a_replica_out_of_sync_may_end_early() -> None:
    """Only what was committed while it was in sync has to be there."""
    history = clean()
    history.states = [replace(each, isr=(1, 2)) for each in history.states]
    history.stored_records = [each for each in history.stored_records if each.node != 3]
    history.add(*(stored(3, *each) for each in ALL_RECORDS[:5]))
    history.logs[-1] = Log(3, OFFSETS, 0, 5)
    assert violations(history) == {}


def test_records_above_the_high_watermark_may_differ() -> None:
    history = clean().add(stored(1, 6, 71, 7), stored(2, 6, 71, 8))
    history.logs[3:5] = Log(1, OFFSETS, 0, 7), Log(2, OFFSETS, 0, 7)
    assert violations(history) == {}


def test_memory_of_the_clients_and_smaller_growth_are_allowed() -> None:
    history = clean().add(*(ProcessState(CLIENTS, 1, at, 40, 9, (100 + 4 * at) << 20) for at in range(60)))
    history.add(*(ProcessState(2, 1, at, 40, 9, (100 + at) << 20) for at in range(60)))
    assert violations(history) == {}


@pytest.mark.parametrize(
    ("successor", "began"),
    [
        (state(2, at=29.55, leader=2, leader_epoch=6), 29.0),  # it is elected after the leader went on
        (state(3, at=29.2, leader=2, leader_epoch=6), 29.0),  # it does not know yet that it leads
        (state(2, at=29.2, leader=2, leader_epoch=6), 28.4),  # the record was written before, and is answered late
    ],
)
def test_leader_that_was_frozen_may_acknowledge(successor: ReplicaState, began: float) -> None:
    history = clean()
    freeze_the_leader(history, successor, began)
    assert violations(history) == {}


def test_assignment_of_a_later_generation_may_move_a_partition() -> None:
    history = clean().add(Assignment("g", "theirs", 3, (A, B)), Assignment("g", "m1", 4, (A,)))
    assert violations(history) == {}


def test_duplicates_of_a_producer_that_is_not_idempotent_are_counted() -> None:
    result = Result(7, clean(), {}, [], [], 60.0)
    assert "duplicated by producers that are not idempotent 1 (allowed)" in result.report()
    history = clean()
    history.reads = [each for each in history.reads if (each.place, each.offset) != (B, 20)]
    duplicate(history)
    assert "not idempotent 0 (allowed)" in replace(result, history=history).report()


def test_jumps_between_polls_are_allowed() -> None:
    history = clean()
    history.add(Read("c2", 50, A, 12, Value("p1", 12), A, jumped=True))
    assert violations(history) == {}


def test_unknown_offsets_of_acknowledged_records_contradict_nothing() -> None:
    history = clean()
    for at in (3, 4, 11):
        history.sends[at] = replace(history.sends[at], offset=-1)
    assert violations(history) == {}


def test_unknown_offset_does_not_hide_the_order_of_records() -> None:
    history = clean()
    history.sends[10:12] = replace(history.sends[10], offset=-1), replace(history.sends[11], offset=-1)
    swapped = {Value("p1", 10): 11, Value("p1", 11): 10}
    history.reads = [
        replace(read, offset=swapped.get(read.value, read.offset)) if read.value else read for read in history.reads
    ]
    assert "unordered sends" in violations(history)


def test_open_transactions_do_not_count_the_time_of_faults() -> None:
    history = clean().add(*(Ends(A, 4, 10, at) for at in (40.0, 65.0)), Fault("pause a coordinator", 45.0, 60.0))
    history.add(*called(send(50), send(51)), *reads(send(50), send(51), consumer="c9"))
    assert violations(history) == {}


def test_a_commit_of_another_member_at_the_same_time_may_be_lower() -> None:
    """The order of the two is not known."""
    history = clean().add(Commit("h", "m9", 1, A, 12, at=6.05, began=4.9))
    assert violations(history) == {}


@pytest.mark.parametrize(("member", "generation"), [("m8", 2), ("m9", 1), ("m9", -1)])
def test_a_late_commit_is_allowed_while_its_generation_may_last(member: str, generation: int) -> None:
    """A member may commit with an earlier epoch what it has owned since then (KIP-1251)."""
    history = clean().add(commit("m8", 10.0, 16, INFO))
    history.add(replace(commit(member, 12.0, 20), generation=generation), Committed("h", A, 16, 13.0, 13.1))
    assert violations(history) == {}


OUTDATED = Committed("h", A, 8, 8.0, 8.1, node=1, leader_epoch=5)


@pytest.mark.parametrize("began", [7.0, 8.05, 13.0])
def test_replaced_coordinator_may_have_outdated_offsets(began: float) -> None:
    successor = Committed("h", A, 15, began, began + 0.1, node=2, leader_epoch=6)
    history = clean().add(OUTDATED, successor)
    assert violations(history) == {}
    text = "group h, a-0: the committed offset is 8 after 15 was acknowledged, by node 1 in leader epoch 5"
    assert list(outdated_commits(history)) == [text]


@pytest.mark.parametrize(
    "changes",
    [{"node": 1}, {"leader_epoch": 5}, {"leader_epoch": 4}, {"group": "g", "offset": 6}, {"began": 13.2}],
    ids=["the same node", "the same epoch", "an earlier epoch", "another group", "much later"],
)
def test_outdated_offsets_without_a_successor_are_lost_commits(changes: dict[str, Any]) -> None:
    successor = Committed("h", A, 15, 8.0, 13.3, node=2, leader_epoch=6)
    history = clean().add(OUTDATED, replace(successor, **changes))
    assert [*violations(history)] == ["lost commits"]
    assert list(outdated_commits(history)) == []


def test_the_control_loses_records_without_a_violation() -> None:
    history = clean().add(*called(send(0, Place("c", 0), "p5", ONE)))
    assert violations(history) == {}
    assert len(lost_by_one(history)) == 1


def test_a_control_that_loses_nothing_is_a_violation() -> None:
    written = send(0, Place("c", 0), "p5", ONE)
    lost = History().add(written, Fault("kill a leader", 5.0, 6.0))
    assert list(harmless_faults(lost)) == []
    kept = lost.add(*reads(written))
    assert list(harmless_faults(kept)) == ["none of 1 records acknowledged with acks=1 was lost in 1 faults"]


def test_a_transaction_that_was_seen_has_committed() -> None:
    """Its producer does not know; one of its writes was read, so that the other one is lost."""
    history = clean()
    history.reads = [read for read in history.reads if read.value != Value("t1", 8)]
    assert violations(history)["lost"] == ["b-0: t1/8 was acknowledged (offset 8) and is lost"]


def test_a_history_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    clean().write(tmp_path / "history.jsonl")
    assert History.read(tmp_path / "history.jsonl") == clean()


@given(st.integers(0, 10**9), st.integers(0, 100), st.integers(0, 300), st.data())
def test_payload_names_itself_and_detects_damage(number: int, partition: int, size: int, data: st.DataObject) -> None:
    value, place = Value("p1", number), Place("orders", partition)
    content = payload(value, place, size)
    assert parsed(content) == (value, place)
    assert size == 0 or len(content) >= size
    at = data.draw(st.integers(0, len(content) - 1))
    changed = bytes([*content[:at], content[at] ^ data.draw(st.integers(1, 255)), *content[at + 1 :]])
    assert parsed(changed) in (None, (value, place))  # the hexadecimal digits of a CRC may change their case


@given(st.integers(0, 60))
def test_payload_cut_short_is_damaged(size: int) -> None:
    content = payload(Value("p", 1), A)
    assert parsed(content[:size]) == ((Value("p", 1), A) if size >= len(content) else None)
    assert parsed(None) is None


def test_interleaved_consumers_are_checked_by_themselves() -> None:
    sends = [send(number) for number in range(10)]
    both = zip(reads(*sends, consumer="c1"), reads(*sends, consumer="c2"), strict=True)
    assert violations(History().add(*called(*sends), *itertools.chain.from_iterable(both))) == {}
