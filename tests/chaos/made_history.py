"""A history made by hand, of a cluster that keeps its promises, in which tests plant violations."""

from __future__ import annotations

import itertools
from dataclasses import replace

from tests.chaos.checkers import Limits, check
from tests.chaos.history import (
    COMMITTED,
    FAIL,
    IDEMPOTENT,
    INFO,
    OK,
    PLAIN,
    TRANSACTIONAL,
    UNCOMMITTED,
    Assignment,
    Batch,
    Call,
    Commit,
    Committed,
    Ends,
    Fault,
    FoundTopic,
    History,
    Log,
    Place,
    Read,
    ReplicaState,
    Send,
    StoredRecord,
    TopicChange,
    Transaction,
    Value,
)

A, B = Place("a", 0), Place("b", 0)
OFFSETS = Place("__consumer_offsets", 0)
ALL_RECORDS = [(0, 71, 1), (1, 72, 2), (2, 71, 3), (3, -1, 4), (4, 71, 5), (5, 72, 6)]
COMPACTED = {1: ALL_RECORDS, 2: ALL_RECORDS[3:], 3: ALL_RECORDS[4:]}
"""Offsets, keys and checksums in the logs of the nodes: two of them have compacted different parts."""
TIMEOUT = 30.0
LIMITS = Limits(delivery_timeout=TIMEOUT, recovery=10.0, progress=2, progress_seconds=10.0)
TOPIC_CHANGES = {
    "kept": [(1, OK), (2, OK)],
    "deleted": [(1, OK), (0, OK)],
    "perhaps made": [(1, INFO)],
    "perhaps grown": [(1, OK), (2, INFO)],
    "perhaps deleted": [(1, OK), (0, INFO)],
}


def send(number: int, place: Place = A, producer: str = "p1", kind: str = IDEMPOTENT, outcome: str = OK) -> Send:
    """Return the `number`-th send of a producer, at the offset of that number."""
    offset = number if outcome == OK else None
    return Send(Value(producer, number), place, kind, outcome, offset, began=number, ended=number + 0.01)


def called(*sends: Send) -> list[Call | Send]:
    """Return sends with their calls."""
    return [*(Call(each.value, each.place, each.began) for each in sends), *sends]


def reads(*sends: Send, consumer: str = "c1", isolation: str = COMMITTED) -> list[Read]:
    return [
        Read(consumer, at // 3, each.place, each.value.number, each.value, each.place, isolation)
        for at, each in enumerate(sends)
    ]


def state(node: int = 1, at: float = 0.0, **changes: object) -> ReplicaState:
    plain = ReplicaState(node, 1, A, at, 1, 5, (1, 2, 3), (1, 2, 3), 10, 12, 10, 20)
    return replace(plain, **changes)  # type: ignore[arg-type]


def stored(node: int, offset: int, key: int, crc: int, leader_epoch: int = 5) -> StoredRecord:
    return StoredRecord(node, OFFSETS, offset, leader_epoch, key, crc)


def commit(member: str, at: float, offset: int, outcome: str = OK) -> Commit:
    """Return a commit of a member of the group h."""
    return Commit("h", member, 1, A, offset, at=at + 0.1, began=at, outcome=outcome)


def commits(member: str, *times_and_offsets: tuple[float, int]) -> list[Commit]:
    return [commit(member, at, offset) for at, offset in times_and_offsets]


def clean() -> History:
    """Return a history without violations: sends of every kind and outcome, read by two consumers."""
    sends = [send(number) for number in range(30)]
    sends[7] = send(7, outcome=INFO)
    sends[20] = send(20, outcome=FAIL)
    own = [replace(send(number, B, "p2", PLAIN), began=0.0, ended=0.02) for number in range(5)]
    twice = replace(own[2], value=Value("p2", 2))
    in_transaction = [
        replace(send(number, B, "t1", TRANSACTIONAL), transaction=name)
        for number, name in ((5, "t1-1"), (6, "t1-1"), (7, "t1-2"), (8, "t1-3"), (9, "t1-3"))
    ]
    history = History().add(*called(*sends, *own, *in_transaction))
    history.add(Transaction("t1-1", OK, 7.0), Transaction("t1-2", FAIL), Transaction("t1-3", INFO, 10.0))
    written = [each for each in sends if each.outcome != FAIL]
    for consumer in ("c1", "c2"):
        history.add(*reads(*written, consumer=consumer))
        visible = [each for each in in_transaction if each.transaction != "t1-2"]
        history.add(*(replace(each, at=11.0) for each in reads(*own, *visible, consumer=consumer)))
    history.add(Read("c1", 9, B, 20, twice.value, B, COMMITTED))  # a producer that is not idempotent may write twice
    history.add(*reads(*own, *in_transaction, consumer="c3", isolation=UNCOMMITTED))
    history.add(*(state(node, at=at) for node in (1, 2, 3) for at in (0.0, 1.0)))
    for node, at in itertools.product((1, 2, 3), range(3)):
        history.add(Batch(node, A, at * 10, at * 10 + 9, 7 + at, leader_epoch=5))
    history.add(*(Log(node, A, 0, 30) for node in (1, 2, 3)), *(Log(node, OFFSETS, 0, 6) for node in (1, 2, 3)))
    history.add(*(stored(node, *each) for node in (1, 2, 3) for each in COMPACTED[node]))
    history.add(*(state(node, place=OFFSETS, high_watermark=6, end_offset=6, stable_offset=6) for node in (1, 2, 3)))
    history.add(Assignment("g", "m1", 1, (A,)), Assignment("g", "m2", 1, (B,)), Assignment("g", "m2", 2, (A, B)))
    history.add(*reads(*written[:4], consumer="m1"))
    history.add(*(replace(each, at=2.0) for each in reads(*written[4:7], consumer="m2")))
    history.add(Commit("g", "m1", 1, A, 4), Commit("g", "m2", 2, A, 6, at=2.0))
    history.add(*commits("m8", (1.0, 4), (2.0, 8)), commit("m8", 3.0, 6, INFO), *commits("m9", (5.0, 8), (6.0, 15)))
    history.add(
        *(Committed("h", A, offset, at, at) for offset, at in ((-1, 0.5), (4, 1.5), (8, 2.5), (6, 3.5), (15, 7)))
    )
    history.add(*(replace(each, at=0.9) for each in reads(*written[:8], consumer="m8")))
    again = [replace(each, at=4.8) for each in reads(*written[8:24], consumer="m9")]
    history.add(replace(again[0], jumped=True), *again[1:])
    history.add(*(Ends(B, stable, 10, at) for stable, at in ((4, 1.0), (7, 15.0), (7, 30.0), (10, 34.0), (10, 90.0))))
    for topic, changes in TOPIC_CHANGES.items():
        history.add(*(TopicChange(topic, *each) for each in changes))
    history.add(FoundTopic("kept", 2), FoundTopic("perhaps grown", 2), FoundTopic("perhaps deleted", 1))
    return history.add(Fault("kill a leader", 5.0, 6.0))


def violations(history: History) -> dict[str, list[str]]:
    return check(history, LIMITS)
