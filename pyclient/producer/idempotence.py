"""Idempotence: producer id, epoch and sequence numbers, by which brokers drop duplicates and refuse gaps.

The protocol is KIP-98 and KIP-360. The numbers of a partition move through four phases:

    NEW       no producer id yet
    PROBING   the broker's state is not certain: one batch at a time, in order
    STEADY    the broker confirmed the last batch before those in flight: as many as the limit allows
    BROKEN    a number is certainly missing at the broker: all later batches need a new epoch, from 0

A new epoch begins only once every request of the partition has ended, so that no batch with old numbers can come in
between, and once every batch before the missing number has an outcome under its old number, by which the broker knows
it. Its first batch is sent alone, because a broker without state of a producer accepts any first sequence; so is the
first batch after `KNOWN_SECONDS` without one, as brokers expire idle producers. In a transaction most epochs begin in
phase STEADY: see `in_next_epoch`.

The outcome of a batch is *unknown* once a request with its present numbers may have been written; until then the batch
is *clean*. A broker that has state of the producer writes in sequence only, but remembers one batch after a clean
restart, so a batch with unknown outcome that is OUT_OF_ORDER (or UNKNOWN_PRODUCER_ID) may be missing, or written and
forgotten. It is set aside (*undecided*), and the next batches with unknown outcome are sent under their numbers, in
order:

    response for the first batch without outcome      conclusion
    ------------------------------------------------  ----------------------------------------------------------------
    clean, out of order                               it and all that follow are missing: new epoch from it on
    unknown, out of order, a later one was confirmed  it is written: delivered, offset unknown (-1)
    unknown, out of order                             undecided; the next one decides
    then: the next is accepted or a duplicate         all undecided are written: delivered, offset unknown
    then: the next is unknown and out of order        undecided as well
    then: the next is clean, or there is none         none is written: the last written one would be known, or the one
                                                      after it accepted. New epoch from the first undecided on
       ... but a number before or among them failed   one may be written later, or another in its place: all undecided
       with unknown outcome, or they were split from  fail as `maybe_persisted`
       a batch with unknown outcome
    the next expires, or fails with unknown outcome   as "failed with unknown outcome" above
    INVALID_PRODUCER_EPOCH                            it and all later ones get a new producer id; those with
                                                      unknown outcome fail
    the topic was recreated (another id)              undecided ones are sent again, in order, to the new log

A request whose connection is closed may still reach the broker. If a batch failed with unknown outcome, its number may
therefore still arrive, and with it those of later requests: hence the exception in the table.
Epochs are raised by the client, for each partition: a broker compares them per partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

MAX_EPOCH: Final = 32_767
MAX_SEQUENCE: Final = 2**31 - 1
NO_PRODUCER_ID: Final = -1
EVERYTHING: Final = -1  # the position before all batches
NOTHING: Final = -1
NEVER_CONFIRMED: Final = float("-inf")
KNOWN_SECONDS: Final = 60.0
"""Time after a confirmed batch for which the broker is assumed to know the producer (`producer.id.expiration.ms`: a
day)."""


class Phase(Enum):
    """The phases of a partition's numbers; see the module."""

    NEW = "new"
    PROBING = "probing"
    STEADY = "steady"
    BROKEN = "broken"


