"""Requests of closed connections that reach the broker later."""

from __future__ import annotations

import random

import pytest

from pyclient import errors
from tests.producer.test_state_machine import CONNECTIONS, HastyMachine, HastyOneInFlightMachine

NODE = 0
WANDERER = 3  # a partition that is on another connection whenever there are two


def begun(kind=HastyMachine, partition=0):
    """Return a machine whose first record the broker has confirmed."""
    machine = kind()
    machine.begin(0, 0)
    machine.send_alone(partition)
    machine.answer(NODE)
    return machine


def test_batch_is_not_renumbered_while_its_old_number_may_still_arrive():
    """The older of two lost batches is given up; its number is missing when the younger is tried again, and then both
    of the old requests arrive, before the new epoch would have kept them out."""
    machine = begun()
    machine.send_alone(0)
    machine.wait(1.0)
    machine.send_alone(0)
    machine.break_connection(NODE, 0)
    machine.wait(1.0)  # the older one's time is over, the younger goes out alone
    machine.answer(NODE)
    machine.arrive_late(0, 2)
    machine.teardown()
    assert machine.replicas[0].log == [b"0", b"1", b"2"]
    older, younger = (future.exception(0) for _, future, _ in machine.sent[0][1:])
    assert isinstance(older, errors.DeliveryTimeout) and older.maybe_persisted
    assert isinstance(younger, errors.OutOfOrderSequenceNumber) and younger.maybe_persisted
    assert "could duplicate records" in str(younger)


def test_unsent_batch_is_sent_under_a_new_epoch():
    machine = begun()
    machine.send_alone(0)
    machine.break_connection(NODE, 0)
    machine.wait(2.0)
    machine.send_alone(0)
    machine.answer(NODE)  # out of order: the batch before it is missing
    machine.arrive_late(0, 1)
    machine.teardown()
    assert machine.replicas[0].log == [b"0", b"1", b"2"]
    assert machine.sent[0][2][1].result(0).offset == 2


def test_later_confirmation_rules_out_old_requests():
    machine = begun()
    machine.send_alone(0)
    machine.break_connection(NODE, 1)  # written, and not answered
    machine.wait(2.0)
    machine.send_alone(0)
    machine.answer(NODE)  # in order: so the lost one was written
    queue = machine.topic.queues[0]
    assert machine.sent[0][2][1].result(0).offset == 2 and not queue.sequence.may_still_arrive
    machine.teardown()
    assert machine.replicas[0].log == [b"0", b"1", b"2"]


def test_failed_record_without_idempotence_may_be_written_later():
    """No client can take back what an old connection still carries; only sequence numbers let a broker see it."""
    machine = begun(HastyOneInFlightMachine)
    machine.send_alone(0)
    machine.break_connection(NODE, 0)
    machine.wait(3.0)
    machine.send_alone(0)
    machine.answer(NODE)
    machine.arrive_late(0, 1)
    machine.teardown()
    assert machine.replicas[0].log == [b"0", b"2", b"1"]
    assert machine.sent[0][1][1].exception(0).maybe_persisted


def test_retried_record_without_idempotence_keeps_its_first_place():
    machine = begun(HastyOneInFlightMachine)
    machine.send_alone(0)
    machine.break_connection(NODE, 0)
    machine.wait(1.0)
    machine.send_alone(0)
    assert len(machine.wire[NODE, 0]) == 1
    machine.answer(NODE)
    machine.answer(NODE)
    machine.arrive_late(0, 1)
    machine.teardown()
    assert machine.replicas[0].log == [b"0", b"1", b"2", b"1"]  # twice, which idempotence would prevent


@pytest.mark.parametrize("kind", [HastyMachine, HastyOneInFlightMachine])
@pytest.mark.parametrize("seeds", [range(start, start + 100) for start in range(0, 400, 100)])
def test_late_requests_neither_duplicate_nor_reorder_records(seeds, kind):
    """Seeded walks that lose connections, let time run out and let old requests in, far more often than chance.

    The number of connections to a broker changes under way, and with it the partition's own.
    """
    for seed in seeds:
        rng = random.Random(seed)
        machine = begun(kind, WANDERER)
        for _ in range(60):
            steps = {"send": 4, "break": 2, "wait": 3, "answer": 4, "late": 2, "spread": 0.5, "move": 0.2, "restart": 1}
            what = rng.choices([*steps], [*steps.values()])[0]
            node = machine.leaders[WANDERER]
            connections = [index for index in range(CONNECTIONS) if machine.wire[node, index]]
            if what == "send":
                machine.send_alone(WANDERER)
            elif what == "break" and connections:
                index = rng.choice(connections)
                machine.break_connection(node, rng.choice((0, 0, len(machine.wire[node, index]))), index)
            elif what == "wait":
                machine.wait(rng.choice((0.2, 0.5, 1.0)))
            elif what == "answer" and connections:
                machine.answer(node, rng.choice(connections))
            elif what == "late" and machine.late:
                machine.arrive_late(rng.randrange(len(machine.late)), rng.randint(1, 3))
            elif what == "spread":
                machine.connections_come_and_go(node, rng.randint(1, CONNECTIONS))
            elif what == "restart":
                machine.all_replicas_of_a_partition_restart_cleanly(WANDERER)
            elif what == "move":
                machine.a_leader_moves(WANDERER, rng.random() < 0.5)
        machine.teardown()
