"""The state machine of a transactional id, step by step and by random events against a model."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.transactions.events import (
    AddPartitions,
    CompleteLater,
    EndTransaction,
    Forget,
    InitProducerId,
    Loaded,
    MarkersWritten,
    NeedProducerId,
    Outcome,
    Reply,
    Tick,
    Write,
    Written,
)
from pyclient.broker_embedded.transactions.log_records import TransactionRecord, decode, encode
from pyclient.broker_embedded.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LAST_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREVIOUS,
    TransactionMetadata,
    TransactionState,
)
from pyclient.broker_embedded.transactions.transaction import Transaction
from pyclient.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT, EXPIRATION = 1_000, 100_000
LOST = errors.CoordinatorNotAvailable.code
OK, CONCURRENT, FENCED = 0, errors.ConcurrentTransactions.code, errors.ProducerFenced.code
INVALID_STATE, OTHER_ID = errors.InvalidTxnState.code, errors.InvalidProducerIdMapping.code


class Coordinator:
    """One transactional id with its log: a list of metadata. `step` carries out effects one at a time."""

    def __init__(self, version: int, metadata: TransactionMetadata | None = None) -> None:
        self.version = version
        self.now = 0
        self.log: list[TransactionMetadata] = []
        self.states: list[TransactionMetadata] = []  # the records of the log that counted
        self.next_id = 100
        self.answers: dict[int, Outcome] = {}
        self.todo: deque[Any] = deque()
        self.markers: list[TransactionMetadata] = []
        self.forgotten = False
        self.begin(metadata or TransactionMetadata(transactional_id="x", producer_id=7, timeout_ms=1, last_update_ms=0))

    def begin(self, metadata: TransactionMetadata) -> None:
        self.transaction = Transaction(metadata)

    @property
    def metadata(self) -> TransactionMetadata:
        return self.transaction.metadata

    def give(self, event: Any, producer_id: int = -1) -> None:
        effects = self.transaction.receive(event, self.now, producer_id=producer_id)
        assert not any(isinstance(each, Write) for each in effects[:-1])
        for effect in effects:
            match effect:
                case NeedProducerId(again):
                    self.next_id += 1
                    self.give(again, self.next_id)
                case Reply(number, outcome):
                    assert number not in self.answers, "answered twice"
                    self.answers[number] = outcome
                case Forget():
                    self.forgotten = True
                case _:
                    self.todo.append(effect)

    def step(self, error: int = 0, *, too_late: bool = False) -> None:
        """Carry out an effect. A write that is `too_late` counts as failed, although it is in the log."""
        match self.todo.popleft():
            case Write(metadata):
                if not error:
                    self.log.append(metadata)
                if not error and not too_late:
                    self.states.append(metadata)
                self.give(Written(LOST if too_late else error))
            case CompleteLater(prepared):
                self.give(MarkersWritten(prepared, frozenset()))
            case effect:
                self.markers.append(effect.prepared)
                self.give(MarkersWritten(effect.prepared, effect.prepared.partitions))

    def run(self) -> None:
        while self.todo:
            self.step()

    def ask(self, event: Any, **fields: Any) -> Outcome:
        """Send a request, and carry out everything that follows from it."""
        number = self.send(event, **fields)
        self.run()
        return self.answers[number]

    def send(self, event: Any, **fields: Any) -> int:
        number = len(self.answers) + 1000 * len(self.todo)
        if event is InitProducerId:
            fields = {"timeout_ms": TIMEOUT, "version": self.version, **fields}
        elif event is AddPartitions:
            fields = {"partitions": frozenset({A}), "client_version": self.version, **fields}
        else:
            fields = {"client_version": self.version, **fields}
        self.give(event(reply=number, **fields))
        return number

    def restart(self) -> None:
        """Forget everything but the log."""
        self.todo.clear()
        if self.log[-1:] != self.states[-1:]:
            self.states.append(self.log[-1])
        self.begin(self.log[-1])
        self.give(Loaded())


def own(outcome: Outcome) -> dict[str, int]:
    return {"producer_id": outcome.producer_id, "producer_epoch": outcome.producer_epoch}


def started(version: int) -> tuple[Coordinator, dict[str, int]]:
    made = Coordinator(version)
    producer = own(made.ask(InitProducerId))
    assert made.ask(AddPartitions, **producer).error == OK
    return made, producer


both = pytest.mark.parametrize("version", [0, 2])


@both
def test_a_decision_is_written_before_the_markers_and_the_answer(version: int) -> None:
    made, producer = started(version)
    number = made.send(EndTransaction, commit=True, **producer)
    assert (made.metadata.state, number in made.answers) == (ONGOING, False)
    made.step()
    assert (made.metadata.state, number in made.answers, made.markers) == (PREPARE_COMMIT, True, [])
    made.run()
    assert [each.state for each in made.log] == [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]
    assert (made.metadata.partitions, made.markers[0].partitions) == (frozenset(), {A})


@both
def test_everyone_waits_while_markers_are_missing(version: int) -> None:
    made, producer = started(version)
    made.send(EndTransaction, commit=False, **producer)
    made.step()
    later = {"producer_id": made.metadata.producer_id, "producer_epoch": made.metadata.producer_epoch}
    waiting = [
        made.send(InitProducerId),
        made.send(AddPartitions, **later),
        made.send(EndTransaction, commit=False, **later),
    ]
    assert [made.answers[number].error for number in waiting] == [CONCURRENT] * 3
    made.run()
    assert made.metadata.state is COMPLETE_ABORT


def test_epochs_stay_and_an_end_can_be_repeated_before_version_2() -> None:
    made, producer = started(0)
    for _ in range(2):
        assert own(made.ask(EndTransaction, commit=True, **producer)) == producer
    assert made.ask(EndTransaction, commit=False, **producer).error == INVALID_STATE
    assert made.ask(AddPartitions, **producer).error == OK
    assert made.markers[-1].producer_epoch == producer["producer_epoch"]


def test_version_2_raises_the_epoch_and_knows_a_repeated_end() -> None:
    made, producer = started(2)
    following = own(made.ask(EndTransaction, commit=True, **producer))
    assert following == {**producer, "producer_epoch": 1}
    assert made.markers[-1].producer_epoch == 1
    assert own(made.ask(EndTransaction, commit=True, **producer)) == following
    assert made.ask(EndTransaction, commit=False, **producer).error == INVALID_STATE
    assert made.ask(AddPartitions, **producer).error == FENCED
    assert made.ask(EndTransaction, commit=True, **following).error == INVALID_STATE
    assert own(made.ask(EndTransaction, commit=False, **following)) == {**producer, "producer_epoch": 2}
    assert [each.state for each in made.log[-2:]] == [PREPARE_ABORT, COMPLETE_ABORT]


@both
def test_a_new_producer_aborts_the_old_ones_transaction_and_fences_it(version: int) -> None:
    made, zombie = started(version)
    assert made.ask(InitProducerId).error == CONCURRENT
    assert (made.metadata.state, made.markers[-1].producer_epoch) == (COMPLETE_ABORT, 1)
    new = own(made.ask(InitProducerId))
    assert new == {**zombie, "producer_epoch": 2}
    assert made.ask(AddPartitions, **zombie).error == FENCED
    assert made.ask(EndTransaction, commit=True, **zombie).error == FENCED
    assert made.ask(InitProducerId, expected=tuple(zombie.values())).error == FENCED
    assert made.ask(AddPartitions, **{**new, "producer_id": 1}).error == OTHER_ID


def test_a_producer_raises_its_own_epoch_and_may_repeat_that() -> None:
    made = Coordinator(0)
    first = made.ask(InitProducerId)
    second = made.ask(InitProducerId, expected=(first.producer_id, first.producer_epoch))
    assert own(second) == {**own(first), "producer_epoch": 1}
    assert made.ask(InitProducerId, expected=(first.producer_id, first.producer_epoch)) == second
    assert made.ask(InitProducerId, expected=(1, 0)).error == FENCED


@both
def test_a_timed_out_transaction_is_aborted_and_its_producer_fenced(version: int) -> None:
    made, producer = started(version)
    made.now = TIMEOUT
    made.give(Tick(expiration_ms=EXPIRATION, version=version))
    assert made.metadata.state is ONGOING
    made.now += 1
    made.give(Tick(expiration_ms=EXPIRATION, version=version))
    made.run()
    assert (made.metadata.state, made.markers[-1].producer_epoch) == (COMPLETE_ABORT, 1)
    error = made.ask(EndTransaction, commit=True, **producer).error
    assert error == (INVALID_STATE if version == 2 else FENCED)
    assert made.ask(AddPartitions, **producer).error == FENCED


@both
def test_an_unused_id_is_removed(version: int) -> None:
    made, producer = started(version)
    made.ask(EndTransaction, commit=True, **producer)
    made.now = EXPIRATION - 1
    made.give(Tick(expiration_ms=EXPIRATION))
    assert not made.todo
    made.now = EXPIRATION
    made.give(Tick(expiration_ms=EXPIRATION))
    made.run()
    assert (made.forgotten, made.log[-1].state) == (True, TransactionState.DEAD)


def exhausted(version: int) -> tuple[Coordinator, dict[str, int]]:
    made = Coordinator(
        version,
        TransactionMetadata(
            transactional_id="x", producer_id=7, producer_epoch=LAST_EPOCH - 1, timeout_ms=1, last_update_ms=0
        ),
    )
    producer = own(made.ask(InitProducerId))
    assert producer == {"producer_id": 7, "producer_epoch": LAST_EPOCH}
    assert made.ask(AddPartitions, **producer).error == OK
    return made, producer


def test_version_2_goes_on_with_a_new_id_after_the_last_epoch() -> None:
    made, producer = exhausted(2)
    number = made.send(EndTransaction, commit=True, **producer)
    made.step()
    assert own(made.answers[number]) == {"producer_id": 101, "producer_epoch": 0}
    assert (made.log[-1].producer_id, made.log[-1].producer_epoch) == (7, LAST_EPOCH + 1)
    made.restart()
    made.run()
    assert (made.markers[-1].producer_id, made.markers[-1].producer_epoch) == (7, LAST_EPOCH + 1)
    repeated = made.ask(EndTransaction, commit=True, **producer)
    assert own(repeated) == own(made.answers[number])
    assert made.ask(AddPartitions, **own(repeated)).error == OK


@both
def test_new_producer_gets_a_new_id_after_the_last_epoch(version: int) -> None:
    made, producer = exhausted(version)
    assert made.ask(InitProducerId).error == CONCURRENT
    new = own(made.ask(InitProducerId))
    assert new["producer_id"] > 100
    assert new["producer_epoch"] == (1 if version == 2 else 0)
    assert made.ask(AddPartitions, **producer).error == OTHER_ID


def test_a_failed_write_changes_nothing_but_one_fencing_epoch() -> None:
    made, producer = started(0)
    number = made.send(EndTransaction, commit=True, **producer)
    made.step(LOST)
    assert (made.answers[number].error, made.metadata.state) == (LOST, ONGOING)
    for _ in range(3):
        number = made.send(InitProducerId)
        made.step(LOST)
        assert made.answers[number].error == LOST
    assert made.ask(EndTransaction, commit=True, **producer).error == FENCED
    assert made.ask(InitProducerId).error == CONCURRENT
    assert made.metadata.producer_epoch == 1


@pytest.mark.parametrize("error", [LOST, errors.UnknownServerError.code])
def test_a_lost_completion_is_written_again(error: int) -> None:
    made, producer = started(2)
    made.send(EndTransaction, commit=True, **producer)
    made.step()
    made.step()
    made.step(error)
    assert made.metadata.state is PREPARE_COMMIT
    assert [type(effect) for effect in made.todo] == ([CompleteLater] if error == LOST else [])
    if error != LOST:
        made.give(Tick(expiration_ms=EXPIRATION))
    made.run()
    assert made.metadata.state is COMPLETE_COMMIT


def test_verification_names_partitions_outside_the_transaction() -> None:
    made, producer = started(2)
    both_partitions = frozenset({A, B})

    def verify(producer_id: int, epoch: int) -> dict[TopicPartition, int]:
        return made.transaction.verify(producer_id, epoch, both_partitions)

    known = producer["producer_id"], producer["producer_epoch"]
    assert verify(*known) == {A: 0, B: errors.TransactionAbortable.code}
    assert set(verify(known[0], 9).values()) == {FENCED}
    assert set(verify(1, 0).values()) == {OTHER_ID}
    made.send(EndTransaction, commit=True, **producer)
    made.step()
    assert set(verify(known[0], made.metadata.producer_epoch).values()) == {CONCURRENT}


_PARTITIONS = st.frozensets(st.sampled_from([A, B]), min_size=1)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), st.booleans()),
        st.tuples(st.just("add"), _PARTITIONS),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("step"), st.sampled_from(["", "", "", "fails", "comes too late"])),
        st.tuples(st.just("switch"), st.integers(0, 3)),
        st.tuples(st.just("time"), st.integers(1, 1500)),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=60,
)


class Producers:
    """Four producers that share a transactional id; each knows the producer id and epoch of its last response."""

    def __init__(self, made: Coordinator, epoch: int) -> None:
        self._made = made
        self._identities: list[tuple[int, int]] = [(7, epoch)] * 4
        self._open: dict[int, tuple[int, str, tuple[int, int]]] = {}
        self.current = 0

    def ask(self, number: int, kind: str, argument: Any, version: int) -> None:
        """Send a request of the current producer."""
        mine = self._identities[self.current]
        given = {"reply": number, "producer_id": mine[0], "producer_epoch": mine[1], "client_version": version}
        if kind == "init":
            expected = mine if argument and mine[1] >= 0 else None
            self._made.give(InitProducerId(reply=number, timeout_ms=TIMEOUT, expected=expected, version=version))
        elif kind == "add":
            self._made.give(AddPartitions(partitions=argument, **given))
        else:
            self._made.give(EndTransaction(commit=argument, **given))
        if kind != "add":
            self._open[number] = (self.current, kind, mine)

    def take_answers(self, version: int) -> None:
        """Note the producer ids and epochs in new answers."""
        for answered in [each for each in self._open if each in self._made.answers]:
            producer, kind, before = self._open.pop(answered)
            outcome = self._made.answers[answered]
            if outcome.error == OK and (kind == "init" or version == 2):
                self._identities[producer] = outcome.producer_id, outcome.producer_epoch
            if outcome.error == OK and kind == "end":
                metadata = self._made.metadata
                assert before[0] in (metadata.producer_id, metadata.previous_producer_id)


def check_states(made: Coordinator) -> None:
    """Check each state in the log against the one before it."""
    for before, after in zip(made.states, made.states[1:], strict=False):
        fenced = TransactionState.PREPARE_EPOCH_FENCE if before.state is ONGOING else before.state
        assert {before.state, fenced} & PREVIOUS[after.state]
        if before.producer_id == after.producer_id:
            assert after.producer_epoch >= before.producer_epoch
        else:
            assert (before.producer_epoch >= LAST_EPOCH, after.producer_epoch) == (True, 0)
        if after.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
            assert before in made.markers or not before.partitions


@given(version=st.sampled_from([0, 2]), epoch=st.sampled_from([-1, LAST_EPOCH - 3]), steps=_STEPS)
def test_the_log_follows_the_table_whatever_happens(version: int, epoch: int, steps: list[tuple[str, Any]]) -> None:
    """Mix requests, writes, late ones, failures, timeouts and restarts of several producers that share an id."""
    made = Coordinator(
        version,
        TransactionMetadata(
            transactional_id="x", producer_id=7, producer_epoch=epoch, timeout_ms=TIMEOUT, last_update_ms=0
        ),
    )
    made.log.append(made.metadata)
    made.states.append(made.metadata)
    producers = Producers(made, epoch)
    for number, (kind, argument) in enumerate(steps, 10_000):
        if kind in ("init", "add", "end"):
            producers.ask(number, kind, argument, version)
        elif kind == "step" and made.todo:
            made.step(LOST if argument == "fails" else 0, too_late=argument == "comes too late")
        elif kind == "switch":
            producers.current = argument
        elif kind == "time":
            made.now += argument
            made.give(Tick(expiration_ms=10**9, version=version))
        elif kind == "restart":
            made.restart()
        producers.take_answers(version)
    made.run()
    check_states(made)
    assert made.metadata.state not in (PREPARE_COMMIT, PREPARE_ABORT), "a decided transaction is always completed"
    if version == 2:  # each transaction has its epoch
        decisions = {(each.producer_id, each.producer_epoch, each.state) for each in made.markers}
        assert len(decisions) == len({decision[:2] for decision in decisions}), "committed here and aborted there"


@given(
    version=st.sampled_from([1, 2]),
    state=st.sampled_from(
        [state for state in TransactionState if state not in (TransactionState.PREPARE_EPOCH_FENCE, EMPTY)]
    ),
    numbers=st.tuples(*[st.integers(-1, 2**31 - 1)] * 6),
    epoch=st.integers(-1, 32767),
    partitions=st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9))),
)
def test_records_are_read_as_they_were_written(
    version: int, state: TransactionState, numbers: Any, epoch: int, partitions: Any
) -> None:
    metadata = TransactionMetadata(
        transactional_id="é",
        producer_id=numbers[0],
        previous_producer_id=numbers[1],
        next_producer_id=numbers[2],
        producer_epoch=epoch,
        timeout_ms=numbers[3],
        state=state,
        partitions=partitions,
        start_ms=numbers[4],
        last_update_ms=numbers[5],
        client_version=2,
    )
    key, value = encode("é", metadata, version=version)
    assert decode(key, value) == TransactionRecord("é", metadata)
    assert decode(*encode("é", None, version=version)) == TransactionRecord("é", None)


def test_records_before_version_1_have_the_format_of_older_releases() -> None:
    metadata = TransactionMetadata(
        transactional_id="x", producer_id=1, producer_epoch=2, timeout_ms=3, last_update_ms=4, state=EMPTY
    )
    _key, value = encode("x", metadata, version=0)
    assert value == bytes.fromhex("0000 0000000000000001 0002 00000003 00 ffffffff 0000000000000004 ffffffffffffffff")
    _key, value = encode("x", metadata, version=2)
    assert value == bytes.fromhex("0001 0000000000000001 0002 00000003 00 00 0000000000000004 ffffffffffffffff 00")
