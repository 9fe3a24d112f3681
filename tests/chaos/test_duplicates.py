"""Records that were written twice: what the report says of them, and which ones librdkafka writes by its design."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos.duplicates import duplicates, duplicates_by_new_epochs, wrong_refusals
from tests.chaos.history import (
    COMMITTED,
    IDEMPOTENT,
    OK,
    Batch,
    EpochBump,
    Fault,
    History,
    Place,
    Read,
    Refusal,
    Send,
    Value,
)
from tests.chaos.logs import batches_of
from tests.chaos.pipelined import TheirPipelined
from tests.chaos.run import Result
from tests.chaos.workload import Notes, OurReader
from tests.waiting import until

A = Place("a", 0)
TWICE = Value("theirs", 1)
SKIPPED = "skipped sequence numbers"
FIRST = Batch(1, A, 10, 12, 5, leader_epoch=3, producer_id=1000, producer_epoch=0, base_sequence=40)
SECOND = replace(FIRST, offset=20, last_offset=22, crc=6, producer_epoch=1, base_sequence=0)
BUMP = EpochBump("theirs", 1000, 1, SKIPPED)


def written_twice(first: Batch, second: Batch, *bumps: EpochBump) -> History:
    """Return a history in which a value is the second record of two batches."""
    history = History().add(Send(TWICE, A, IDEMPOTENT, OK, 21), first, second, *bumps)
    return history.add(*(Read("c", 1, A, offset, TWICE, A, COMMITTED) for offset in (11, 21)))


def test_duplicated_record_is_shown_with_the_batches_of_its_copies() -> None:
    assert [*duplicates(written_twice(FIRST, SECOND))] == [
        "theirs/1 is at a-0@11 (batch 10..12, producer 1000, epoch 0, sequence 40, leader epoch 3), "
        "a-0@21 (batch 20..22, producer 1000, epoch 1, sequence 0, leader epoch 3)"
    ]


def test_copy_that_is_in_no_log_is_shown_as_such() -> None:
    history = written_twice(FIRST, replace(SECOND, last_offset=20))
    assert [each.rpartition(", ")[2] for each in duplicates(history)] == ["a-0@21 (in no log)"]


def test_copy_of_an_epoch_that_the_producer_has_begun_is_counted_apart() -> None:
    history = written_twice(FIRST, SECOND, BUMP)
    assert [*duplicates(history)] == []
    assert len([*duplicates_by_new_epochs(history)]) == 1


def test_copies_several_epochs_apart_need_the_reason_of_each() -> None:
    later = replace(SECOND, producer_epoch=2)
    assert [*duplicates(written_twice(FIRST, later, replace(BUMP, epoch=2)))]
    timed_out = replace(BUMP, epoch=2, reason=f"3 message(s) timed out on a [0]; {SKIPPED}")
    assert [*duplicates(written_twice(FIRST, later, BUMP, timed_out))] == []


@pytest.mark.parametrize(
    ("second", "bump"),
    [
        (SECOND, None),
        (SECOND, replace(BUMP, producer="ours")),
        (SECOND, replace(BUMP, producer_id=1001)),
        (SECOND, replace(BUMP, epoch=2)),
        (SECOND, replace(BUMP, reason="")),
        (SECOND, replace(BUMP, reason="message sequence gap")),
        (SECOND, replace(BUMP, reason=f"{SKIPPED}; unknown producer id")),
        (replace(SECOND, producer_epoch=0, base_sequence=43), BUMP),
        (replace(SECOND, producer_id=1001), BUMP),
        (replace(SECOND, producer_id=-1), BUMP),
        (replace(SECOND, last_offset=20), BUMP),
    ],
)
def test_duplicated_record_is_a_violation_without_full_proof(second: Batch, bump: EpochBump | None) -> None:
    history = written_twice(FIRST, second, *([] if bump is None else [bump]))
    assert len([*duplicates(history)]) == 1
    assert [*duplicates_by_new_epochs(history)] == []


def test_copy_of_an_earlier_epoch_is_a_violation() -> None:
    history = written_twice(replace(FIRST, producer_epoch=1), replace(SECOND, producer_epoch=0), BUMP)
    assert len([*duplicates(history)]) == 1


@pytest.mark.parametrize(("sequence", "wrong"), [(39, 0), (40, 1), (42, 0), (43, 1), (44, 0)])
def test_refusal_of_a_batch_that_follows_or_repeats_the_log_is_wrong(sequence: int, wrong: int) -> None:
    refusal = Refusal("theirs", A, 1000, 0, sequence, "a line")
    assert len([*wrong_refusals(History().add(FIRST, refusal))]) == wrong
    assert [*wrong_refusals(History().add(FIRST, replace(refusal, epoch=1)))] == []
    assert [*wrong_refusals(History().add(FIRST, replace(refusal, producer_id=1001)))] == []


def test_sequences_begin_again_with_zero_after_the_largest() -> None:
    last = replace(FIRST, base_sequence=2**31 - 3)
    assert len([*wrong_refusals(History().add(last, Refusal("theirs", A, 1000, 0, 0, "a line")))]) == 1


def test_report_has_new_epochs_with_the_fault_before_them_and_refusals() -> None:
    history = written_twice(FIRST, SECOND, replace(BUMP, at=7.5))
    history.add(Fault("cut answers", 1.0, 2.0), Fault("kill leader", 5.0, 6.0), Fault("pause leader", 9.0, 10.0))
    history.add(Refusal("theirs", Place("a", 1), 1000, 0, 99, "a line"))
    report = Result(1, history, {}, [], [], 12.0).report().splitlines()
    at = report.index("duplicated by a new epoch of librdkafka, by its design: 1")
    assert report[at + 1 : at + 4] == [
        "new epochs of librdkafka: 1, after 1 refused batches",
        "  theirs: producer 1000, epoch 1, 2.5 s after kill leader: skipped sequence numbers",
        "  theirs: a line",
    ]


def test_report_has_epochs_that_began_before_all_faults() -> None:
    report = Result(1, History().add(BUMP, Fault("kill leader", 5.0, 6.0)), {}, [], [], 12.0).report().splitlines()
    assert "  theirs: producer 1000, epoch 1, before all faults: skipped sequence numbers" in report


def test_librdkafka_writes_a_batch_again_in_a_new_epoch(tmp_path: Path) -> None:
    """An epoch is that of all partitions: an error in one of them concerns what another one has not answered.

    Of partition 1 two batches are on their way: the first one is refused for now, and so the second one is out of
    order, as at any broker. Partition 0 writes its batch, and then answers that its replicas were too slow.
    """
    notes, topic = Notes(), "busy"
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, 3)])
        producer = TheirPipelined(cluster.bootstrap_servers, notes, topic)
        producer.send(1)
        producer.flush()  # from now on its sequences are known there
        held = cluster.faults.hold("Produce", topic=topic, partition=2)
        cluster.faults.fail("Produce", errors.RequestTimedOut, topic=topic, partition=0, when="after")
        cluster.faults.fail("Produce", errors.NotEnoughReplicas, topic=topic, partition=1)
        producer.send(2)
        held.wait()  # what comes later on its connection waits, too
        producer.send(1)
        producer.send(1)
        until(lambda: producer.unanswered() == 3)
        producer.send(0)
        until(lambda: producer.unanswered() == 4)
        held.release()
        producer.flush()
        OurReader("drain", notes, cluster.bootstrap_servers, {topic: 3}, COMMITTED).drain(60)
        node = cluster.brokers[0]
        directory = Path(node.data_dir)
    history = notes.history.add(*batches_of(directory, node.id, [topic]))
    assert [(bump.epoch, bump.reason) for bump in history.epoch_bumps] == [(1, SKIPPED)]
    assert [(each.place.partition, each.base_sequence) for each in history.refusals] == [(1, 2)]
    assert [*wrong_refusals(history)] == []
    assert [*duplicates(history)] == []
    [twice] = duplicates_by_new_epochs(history)
    assert twice.startswith("theirs/4 is at busy-0@0 (batch 0..0, producer ")
