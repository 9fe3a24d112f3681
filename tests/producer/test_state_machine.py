"""Accumulator, sender and idempotence together, against a model broker that loses, refuses and delays at random."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyclient import errors
from pyclient.backoff import Backoff
from pyclient.clock import SYSTEM_CLOCK
from pyclient.producer.delivery import BatchResult, DeliveryContext, State
from pyclient.producer.futures import DeliveryFuture
from pyclient.producer.produce_response import PartitionAnswer
from pyclient.producer.record_accumulator import RecordAccumulator
from pyclient.producer.sender import ProduceWork, Sender, SenderConfig
from pyclient.records import Compression
from tests.producer.replica import Replica

PARTITIONS = 4
CONNECTIONS = 3
BATCH_SIZE = 256


class Immediately:
    """Runs callbacks where they are."""

    def submit(self, calls):
        for callback, argument in calls:
            callback(argument)


def make(context, *, idempotent, timeout, max_in_flight=5, memory=8192):
    accumulator = RecordAccumulator(
        context, random.Random(1), batch_size=BATCH_SIZE, buffer_memory=memory, linger=0.1, delivery_timeout=timeout
    )
    sender = Sender(
        accumulator,
        random.Random(2),
        SenderConfig(
            idempotent=idempotent,
            max_in_flight=max_in_flight,
            max_connections=CONNECTIONS,
            max_request_size=10**6,
            retries=2**31 - 1,
            backoff=Backoff(0.1, 1.0),
            delivery_timeout_ms=int(timeout * 1000),
        ),
    )
    return accumulator, sender


class ProducerMachine(RuleBasedStateMachine):
    """Sends, answers, losses and the clock in any order; two brokers share the partitions' replicas.

    Each has up to three connections, whose requests it takes in any order but for those of one connection.
    """

    idempotent = True
    max_in_flight = 5
    timeout = 60.0
    jumps = (0.05, 0.2, 1.0, 5.0, 40.0)

    @initialize(sequence=st.sampled_from([0, 2**31 - 3]), epoch=st.sampled_from([0, 32_766]))
    def begin(self, sequence, epoch):
        self.now = 100.0
        self.context = DeliveryContext(Immediately(), None, SYSTEM_CLOCK)
        self.accumulator, self.sender = make(
            self.context, idempotent=self.idempotent, timeout=self.timeout, max_in_flight=self.max_in_flight
        )
        self.total = self.accumulator.pool.available
        self.replicas = [Replica() for _ in range(PARTITIONS)]
        self.leaders = [0] * PARTITIONS
        self.connections = [1, 1]  # connections to each broker
        self.topic_id = uuid.uuid4()
        self._metadata()
        self.sender.producer_ids.obtained(7, epoch)
        if self.idempotent and sequence:  # as if so many records had been sent before
            for queue in self.topic.queues:
                assert queue.sequence.prepare(0, self.sender.producer_ids, [])
                queue.sequence.next = sequence
        self.wire: dict[tuple[int, int], list[tuple[ProduceWork, dict[int, bytes]]]] = {
            (node, index): [] for node in (0, 1) for index in range(CONNECTIONS)
        }
        self.sent: list[list[tuple[bytes, DeliveryFuture, float]]] = [[] for _ in range(PARTITIONS)]
        self.late: list[tuple[int, list[list[tuple[int, bytes]]]]] = []  # node, and its requests on one dead connection
        self.completions: dict[int, int] = {}
        self.counter = 0

    def _metadata(self):
        self.topic = self.accumulator.update_topic("t", self.topic_id, self.leaders, self.now)

    # -- actions of the producer

    def send_alone(self, partition):
        """Send a record in its own batch at once."""
        self._send(partition, b"%d" % self.counter)
        self.accumulator.close_open(self.topic.queues[partition])
        self._step()

    def wait(self, seconds):
        """Let time pass."""
        self.now += seconds
        self._step()

    def _send(self, partition, value):
        queue = self.topic.queues[partition]
        future = queue.append(1000 + self.counter, None, value, None)
        if future is None:
            self.accumulator.close_open(queue)
            buffer = self.accumulator.pool.try_acquire(BATCH_SIZE)
            if buffer is None:
                return
            self.accumulator.open_batch(queue, buffer, self.now)
            future = queue.append(1000 + self.counter, None, value, None)
        number = self.counter
        self.counter += 1
        self.sent[partition].append((value, future, self.now))
        self.completions[number] = 0
        future.add_done_callback(lambda _: self.completions.__setitem__(number, self.completions[number] + 1))

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 20))
    def send(self, partition, count):
        for _ in range(count):
            self._send(partition, b"%d" % self.counter)

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def send_what_the_broker_refuses(self, partition):
        self._send(partition, b"bad %d" % self.counter)

    def _notify(self, results: list[BatchResult]):
        for result in results:
            result.notify()

    def _step(self):
        self._notify(self.sender.begin(self.now))
        if self.sender.refresh_wanted:
            self.sender.refresh_wanted = False
            self._metadata()
        if self.sender.producer_ids.wanted:
            self.sender.producer_ids.obtained(self.counter + 1000, 0)
        for node in self.accumulator.ready_nodes():
            self.sender.node(node).set_connections(self.connections[node])
            for index in range(self.connections[node]):
                self._drain(node, index)
        if self.idempotent:
            for partition in range(PARTITIONS):
                self._check_on_wire(partition)

    def _drain(self, node, index):
        wire = self.wire[node, index]
        while (work := self.sender.drain(node, self.now, index)) is not None:
            assert len(wire) < self.max_in_flight
            wire.append((work, {id(b): bytes(b.seal(Compression.NONE, None)) for b in work.batches}))

    def _check_on_wire(self, partition):
        """Assert that a partition's batches in flight are on one connection."""
        places = {
            place
            for place, works in self.wire.items()
            for work, _ in works
            if any(batch.queue.partition == partition for batch in work.batches)
        }
        assert len(places) <= 1

    @rule()
    def step(self):
        self._step()

    @rule(data=st.data())
    def time_passes(self, data):
        self.wait(data.draw(st.sampled_from(self.jumps)))

    @rule()
    def flush(self):
        self.accumulator.make_all_ready()
        self._step()

    # -- actions of brokers and network

    def _bytes(self, work, copies, batch):
        sealed = bytes(batch.seal(Compression.NONE, None))
        assert sealed == copies[id(batch)], "the bytes of a request changed while it was on the wire"
        return sealed

    def _apply(self, node, work, copies, refuse=None):
        answers = {}
        for batch in work.batches:
            data = self._bytes(work, copies, batch)
            partition = batch.queue.partition
            if self.leaders[partition] != node:
                answer = PartitionAnswer(errors.NotLeaderOrFollower.code)
            else:
                answer = PartitionAnswer(refuse) if refuse else self.replicas[partition].append(data)
            answers[("t", partition)] = answer
        return answers

    @precondition(lambda self: any(self.wire.values()))
    @rule(
        data=st.data(),
        how=st.sampled_from(["ok", "ok", "ok", "refused", "written, answered with an error", "left out"]),
    )
    def a_broker_answers(self, data, how):
        place = data.draw(st.sampled_from([place for place, works in self.wire.items() if works]))
        work, copies = self.wire[place].pop(0)
        self._answer(work, copies, data, how)

    def answer(self, node, index=0):
        """Let a broker handle the first request of a connection and respond."""
        work, copies = self.wire[node, index].pop(0)
        self._notify(self.sender.answered(work, self._apply(node, work, copies), 0, self.now))
        self._step()

    @rule(node=st.integers(0, 1), connections=st.integers(1, CONNECTIONS))
    def connections_come_and_go(self, node, connections):
        """Change the number of connections; requests in flight on unused ones are still answered."""
        self.connections[node] = connections
        self._step()

    def _answer(self, work, copies, data, how):
        before = errors.NotEnoughReplicas.code, errors.CorruptMessage.code, errors.LeaderNotAvailable.code
        after = errors.NotEnoughReplicasAfterAppend.code, errors.RequestTimedOut.code, errors.NotLeaderOrFollower.code
        refusal = data.draw(st.sampled_from(before)) if how == "refused" else None
        answers = self._apply(work.node, work, copies, refusal)
        if how == "written, answered with an error":
            answers = {place: PartitionAnswer(data.draw(st.sampled_from(after))) for place in answers}
        elif how == "left out":
            answers.popitem()
        self._notify(self.sender.answered(work, answers, 0, self.now))
        self._step()

    @precondition(lambda self: any(self.wire.values()))
    @rule(data=st.data())
    def a_connection_breaks(self, data):
        node, index = data.draw(st.sampled_from([place for place, works in self.wire.items() if works]))
        self.break_connection(node, data.draw(st.integers(0, len(self.wire[node, index]))), index)

    def break_connection(self, node, reached, index=0):
        """Break a connection of which `reached` requests arrive now, and the others perhaps later."""
        works, self.wire[node, index] = self.wire[node, index], []
        for work, copies in works[:reached]:
            self._apply(node, work, copies)
        if works[reached:]:
            left = [[(b.queue.partition, copies[id(b)]) for b in work.batches] for work, copies in works[reached:]]
            self.late.append((node, left))
        for work, _ in works:
            self._notify(self.sender.lost(work, errors.ConnectionFailed("broken"), written=True, now=self.now))
        self._step()

    @precondition(lambda self: self.late)
    @rule(data=st.data(), count=st.integers(1, 3))
    def requests_of_a_broken_connection_arrive_late(self, data, count):
        self.arrive_late(data.draw(st.integers(0, len(self.late) - 1)), count)

    def arrive_late(self, at, count):
        """Let the broker receive the next requests of a connection that the producer has closed."""
        node, requests = self.late[at]
        for request in requests[:count]:
            for partition, batch in request:
                if self.leaders[partition] == node:
                    self.replicas[partition].append(batch)
        del requests[:count]
        if not requests:
            del self.late[at]

    @rule(partition=st.integers(0, PARTITIONS - 1), refresh=st.booleans())
    def a_leader_moves(self, partition, refresh):
        self.leaders[partition] = 1 - self.leaders[partition]
        if refresh:
            self._metadata()

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def all_replicas_of_a_partition_restart_cleanly(self, partition):
        self.replicas[partition].restart()

    @rule(partition=st.integers(0, PARTITIONS - 1), limit=st.sampled_from([100, 150, 10**9]))
    def the_topic_limits_batches(self, partition, limit):
        self.replicas[partition].max_bytes = limit

    # -- invariants

    @invariant()
    def no_future_outlives_its_deadline(self):
        if not hasattr(self, "sent"):
            return
        for sent in self.sent:
            for _, future, at in sent:
                delivery, _ = future.batch.locate(future.index)
                assert delivery.state is not State.PENDING or self.now - at < self.timeout + max(self.jumps) + 1

    def teardown(self):
        if not hasattr(self, "sent"):
            return
        for replica in self.replicas:
            replica.max_bytes = 10**9
        self.accumulator.make_all_ready()
        for _ in range(10_000):
            self._step()
            for (node, index), works in self.wire.items():
                if works:
                    self.answer(node, index)
            if not self.accumulator.incomplete and not any(self.wire.values()):
                break
            self.now += 0.01
        self._judge()

    def _judge(self):
        assert all(count == 1 for count in self.completions.values()), "a future completes exactly once"
        assert self.accumulator.pool.available == self.total, "every buffer went back"
        assert not any(queue.waiting or queue.on_wire or queue.outstanding for queue in self.topic.queues)
        for partition, sent in enumerate(self.sent):
            log = self.replicas[partition].log
            for value, future, _ in sent:
                error = future.exception(0)
                if error is None:
                    offset = future.result(0).offset
                    assert log[offset] == value if offset >= 0 else value in log
                elif not error.maybe_persisted:
                    assert value not in log
            if self.idempotent:
                assert len(log) == len(set(log)), "no duplicates"
            if self.idempotent or self.max_in_flight == 1:
                order = {one[0]: number for number, one in enumerate(sent) if self._keeps_its_place(one)}
                first_places = [order[value] for value in dict.fromkeys(log) if value in order]
                assert first_places == sorted(first_places), "the log keeps the order of the calls"
        self.context.failures.take()

    def _keeps_its_place(self, sent):
        """Return True if a record in the log must be at the place of its call."""
        error = sent[1].exception(0)
        return self.idempotent or error is None or not error.maybe_persisted


class HastyMachine(ProducerMachine):
    """Batches expire soon, while others continue and requests of closed connections still arrive."""

    timeout = 2.0
    jumps = (0.2, 0.5, 1.0)


class UnorderedMachine(ProducerMachine):
    """Without idempotence there may be duplicates, but nothing is lost and no buffer is reused too early."""

    idempotent = False


class OneInFlightMachine(ProducerMachine):
    """Without idempotence and with one request in flight the order of first appearance is kept.

    Except for records that were given up with an unknown outcome: the last request of a lost connection may be written
    at any later time, and without sequence numbers no broker can detect that it comes too late.
    """

    idempotent = False
    max_in_flight = 1


class HastyOneInFlightMachine(OneInFlightMachine):
    """The same where records are given up soon."""

    timeout = HastyMachine.timeout
    jumps = HastyMachine.jumps


@pytest.mark.parametrize(
    "machine", [ProducerMachine, HastyMachine, UnorderedMachine, OneInFlightMachine, HastyOneInFlightMachine]
)
def test_every_record_ends_once_in_order_and_every_buffer_comes_back(machine):
    case = machine.TestCase()
    case.settings = settings(
        max_examples=40, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
    )
    case.runTest()