class NumberedBatch(Protocol):
    """The numbers of a batch; `position` is its place in the partition."""

    base_sequence: int
    position: int

    @property
    def count(self) -> int:
        """The number of records."""
        ...

    def number(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Set producer id, epoch and base sequence."""
        ...


@dataclass(slots=True)
class ProducerIds:
    """The producer id that the cluster assigned to this producer; partitions use it from their first batch."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    wanted: bool = False

    @property
    def known(self) -> bool:
        """True if there is a producer id."""
        return self.producer_id != NO_PRODUCER_ID

    def obtained(self, producer_id: int, epoch: int) -> None:
        """Set the id and epoch of an InitProducerId response."""
        self.producer_id, self.epoch, self.wanted = producer_id, epoch, False

    def begin_after(self, producer_id: int, epoch: int) -> None:
        """Start partitions at a higher epoch from now on, because a partition with this one was forgotten.

        If it restarted with the same epoch, the broker would take a new batch for the old one with that number.
        """
        if self.producer_id != producer_id or epoch < self.epoch:
            return
        if epoch < MAX_EPOCH:
            self.epoch = epoch + 1
        else:
            self.used_up(producer_id)

    def used_up(self, producer_id: int) -> None:
        """Stop starting partitions with this producer id; request a new one if it is the current one."""
        if self.producer_id == producer_id:
            self.producer_id, self.wanted = NO_PRODUCER_ID, True


def add_sequence(sequence: int, count: int) -> int:
    """Return the sequence number `count` records later; 2147483647 is followed by 0."""
    return (sequence + count) & MAX_SEQUENCE


class PartitionSequence:
    """The producer id, epoch and sequence numbers of one partition."""

    __slots__ = (
        "_certain", "_confirmed", "_given_up", "_missing", "_replace_id", "confirmed_at", "epoch", "next", "phase",
        "producer_id",
    )  # fmt: skip

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self.next = 0
        self.phase = Phase.NEW
        self.confirmed_at = NEVER_CONFIRMED  # monotonic seconds
        self._confirmed = NOTHING  # the last position that the broker confirmed under these numbers
        self._certain = True  # in phase BROKEN: nothing from the missing number on is in the log
        self._given_up = NOTHING  # the last position failed with unknown outcome, unless a later one was confirmed
        self._replace_id = False
        self._missing = EVERYTHING  # in phase BROKEN: the position from which numbers are void

    def __repr__(self) -> str:
        return f"<PartitionSequence {self.phase.name} id={self.producer_id} epoch={self.epoch} next={self.next}>"

    def in_next_epoch(self, ids: ProducerIds, now: float) -> PartitionSequence:
        """Return the numbers of the partition in the next epoch of a transactional producer, which begin at 0.

        A broker that confirmed a batch of this producer id a short time ago accepts nothing but 0 as the first number
        of a later epoch. Then several batches may be sent at once: if the first is refused, so are the others, and they
        are sent again in order. Should the broker have lost what it knew, it may take a later batch first, and refuses
        the first one for good: that aborts the transaction. Otherwise the first batch is sent alone.
        """
        following = PartitionSequence()
        if self.producer_id == ids.producer_id and now - self.confirmed_at <= KNOWN_SECONDS:
            following.producer_id, following.epoch, following.phase = ids.producer_id, ids.epoch, Phase.STEADY
            following.confirmed_at = self.confirmed_at
        return following

    def prepare(self, on_wire: int, ids: ProducerIds, outstanding: Sequence[NumberedBatch]) -> bool:
        """Return True if a batch may be sent now, with `on_wire` others in flight; begin a new epoch if it is due.

        `outstanding` are the batches that have numbers and no outcome, in order. Return False also if a producer id
        must be requested first; then `ids.wanted` is set.
        """
        if self.phase is Phase.STEADY:
            return True
        if on_wire:
            return False
        if self.phase is Phase.PROBING or (outstanding and outstanding[0].position < self._missing):
            return True
        return self._begin(ids) and self._renumber(outstanding)

    def assign(self, batch: NumberedBatch) -> None:
        """Give numbers to a batch that has none yet."""
        batch.number(self.producer_id, self.epoch, self.next)
        self.next = add_sequence(self.next, batch.count)

    def delivered(self, position: int, now: float) -> None:
        """Note that the broker has the batch at `position`, and so all those with unknown outcome before it."""
        self.confirmed_at = now
        self._confirmed = max(self._confirmed, position)

    def is_written(self, position: int) -> bool:
        """Return True if the batch with unknown outcome at `position` is in the log: a later one was confirmed."""
        return position < self._confirmed

    def confirmed(self, position: int) -> None:
        """Note that the broker has the first outstanding batch, at `position`: it accepts no earlier numbers."""
        if position > self._given_up:
            self._given_up = NOTHING
        if self.phase is Phase.PROBING:
            self.phase = Phase.STEADY

    def start_probing(self) -> None:
        """Leave phase STEADY because a batch was not confirmed: later ones may have been refused because of it."""
        if self.phase is Phase.STEADY:
            self.phase = Phase.PROBING

    @property
    def may_still_arrive(self) -> bool:
        """True if a number that the broker misses may still arrive, as its batch failed with unknown outcome."""
        return self._given_up != NOTHING

    def gave_up(self, position: int) -> None:
        """Note that a numbered batch failed, and the broker may have it or still get it."""
        self._given_up = max(self._given_up, position)
        self.start_probing()

    def mark_broken(self, position: int = EVERYTHING, *, replace_id: bool = False) -> None:
        """Enter phase BROKEN: the broker refuses the numbers from `position` on, and has nothing from there on.

        With `replace_id` even a higher epoch would be refused. Then batches with unknown outcome may be in the log, as
        they may be if a later one was confirmed (see `is_uncertain`).
        """
        if self.phase is not Phase.NEW:
            certain = not replace_id and not self.is_written(position)
            if self.phase is Phase.BROKEN:
                position, certain = min(position, self._missing), certain and self._certain
            self._missing, self._certain = position, certain
            self.phase = Phase.BROKEN
            self._replace_id = self._replace_id or replace_id

    def is_uncertain(self, position: int) -> bool:
        """Return True if a batch with unknown outcome at `position` may be written, but would get new numbers."""
        return self.phase is Phase.BROKEN and not self._certain and position >= self._missing

    def needs_id(self, position: int) -> bool:
        """Return True if the batch at `position` cannot be sent before the cluster assigns a producer id."""
        if self.phase is Phase.BROKEN:
            return (self._replace_id or self.epoch >= MAX_EPOCH) and position >= self._missing
        return self.phase is Phase.NEW

    def _begin(self, ids: ProducerIds) -> bool:
        if self.producer_id != NO_PRODUCER_ID and self.epoch < MAX_EPOCH and not self._replace_id:
            self.epoch += 1
            return True
        if self.producer_id != NO_PRODUCER_ID:
            ids.used_up(self.producer_id)
        if not ids.known:
            ids.wanted = True
            return False
        self.producer_id, self.epoch, self._replace_id = ids.producer_id, ids.epoch, False
        return True

    def _renumber(self, outstanding: Sequence[NumberedBatch]) -> bool:
        self.next = 0
        for batch in outstanding:
            self.assign(batch)
        self.phase = Phase.PROBING
        self._confirmed = NOTHING
        return True
