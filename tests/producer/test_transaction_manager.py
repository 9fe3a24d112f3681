"""TransactionManager: what it sends in which order, and what it makes of the answers; the machine has the rest."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.errors import KafkaTimeout, TransactionOutcomeUnknown, TransactionStateError
from pyclient.producer.idempotence import ProducerIds
from pyclient.producer.transaction_manager import TRANSITIONS, TransactionEvent, TransactionManager, TransactionState
from pyclient.protocol.messages.end_txn import EndTxnResponse
from pyclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pyclient.types import ErrorAction, GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.producer.transaction_coordinator import ModelCoordinator

S = TransactionState
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(5, "note", 3)}
LOST = errors.ConnectionFailed("the connection broke")


class Fixture:
    """A manager that is initialized, and its coordinator."""

    def __init__(self, version):
        self.coordinator = ModelCoordinator(version)
        self.manager = TransactionManager("t", 60_000, ProducerIds(), lambda attempt: 1.0)
        self.manager.cluster_version = version
        self.now = 0.0
        self.manager.initialize()
        assert self.work() == ["InitProducerId v5"]

    def ask(self, quiet=True):
        self.now += 1.0
        self.coordinator.write_markers()
        return self.manager.next_request(self.now, quiet=quiet)

    def work(self):
        """Answer requests until none is due; return their names with the highest version in which they may be sent."""
        sent = []
        while (request := self.ask()) is not None:
            sent.append(f"{request.message.name} v{request.maximum}")
            self.manager.answered(request, self.coordinator.handle(request.message, 1), self.now)
        return sent

    def commit_offsets(self):
        """Run a transaction up to its commit, whose request is the next one."""
        self.manager.begin()
        self.manager.add_offsets(OFFSETS, GroupMetadata("g"))
        self.work()
        self.manager.commit()

    def refuse(self, code):
        """Answer the next request, an EndTxn or InitProducerId, with this code."""
        request = self.ask()
        kind = EndTxnResponse if request.message.name == "EndTxn" else InitProducerIdResponse
        more = {"throttle_time_ms": 0} if kind is EndTxnResponse else {"producer_epoch": -1}
        return self.manager.answered(request, kind(error_code=code, **more), self.now)

    def lose(self, written=True):
        request = self.ask()
        self.manager.lost(request, LOST, self.now, written=written)
        return request


@pytest.fixture(params=[0, 2])
def fixture(request):
    return Fixture(request.param)


@pytest.fixture
def old():
    return Fixture(0)


@pytest.fixture
def new():
    return Fixture(2)


def test_old_protocol_adds_partitions_and_groups_by_requests(old):
    manager = old.manager
    manager.begin()
    assert not manager.may_send("out", 1)
    assert old.work() == ["AddPartitionsToTxn v3"]
    assert manager.may_send("out", 1)
    pending = manager.add_offsets(OFFSETS, GroupMetadata("g", 4, "member", "instance"))
    assert old.work() == ["AddOffsetsToTxn v4", "TxnOffsetCommit v4"] and pending.done
    manager.commit()
    assert old.ask(quiet=False) is None
    assert old.work() == ["EndTxn v4"]
    assert (manager.state, manager.ids.epoch) == (S.READY, 0)


def test_new_protocol_needs_neither_and_gets_the_next_epoch_with_the_end(new):
    manager = new.manager
    manager.begin()
    assert manager.may_send("out", 1)
    assert new.coordinator.produce(("out", 1), manager.ids.epoch, 1) == 0
    manager.add_offsets(OFFSETS, GroupMetadata("g"))
    assert new.work() == ["TxnOffsetCommit v5"]
    manager.commit()
    assert new.work() == ["EndTxn v5"]
    assert (manager.state, manager.ids.epoch) == (S.READY, 1)


def test_offsets_carry_the_member_that_read_them(fixture):
    fixture.manager.begin()
    fixture.manager.add_offsets(OFFSETS, GroupMetadata("g", 4, "member", "instance"))
    request = fixture.ask()
    while request.message.name != "TxnOffsetCommit":
        fixture.manager.answered(request, fixture.coordinator.handle(request.message, 1), fixture.now)
        request = fixture.ask()
    message = request.message
    assert (request.kind, request.key) == (0, "g")
    assert (message.generation_id, message.member_id, message.group_instance_id) == (4, "member", "instance")
    [topic] = message.topics
    [part] = topic.partitions
    assert (topic.name, part.partition_index, part.committed_offset) == ("in", 0, 5)
    assert (part.committed_leader_epoch, part.committed_metadata) == (3, "note")


def test_empty_transaction_needs_no_request(fixture):
    for end in (fixture.manager.commit, fixture.manager.abort):
        fixture.manager.begin()
        end()
        assert fixture.work() == [] and fixture.manager.state is S.READY


def test_wrong_calls_say_what_comes_first():
    manager = TransactionManager("t", 1, ProducerIds(), lambda attempt: 1.0)
    for call in (manager.begin, manager.commit, manager.abort, manager.check_send):
        with pytest.raises(TransactionStateError, match=r"'t': .* while the producer is not initialized: call init_tr"):
            call()
    ready = Fixture(2).manager
    with pytest.raises(TransactionStateError, match=r"a send is not possible .* call begin_transaction\(\) first"):
        ready.check_send()
    with pytest.raises(TransactionStateError):
        ready.initialize()


def test_end_without_an_answer_is_unknown_until_it_is_asked_again(fixture):
    manager = fixture.manager
    fixture.commit_offsets()
    fixture.lose()
    error = manager.give_up(KafkaTimeout("no answer within 1 s"))
    assert isinstance(error, TransactionOutcomeUnknown) and error.action is ErrorAction.RETRY
    with pytest.raises(TransactionStateError):
        manager.abort()
    manager.commit()
    assert fixture.work()[0].startswith("EndTxn")
    assert manager.state is S.READY and fixture.coordinator.ended == {1: True}


def test_outcome_stays_unknown_if_the_second_question_is_never_sent(fixture):
    manager = fixture.manager
    fixture.commit_offsets()
    request = fixture.ask()
    assert isinstance(manager.give_up(KafkaTimeout("no answer within 1 s")), TransactionOutcomeUnknown)
    manager.answered(request, fixture.coordinator.handle(request.message, 1), fixture.now)  # too late
    manager.commit()
    assert isinstance(manager.give_up(KafkaTimeout("no answer within 1 s")), TransactionOutcomeUnknown)
    manager.commit()
    fixture.work()
    assert manager.state is S.READY and fixture.coordinator.ended == {1: True}


def test_end_that_may_arrive_late_costs_its_epoch(old):
    manager = old.manager
    old.commit_offsets()
    late = old.lose()
    assert old.work() == ["EndTxn v4", "InitProducerId v5"]
    assert manager.ids.epoch == 1
    manager.begin()
    manager.may_send("out", 0)
    old.work()
    assert old.coordinator.end(late.message, 1).error_code == errors.ProducerFenced.code


def test_unknown_outcome_is_resolved_before_the_next_transaction(fixture):
    manager = fixture.manager
    fixture.commit_offsets()
    fixture.lose()
    manager.give_up(KafkaTimeout("no answer within 1 s"))
    manager.initialize()
    end = "EndTxn v5" if manager.version else "EndTxn v4"
    assert fixture.work() == [end, "InitProducerId v5"]
    assert manager.state is S.READY and fixture.coordinator.ended == {1: True}


def test_timeout_before_the_end_was_sent_only_allows_an_abort(fixture):
    manager = fixture.manager
    fixture.commit_offsets()
    assert fixture.ask(quiet=False) is None
    error = manager.give_up(KafkaTimeout("the records were not confirmed within 1 s"))
    assert type(error) is KafkaTimeout and error.action is ErrorAction.ABORT
    for call in (manager.commit, manager.check_send):
        with pytest.raises(KafkaTimeout) as caught:
            call()
        assert caught.value.action is ErrorAction.ABORT
    manager.abort()
    fixture.work()
    assert manager.state is S.READY and fixture.coordinator.ended == {1: False}


@pytest.mark.parametrize("code", [errors.ProducerFenced.code, errors.InvalidProducerEpoch.code])
def test_fenced_producer_is_done_for(fixture, code):
    manager = fixture.manager
    fixture.commit_offsets()
    fixture.refuse(code)
    for call in (manager.begin, manager.abort, manager.commit, manager.check_send, manager.initialize):
        with pytest.raises(errors.ProducerFenced, match="a newer producer") as caught:
            call()
        assert caught.value.action is ErrorAction.RESTART


def test_refused_transactional_id_is_a_matter_of_configuration(fixture):
    manager = TransactionManager("t", 1, ProducerIds(), lambda attempt: 1.0)
    manager.initialize()
    request = manager.next_request(0.0, quiet=True)
    denied = InitProducerIdResponse(error_code=errors.TransactionalIdAuthorizationFailed.code, producer_epoch=-1)
    manager.answered(request, denied, 0.0)
    with pytest.raises(errors.TransactionalIdAuthorizationFailed) as caught:
        manager.begin()
    assert caught.value.action is ErrorAction.CONFIGURE


def test_batch_that_failed_costs_the_transaction_and_its_epoch(old):
    manager = old.manager
    manager.begin()
    manager.may_send("out", 0)
    old.work()
    manager.lost_a_batch()
    manager.batch_failed(errors.DeliveryTimeout("not confirmed"))
    assert isinstance(manager.unsent_fail, errors.TransactionAborted)
    manager.abort()
    assert old.work() == ["EndTxn v4", "InitProducerId v5"]
    assert (manager.state, manager.ids.epoch, manager.unsent_fail) == (S.READY, 1, None)


def test_coordinator_that_moved_is_looked_up_again(fixture):
    fixture.commit_offsets()
    assert fixture.refuse(errors.NotCoordinator.code) is True
    assert fixture.refuse(errors.ConcurrentTransactions.code) is False
    fixture.work()
    assert fixture.manager.state is S.READY


def test_pauses_while_markers_are_written_grow_from_two_milliseconds(fixture):
    fixture.commit_offsets()
    pauses = []
    for _ in range(6):
        fixture.refuse(errors.ConcurrentTransactions.code)
        pauses.append(round(fixture.manager.retry_at - fixture.now, 6))
    assert pauses == [0.002, 0.004, 0.008, 0.016, 0.02, 0.02]
    fixture.work()
    assert fixture.manager.state is S.READY


def test_every_state_but_the_last_can_be_left():
    assert set(TRANSITIONS) == set(TransactionState)
    left = {state for state, following in TRANSITIONS.items() if following}
    assert left == set(TransactionState) - {S.FATAL_ERROR}
    assert {event for following in TRANSITIONS.values() for event in following} == set(TransactionEvent)
