"""TransactionManager against a model coordinator: lost requests, lost answers, and copies that arrive late."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyclient import errors
from pyclient.errors import KafkaError, KafkaTimeout, TransactionOutcomeUnknown
from pyclient.producer.idempotence import ProducerIds
from pyclient.producer.transaction_manager import TransactionManager, TransactionState
from pyclient.types import ErrorAction, GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.producer.transaction_coordinator import ModelCoordinator

S = TransactionState
WAITING = {S.INITIALIZING, S.COMMITTING, S.ABORTING, S.RESOLVING}
TIMEOUT = KafkaTimeout("too late")


class TransactionMachine(RuleBasedStateMachine):
    """One producer, a coordinator, and requests that get lost or late in any way.

    `number` counts the transactions that begin; `sent` has what was accepted in the present one, `promised` what the
    user saw committed, `denied` what the user saw aborted.
    """

    @initialize(version=st.sampled_from([0, 2]))
    def start(self, version):
        self.coordinator = ModelCoordinator(version)
        self.manager = TransactionManager("t", 60_000, ProducerIds(), lambda attempt: 1.0)
        self.manager.cluster_version = version
        self.now = 0.0
        self.number = 0
        self.sent, self.promised, self.denied = [], [], set()
        self.late = []  # requests and batches that are still under way: calls of the coordinator
        self.is_fenced = False  # an InitProducerId that came late has raised the epoch
        self.request = None
        self.asked = None  # the call that waits: its name
        self.manager.initialize()

    @property
    def state(self):
        return self.manager.state

    # -- the user

    @precondition(lambda self: self.state in (S.READY, S.INITIALIZING, S.OUTCOME_UNKNOWN, S.RESOLVING))
    @rule()
    def begin(self):
        if self.state is S.OUTCOME_UNKNOWN:
            self.manager.resolve()
        elif self.state is S.READY:
            self.manager.begin()
            self.number += 1
            self.sent = []

    @precondition(lambda self: self.state is S.IN_TRANSACTION)
    @rule(partition=st.integers(0, 2), fate=st.sampled_from(["written"] * 4 + ["lost", "late", "unanswered"]))
    def send(self, partition, fate):
        """Send a batch that is written, or given up with or without an effect now or later."""
        self.manager.check_send()
        if not self.manager.may_send("t", partition):
            return
        place, epoch, number = ("t", partition), self.manager.ids.epoch, self.number
        if fate in ("written", "unanswered"):
            code = self.coordinator.produce(place, epoch, number)
            if code == errors.ConcurrentTransactions.code:
                return
            if code:
                self.manager.batch_failed(errors.from_code(code, "producing"))
                self.manager.lost_a_batch()
                return
            if fate == "written":
                self.sent.append(place)
                return
        if fate == "late":
            self.late.append(lambda: self.coordinator.produce(place, epoch, number))
        self.manager.lost_a_batch()
        self.manager.batch_failed(errors.DeliveryTimeout("the batch was not confirmed"))

    @precondition(lambda self: self.state is S.IN_TRANSACTION and not self.asked)
    @rule()
    def send_offsets(self):
        offsets = {TopicPartition("in", 0): OffsetAndMetadata(5)}
        self.pending = self.manager.add_offsets(offsets, GroupMetadata("g"))
        self.asked = "offsets"

    @precondition(lambda self: self.state in (S.IN_TRANSACTION, S.OUTCOME_UNKNOWN) and not self.asked)
    @rule()
    def commit(self):
        self.manager.commit()
        self.asked = "commit"

    @precondition(lambda self: self.state in (S.IN_TRANSACTION, S.ABORTABLE_ERROR) and not self.asked)
    @rule()
    def abort(self):
        self.manager.abort()
        self.asked = "abort"

    @precondition(lambda self: self.asked)
    @rule()
    def lose_patience(self):
        committing = self.state is S.COMMITTING
        error = self.manager.give_up(TIMEOUT)
        unknown = isinstance(error, TransactionOutcomeUnknown)
        assert unknown == (self.state is S.OUTCOME_UNKNOWN)
        if committing and not unknown:
            assert (self.state, error.action) == (S.ABORTABLE_ERROR, ErrorAction.ABORT)
            self.denied.add(self.number)
        self.asked = None

    @rule(call=st.sampled_from(["initialize", "begin", "commit", "abort", "check_send"]))
    def call_at_any_time(self, call):
        """Make a call that does not fit; it raises, and changes nothing."""
        fits = {
            "initialize": {S.UNINITIALIZED, S.INITIALIZING, S.RESOLVING, S.OUTCOME_UNKNOWN},
            "begin": {S.READY},
            "commit": {S.IN_TRANSACTION, S.COMMITTING, S.OUTCOME_UNKNOWN},
            "abort": {S.IN_TRANSACTION, S.ABORTABLE_ERROR, S.ABORTING},
            "check_send": {S.IN_TRANSACTION},
        }[call]
        if self.state in fits:
            return
        before = self.state
        try:
            getattr(self.manager, call)()
        except KafkaError:
            assert self.state is before
        else:
            raise AssertionError(f"{call} was accepted while {before}")

    # -- the network

    @rule()
    def ask(self):
        """Send the request that is due; nothing waits or is in flight."""
        request = self.manager.next_request(self.now, quiet=True)
        if request is not None:
            assert self.request is None
            self.request = request
        self.finish_call()

    @precondition(lambda self: self.request)
    @rule(fate=st.sampled_from(["answered"] * 4 + ["not sent", "lost", "unanswered", "late"]))
    def end_request(self, fate):
        request, self.request = self.request, None
        if fate == "answered":
            response = self.coordinator.handle(request.message, self.number)
            self.manager.answered(request, response, self.now)
        else:
            number = self.number
            if fate == "unanswered":
                self.coordinator.handle(request.message, number)
            elif fate == "late":
                self.late.append(lambda: self.coordinator.handle(request.message, number))
            error = errors.ConnectionFailed("the connection broke")
            self.manager.lost(request, error, self.now, written=fate != "not sent")
        self.finish_call()

    @rule()
    def let_it_work(self):
        """Answer requests until none is due."""
        for _ in range(8):
            self.ask()
            if self.request is not None:
                self.end_request("answered")
            self.coordinator.write_markers()
            self.now += 1.0

    @precondition(lambda self: self.state is S.IN_TRANSACTION and not self.asked)
    @rule()
    def send_and_commit(self):
        for _ in range(2):
            if self.state is S.IN_TRANSACTION:
                self.send(0, "written")
            self.let_it_work()
        if self.state is S.IN_TRANSACTION:
            self.commit()

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive_late(self, data):
        epoch = self.coordinator.epoch
        self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))()
        self.is_fenced = self.is_fenced or self.coordinator.epoch != epoch

    @rule()
    def wait(self):
        """Let time pass; markers of a prepared end are written or not."""
        self.now += 1.0

    @rule()
    def write_markers(self):
        self.coordinator.write_markers()

    def finish_call(self):
        """Record the outcome of the waiting call, if it is done."""
        if self.asked == "offsets" and (self.pending.done or self.state is not S.IN_TRANSACTION):
            if self.pending.done:
                self.sent.append("offsets")
            self.asked = None
        elif self.asked == "commit" and self.state is not S.COMMITTING:
            if self.state in (S.READY, S.INITIALIZING):
                self.promised += [(self.number, what) for what in self.sent]
            elif self.state is S.ABORTABLE_ERROR:
                self.denied.add(self.number)
            self.asked = None
        elif self.asked == "abort" and self.state is not S.ABORTING:
            if self.state is not S.FATAL_ERROR:
                self.denied.add(self.number)
            self.asked = None

    # -- what always holds

    @invariant()
    def no_transaction_is_torn(self):
        assert not self.coordinator.torn

    @invariant()
    def reported_outcomes_hold(self):
        committed = set(self.coordinator.committed)
        assert not set(self.promised) - committed
        assert not {number for number, _ in committed} & self.denied

    def teardown(self):
        """Repair the network: every call ends, and the next transaction is possible."""
        for _ in range(60):
            if self.request is not None:
                request, self.request = self.request, None
                self.manager.answered(request, self.coordinator.handle(request.message, self.number), self.now)
            self.finish_call()
            if self.state is S.READY or self.state is S.FATAL_ERROR:
                break
            if self.state is S.OUTCOME_UNKNOWN:
                self.manager.resolve()
            elif self.state is S.ABORTABLE_ERROR or (self.state is S.IN_TRANSACTION and self.asked is None):
                self.abort()
            self.coordinator.write_markers()
            self.now += 1.0
            self.ask()
        self.no_transaction_is_torn()
        self.reported_outcomes_hold()
        assert self.state in (S.READY, S.FATAL_ERROR), self.manager
        if self.state is S.READY:
            assert self.is_fenced or self.manager.ids.epoch == self.coordinator.epoch
            assert not self.coordinator.content


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
