"""The cases of the tests of Jepsen's kafka checker (jepsen/test/jepsen/tests/kafka_test.clj), for the checkers of ours.

Each test has the name of one of them. Those of its generators and of its figures (`realtime-lag`, `gen-poll-unseen`)
have no counterpart; runs without any record (`empty-history`) fail before they are checked. Cycles of writes (`g0`)
and records between those of one transaction (`int-send-skip`) are normal in Kafka, and so they are allowed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.history import (
    COMMITTED,
    FAIL,
    IDEMPOTENT,
    INFO,
    OK,
    TRANSACTIONAL,
    Call,
    Commit,
    Committed,
    History,
    Place,
    Read,
    Send,
    Transaction,
    Value,
)
from tests.chaos.made_history import called, violations

X, Y = Place("x", 0), Place("y", 1)
Record = tuple[Place, str, int | None]
"""A partition, a value by its number in `ORDER`, and its offset; None if that is unknown."""
ORDER = "abcdefg"


def value(letter: str) -> Value:
    """Return a value of the producer `p`, which calls `send` in the order of the letters."""
    return Value("p", ORDER.index(letter))


def sent(*records: Record, outcome: str = OK, transaction: str | None = None) -> list[Call | Send]:
    kind = IDEMPOTENT if transaction is None else TRANSACTIONAL
    return called(
        *(
            Send(value(letter), place, kind, outcome, offset, ended=0.1, transaction=transaction)
            for place, letter, offset in records
        )
    )


def polled(*records: Record, poll: int = 0, consumer: str = "c", jumped: bool = False, at: float = 1.0) -> list[Read]:
    """Return the records of one call of `poll`; with `jumped` the partitions were assigned again before it."""
    first: set[Place] = set()
    found = []
    for place, letter, offset in records:
        assert offset is not None
        is_first = place not in first
        first.add(place)
        read = Read(consumer, poll, place, offset, value(letter), place, COMMITTED, jumped and is_first, at)
        found.append(read)
    return found


def found(*events: Iterable[Any]) -> set[str]:
    """Return the names of the checkers that find something."""
    return {*violations(History().add(*(each for several in events for each in several)))}


def drained(*records: Record) -> list[Read]:
    """Return everything as the last consumer of a run reads it."""
    return polled(*records, consumer="drain", at=9.0)


def test_version_orders() -> None:
    read = polled((X, "a", 0), (X, "b", 1))
    assert found(sent((X, "a", 0), (X, "b", 1)), read) == set()
    assert "inconsistent offsets" in found(sent((X, "a", 0), (X, "b", 1), (X, "c", 1)), read)
    assert "inconsistent offsets" in found(sent((X, "a", 537), (X, "c", 537)))


def test_inconsistent_offsets_of_a_send_with_an_unknown_outcome() -> None:
    """It contradicts nothing until its value is read."""
    unknown, known = sent((X, "a", None), outcome=INFO), sent((X, "b", 0))
    assert found(unknown, known, drained((X, "b", 0))) == set()
    assert "inconsistent offsets" in found(unknown, known, drained((X, "b", 0)), polled((X, "a", 0)))


def test_g1a() -> None:
    failed = sent((X, "a", None), (Y, "b", None), outcome=FAIL)
    assert found(failed) == set()
    assert "aborted reads" in found(failed, polled((X, "a", 0)))
    aborted = sent((X, "a", 0), transaction="t1")
    assert "aborted reads" in found(aborted, [Transaction("t1", FAIL)], polled((X, "a", 0)))


def test_lost_write() -> None:
    known, unknown = sent((X, "a", 0), (X, "b", 1), (X, "d", 3)), sent((X, "c", None), outcome=INFO)
    lost = violations(History().add(*known, *unknown, *drained((X, "c", 2))))["lost"]
    assert [each.split()[1] for each in lost] == ["p/0", "p/1", "p/3"]
    everything = drained((X, "a", 0), (X, "b", 1), (X, "c", 2), (X, "d", 3))
    assert "lost" not in found(known, unknown, everything)


def test_lost_write_with_inconsistent_offsets() -> None:
    history = sent((X, "a", 0), (X, "b", 0), (X, "c", 2)), drained((X, "b", 0), (X, "c", 2))
    assert {"lost", "inconsistent offsets"} <= found(*history)


def test_lost_write_of_a_transaction_is_atomic() -> None:
    """A transaction of which one value was read has committed, whatever its producer knows."""
    unknown = sent((X, "a", None), (Y, "b", 0), transaction="t1"), [Transaction("t1", INFO, 0.5)]
    other = sent((Y, "c", None), outcome=INFO), drained((Y, "c", 1))
    assert found(*unknown, *other) == set()
    assert {"lost", "torn transactions"} <= found(*unknown, *other, polled((X, "a", 0)))


WRITTEN = sent(*((X, letter, None) for letter in ORDER), outcome=INFO)


def test_poll_skip() -> None:
    first, others = polled((X, "a", 1), (X, "b", 2)), polled((X, "c", 3), consumer="c2")
    again = polled((X, "d", 4), poll=1)
    assert "skipping polls" in found(WRITTEN, first, others, again)
    assert "skipping polls" not in found(WRITTEN, first, others, polled((X, "d", 4), poll=1, jumped=True))
    gap = polled((X, "d", 4), consumer="c3"), polled((X, "g", 7), consumer="c3", poll=1)
    assert "skipping polls" not in found(WRITTEN, *gap), "the log may have a gap"
    acknowledged = called(Send(value("f"), X, IDEMPOTENT, OK, 6, ended=0.1))
    assert "skipping polls" in found(WRITTEN[:-4], acknowledged, *gap)


def test_poll_skip_after_an_abort() -> None:
    """The positions of a transaction that was aborted are not those from which a consumer of the group goes on."""
    positions = Commit("g", "c", -1, X, 1, at=1.1, began=1.0), Committed("g", X, 1, 2.0, 2.1)
    read = polled((X, "a", 0)), polled((X, "b", 1), (X, "c", 2), poll=1), polled((X, "b", 1), poll=2, jumped=True)
    assert {"lost commits", "skipping polls"}.isdisjoint(found(WRITTEN, *read, positions))
    assert "lost commits" in found(WRITTEN, *read, positions, [Committed("g", X, 3, 3.0, 3.1)])
    skipped = polled((X, "d", 3), poll=2, jumped=True, at=3.0)
    assert "group skips" in found(WRITTEN, *read[:2], positions, skipped)


def test_nonmonotonic_poll() -> None:
    first, again = polled((X, "a", 1), (X, "b", 2), (X, "c", 3)), polled((X, "b", 2), (X, "c", 3), poll=1)
    assert "skipping polls" in found(WRITTEN, first, again)
    assert "skipping polls" not in found(WRITTEN, first, [replace(again[0], jumped=True), again[1]])


def test_nonmonotonic_send() -> None:
    assert "unordered sends" in found(sent((X, "a", 3), (X, "b", 4), (X, "c", 1), (X, "d", 2)))
    assert "unordered sends" not in found(sent((X, "a", 1), (X, "b", 2), (X, "c", 3), (X, "d", 4)))
    assert "unordered sends" not in found(sent((X, "a", 3), (Y, "b", 1))), "partitions have no common order"


@pytest.mark.parametrize("jumped", [False, True])
def test_int_poll_skip(jumped: bool) -> None:
    """Within a call of `poll` nothing excuses it."""
    first, last = polled((X, "a", 1), (X, "d", 4))
    skipping = [first, replace(last, jumped=jumped)]
    assert "skipping polls" in found(WRITTEN, skipping, polled((X, "b", 2), consumer="c2"))


def test_int_send_skip() -> None:
    mixed = sent((X, "a", 1), (X, "c", None)), sent((X, "b", None), outcome=INFO)
    assert found(*mixed, drained((X, "a", 1), (X, "b", 2), (X, "c", 3))) == set()


@pytest.mark.parametrize("jumped", [False, True])
def test_int_nonmonotonic_poll(jumped: bool) -> None:
    first, last = polled((X, "c", 3), (X, "a", 1))
    assert "skipping polls" in found(WRITTEN, [first, replace(last, jumped=jumped)])
    assert "skipping polls" in found(WRITTEN, [first, replace(first, jumped=jumped)])


def test_int_nonmonotonic_send() -> None:
    assert "unordered sends" in found(sent((X, "a", 3), (X, "c", 1)))
    inferred = sent((Y, "b", None), (Y, "d", None), outcome=INFO), drained((Y, "d", 2), (Y, "c", 3), (Y, "b", 4))
    assert "unordered sends" in found(*inferred)


def test_duplicate() -> None:
    basic = sent((X, "a", 1)), sent((X, "b", None), outcome=INFO)
    assert "duplicated" in found(*basic, drained((X, "a", 1), (X, "b", 2), (X, "a", 3)))
    assert "duplicated" not in found(*basic, drained((X, "a", 1), (X, "b", 2)))
    failed = sent((X, "b", None), outcome=FAIL)
    twice = polled((X, "a", 1)), polled((X, "a", 11), (X, "b", 12), poll=1)
    texts = violations(History().add(*sent((X, "a", 1)), *failed, *twice[0], *twice[1]))
    assert [each.split()[0] for each in texts["duplicated"]] == ["p/0"]


def test_duplicates_at_the_same_offsets_are_all_found() -> None:
    numbers = range(10)
    history = History()
    for number in numbers:
        each = Value("p", number)
        history.add(*called(Send(each, X, IDEMPOTENT, OK, 0, ended=0.1)))
        history.add(*(Read(f"c{number}", at, X, at, each, X, COMMITTED) for at in (0, 1)))
    texts = violations(history)
    assert {each.split()[0] for each in texts["duplicated"]} == {f"p/{number}" for number in numbers}
    assert [each.split(":")[0] for each in texts["inconsistent offsets"]] == ["x-0@0", "x-0@1"]


def test_unseen() -> None:
    written = sent((X, "a", 0), (X, "b", 1))
    assert len(violations(History().add(*written))["lost"]) == 2
    assert len(violations(History().add(*written, *polled((X, "a", 0))))["lost"]) == 1
    assert found(written, polled((X, "a", 0)), polled((X, "b", 1), poll=1)) == set()


def test_g0() -> None:
    """Two transactions write to two partitions, and each of them is the first in one of these."""
    sends = [
        Send(Value(name, place.partition), place, TRANSACTIONAL, OK, offset, ended=0.1, transaction=name)
        for name, place, offset in (("t1", X, 0), ("t2", X, 1), ("t2", Y, 0), ("t1", Y, 1))
    ]
    read = [Read("c", 0, each.place, each.offset or 0, each.value, each.place, COMMITTED, at=1.0) for each in sends]
    assert found(called(*sends), [Transaction("t1", OK, 0.5), Transaction("t2", OK, 0.5)], read) == set()


@pytest.mark.parametrize("requested", [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0)])
def test_g1c(requested: tuple[float, float]) -> None:
    """Two transactions read each other, each before its own commit: one of them reads what was not committed."""
    first, second = requested
    history = [
        *sent((X, "a", 0), transaction="t1"),
        *sent((Y, "b", 0), transaction="t2"),
        Transaction("t1", OK, first),
        Transaction("t2", OK, second),
        *(replace(each, transaction="t1") for each in polled((Y, "b", 0), consumer="t1", at=first - 0.1)),
        *(replace(each, transaction="t2") for each in polled((X, "a", 0), consumer="t2", at=second - 0.1)),
    ]
    assert found(history) == {"precommitted reads"}


def test_g1c_over_a_write() -> None:
    """The second one reads the first, and writes before it elsewhere: offsets are assigned before a commit."""
    history = [
        *sent((X, "a", 0), (Y, "c", 2), transaction="t1"),
        *sent((Y, "b", 1), transaction="t2"),
        Transaction("t1", OK, 1.0),
        Transaction("t2", OK, 2.0),
        *(replace(each, transaction="t2") for each in polled((X, "a", 0), consumer="t2", at=1.5)),
        *drained((X, "a", 0), (Y, "b", 1), (Y, "c", 2)),
    ]
    assert found(history) == set()


def test_precommitted_read() -> None:
    """A transaction reads its own value."""
    written = [*sent((X, "a", 0), transaction="t1"), Transaction("t1", OK, 1.0)]
    for at in (0.9, 1.1):  # a consumer may note it late
        own = [replace(each, transaction="t1") for each in polled((X, "a", 0), at=at)]
        assert found(written, own) == {"precommitted reads"}
    assert found(written, polled((X, "a", 0), at=1.1)) == set()
