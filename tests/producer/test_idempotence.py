"""Producer ids, epochs and sequences of one partition."""

from __future__ import annotations

from dataclasses import dataclass

from pyclient.producer.idempotence import MAX_EPOCH, PartitionSequence, Phase, ProducerIds, add_sequence


@dataclass
class Batch:
    count: int
    position: int = 0
    numbers: tuple[int, int, int] = (-1, -1, -1)
    base_sequence: int = -1

    def number(self, producer_id, epoch, base_sequence):
        self.numbers = (producer_id, epoch, base_sequence)
        self.base_sequence = base_sequence


def begun(producer_id=7, epoch=0):
    identity = ProducerIds()
    identity.obtained(producer_id, epoch)
    sequence = PartitionSequence()
    assert sequence.prepare(0, identity, [])
    return sequence, identity


def test_nothing_is_sent_without_a_producer_id_and_one_is_requested():
    sequence, identity = PartitionSequence(), ProducerIds()
    assert not sequence.prepare(0, identity, []) and identity.wanted
    identity.obtained(7, 3)
    assert sequence.prepare(0, identity, []) and not identity.wanted
    assert (sequence.producer_id, sequence.epoch, sequence.next) == (7, 3, 0)


def test_first_batch_is_sent_alone():
    sequence, identity = begun()
    first, second = Batch(10), Batch(5)
    sequence.assign(first)
    assert not sequence.prepare(1, identity, [first])
    sequence.confirmed(0)
    assert sequence.prepare(1, identity, []) and sequence.phase is Phase.STEADY
    sequence.assign(second)
    assert (first.numbers, second.numbers, sequence.next) == ((7, 0, 0), (7, 0, 10), 15)


def test_batches_after_a_doubt_are_sent_one_at_a_time_until_confirmed():
    sequence, identity = begun()
    sequence.confirmed(0)
    sequence.start_probing()
    assert [sequence.prepare(on_wire, identity, []) for on_wire in (2, 1, 0)] == [False, False, True]
    assert sequence.phase is Phase.PROBING


def test_new_epoch_begins_with_nothing_in_flight_and_renumbers_the_rest():
    sequence, identity = begun()
    sequence.confirmed(0)
    left = [Batch(3), Batch(4)]
    for batch in left:
        sequence.assign(batch)
    sequence.mark_broken()
    assert not sequence.prepare(1, identity, left) and left[0].numbers == (7, 0, 0)
    assert sequence.prepare(0, identity, left)
    assert [batch.numbers for batch in left] == [(7, 1, 0), (7, 1, 3)] and sequence.next == 7
    assert sequence.phase is Phase.PROBING


def test_batch_before_the_missing_number_keeps_its_old_number():
    sequence, identity = begun()
    sequence.confirmed(0)
    first, second = Batch(3, position=0), Batch(4, position=5)
    for batch in (first, second):
        sequence.assign(batch)
    sequence.mark_broken(3)
    assert not sequence.prepare(1, identity, [first, second])
    assert sequence.prepare(0, identity, [first, second]) and first.numbers == (7, 0, 0)
    sequence.confirmed(0)
    assert sequence.prepare(0, identity, [second]) and second.numbers == (7, 1, 0)


def test_the_first_of_several_missing_numbers_counts():
    sequence, identity = begun()
    batch = Batch(3, position=4)
    sequence.assign(batch)
    sequence.mark_broken(9)
    sequence.mark_broken(4)
    sequence.mark_broken(20)
    assert sequence.prepare(0, identity, [batch]) and batch.numbers == (7, 1, 0)


def test_last_epoch_is_followed_by_a_new_producer_id():
    sequence, identity = begun(epoch=MAX_EPOCH - 1)
    sequence.mark_broken()
    assert sequence.prepare(0, identity, []) and sequence.epoch == MAX_EPOCH
    sequence.mark_broken()
    assert not sequence.prepare(0, identity, []) and identity.wanted and not identity.known
    identity.obtained(8, 0)
    assert sequence.prepare(0, identity, []) and (sequence.producer_id, sequence.epoch) == (8, 0)


def test_refused_epoch_needs_a_new_producer_id_for_this_partition_only():
    sequence, identity = begun()
    other = PartitionSequence()
    assert other.prepare(0, identity, [])
    sequence.mark_broken(replace_id=True)
    assert not sequence.prepare(0, identity, []) and identity.wanted
    assert other.prepare(0, identity, []) and other.producer_id == 7
    identity.obtained(8, 0)
    assert sequence.prepare(0, identity, []) and sequence.producer_id == 8
    other.mark_broken()
    assert other.prepare(0, identity, []) and (other.producer_id, other.epoch) == (7, 1)


def test_partitions_start_after_the_epoch_of_forgotten_ones():
    sequence, identity = begun(epoch=3)
    sequence.mark_broken()
    assert sequence.prepare(0, identity, []) and sequence.epoch == 4
    identity.begin_after(sequence.producer_id, sequence.epoch)
    identity.begin_after(99, 1000)  # another producer id's epochs say nothing about this one's
    identity.begin_after(7, 2)
    again = PartitionSequence()
    assert again.prepare(0, identity, []) and (again.producer_id, again.epoch, again.next) == (7, 5, 0)


def test_partitions_after_the_last_epoch_start_with_a_new_producer_id():
    sequence, identity = begun(epoch=MAX_EPOCH)
    identity.begin_after(sequence.producer_id, sequence.epoch)
    assert identity.wanted and not PartitionSequence().prepare(0, identity, [])


def test_number_of_unknown_outcome_may_arrive_until_a_later_confirmation():
    sequence, _ = begun()
    sequence.gave_up(7)
    sequence.gave_up(4)
    assert sequence.may_still_arrive
    sequence.confirmed(5)  # an older batch, which was on its way when that one was given up
    assert sequence.may_still_arrive
    sequence.confirmed(8)
    assert not sequence.may_still_arrive


def test_sequences_wrap_as_kafkas_do():
    assert add_sequence(2**31 - 3, 2) == 2**31 - 1
    assert add_sequence(2**31 - 3, 3) == 0
    assert add_sequence(2**31 - 1, 5) == 4
