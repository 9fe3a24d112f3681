"""Producer id, epoch and sequence numbers (KIP-98, KIP-360): what lets a broker drop duplicates and refuse gaps.

The numbers of a partition move through four phases:

    NEW       no producer id yet
    PROBING   what the broker has is not certain: one batch at a time, in order
    STEADY    the broker confirmed the last batch before those on their way: as many as may be in flight
    BROKEN    a number is certainly missing at the broker: what comes behind it needs a new epoch, from 0

A new epoch begins only once every request of the partition has ended, so that no batch with old numbers can slip in
between, and once every batch before the missing number has an outcome under its old one, by which the broker knows it.
It goes out alone first, because a broker that has no state of a producer takes any first sequence; so does the first
batch after `KNOWN_SECONDS` without one, as brokers forget idle producers.

A batch is *doubtful* once a request with its present numbers may have been written, else *clean*. A broker that has
state of the producer writes in sequence only, but remembers one batch after a clean restart, so a doubtful batch that
is OUT_OF_ORDER (or UNKNOWN_PRODUCER_ID) may be missing, or written and forgotten. It is set aside (*undecided*), and
the next doubtful ones are sent under their numbers, in order:

    answer for the first batch that has no outcome    what follows from it
    ------------------------------------------------  ----------------------------------------------------------------
    clean, out of order                               it and all that follow are missing: new epoch from it on
    doubtful, out of order, a later one was confirmed  it is written: delivered, offset unknown (-1)
    doubtful, out of order                            undecided; the next one decides
    then: the next is accepted or a duplicate         all undecided are written: delivered, offset unknown
    then: the next is doubtful and out of order       undecided as well
    then: the next is clean, or there is none         none is written: the last batch that was would be known, or the
                                                      one after it accepted. New epoch from the first undecided on
       ... but a number before or among them was      one may be written later, or another in its place: all undecided
       given up in doubt, or they are parts of a      fail as `maybe_persisted`
       doubtful batch that was split
    the next expires, or fails in doubt               as "given up in doubt" above
    INVALID_PRODUCER_EPOCH                            it and what follows get a new producer id; doubtful ones fail
    the topic was created again (another id)          undecided ones are sent again, in order, to the new log

A request whose connection is gone may still reach the broker. Where a batch was given up in doubt, its number may
therefore come after all, and with it those of the requests that follow it: hence the exception in the table.
Epochs are raised here, partition by partition: a broker compares them per partition.
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
KNOWN_SECONDS: Final = 60.0
"""How long after a confirmed batch a broker is taken to know the producer (`producer.id.expiration.ms`: a day)."""


class Phase(Enum):
    """See the module."""

    NEW = "new"
    PROBING = "probing"
    STEADY = "steady"
    BROKEN = "broken"


class Numbered(Protocol):
    """A batch as far as its numbers go; `position` tells its place in the partition."""

    base_sequence: int
    position: int

    @property
    def count(self) -> int:
        """How many records it holds."""
        ...

    def number(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Takes its numbers."""
        ...


@dataclass(slots=True)
class ProducerIdentity:
    """The producer id that the cluster gave this producer; partitions take it when they first need one."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    wanted: bool = False

    @property
    def known(self) -> bool:
        """Whether there is a producer id."""
        return self.producer_id != NO_PRODUCER_ID

    def obtained(self, producer_id: int, epoch: int) -> None:
        """InitProducerId was answered."""
        self.producer_id, self.epoch, self.wanted = producer_id, epoch, False

    def begin_after(self, producer_id: int, epoch: int) -> None:
        """A partition's numbers are forgotten: whatever begins from now on begins behind its epoch.

        Were they begun again under the same one, the broker would take a new batch for the old one of that number.
        """
        if self.producer_id != producer_id or epoch < self.epoch:
            return
        if epoch < MAX_EPOCH:
            self.epoch = epoch + 1
        else:
            self.used_up(producer_id)

    def used_up(self, producer_id: int) -> None:
        """No partition may begin with this producer id any more; a new one is wanted if it is the current one."""
        if self.producer_id == producer_id:
            self.producer_id, self.wanted = NO_PRODUCER_ID, True


def add_sequence(sequence: int, count: int) -> int:
    """The sequence number `count` records later; after 2147483647 comes 0."""
    return (sequence + count) & MAX_SEQUENCE


class PartitionSequence:
    """The numbers of one partition."""

    __slots__ = (
        "_certain", "_confirmed", "_given_up", "_hole", "_replace_id", "confirmed_at", "epoch", "next", "phase",
        "producer_id",
    )  # fmt: skip

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self.next = 0
        self.phase = Phase.NEW
        self.confirmed_at = 0.0  # monotonic seconds
        self._confirmed = NOTHING  # the last position that the broker confirmed under these numbers
        self._certain = True  # in phase BROKEN: nothing from the missing number on is in the log
        self._given_up = NOTHING  # the last position given up in doubt, if nothing behind it was confirmed since
        self._replace_id = False
        self._hole = EVERYTHING  # in phase BROKEN: the position from which on numbers are void

    def __repr__(self) -> str:
        return f"<PartitionSequence {self.phase.name} id={self.producer_id} epoch={self.epoch} next={self.next}>"

    def prepare(self, on_wire: int, identity: ProducerIdentity, outstanding: Sequence[Numbered]) -> bool:
        """Whether a batch may be sent now, with `on_wire` others on their way; begins a new epoch if it is time.

        `outstanding` are the batches that have numbers and no outcome, in order. False also if a producer id has to
        be asked for first; then `identity.wanted` is set.
        """
        if self.phase is Phase.STEADY:
            return True
        if on_wire:
            return False
        if self.phase is Phase.PROBING or (outstanding and outstanding[0].position < self._hole):
            return True
        return self._begin(identity) and self._renumber(outstanding)

    def assign(self, batch: Numbered) -> None:
        """Numbers a batch that has no numbers yet."""
        batch.number(self.producer_id, self.epoch, self.next)
        self.next = add_sequence(self.next, batch.count)

    def delivered(self, position: int, now: float) -> None:
        """The broker has the batch at `position`, and so all doubtful ones before it."""
        self.confirmed_at = now
        self._confirmed = max(self._confirmed, position)

    def is_written(self, position: int) -> bool:
        """Return True if the doubtful batch at `position` is in the log, as a later one was confirmed."""
        return position < self._confirmed

    def confirmed(self, position: int) -> None:
        """The broker has the first outstanding batch, at `position`: it takes no numbers from before it any more."""
        if position > self._given_up:
            self._given_up = NOTHING
        if self.phase is Phase.PROBING:
            self.phase = Phase.STEADY

    def doubted(self) -> None:
        """A batch was not confirmed: those behind it may have been refused for it, or not."""
        if self.phase is Phase.STEADY:
            self.phase = Phase.PROBING

    @property
    def haunted(self) -> bool:
        """Whether a number that the broker misses may still arrive, as its batch was given up in doubt."""
        return self._given_up != NOTHING

    def gave_up(self, position: int) -> None:
        """A numbered batch gets no further attempt, and whether the broker has it or will have it is not known."""
        self._given_up = max(self._given_up, position)
        self.doubted()

    def broke(self, position: int = EVERYTHING, *, replace_id: bool = False) -> None:
        """The broker does not take the numbers from `position` on, and certainly has nothing from there on.

        `replace_id` if even a higher epoch would be refused; then doubtful batches may be in the log all the same, as
        they may be if a later one was confirmed (see `is_uncertain`).
        """
        if self.phase is not Phase.NEW:
            certain = not replace_id and not self.is_written(position)
            if self.phase is Phase.BROKEN:
                position, certain = min(position, self._hole), certain and self._certain
            self._hole, self._certain = position, certain
            self.phase = Phase.BROKEN
            self._replace_id = self._replace_id or replace_id

    def is_uncertain(self, position: int) -> bool:
        """Return True if a doubtful batch at `position` may be written, and would get new numbers all the same."""
        return self.phase is Phase.BROKEN and not self._certain and position >= self._hole

    def needs_id(self, position: int) -> bool:
        """Return True if the batch at `position` cannot be sent before the cluster gives out a producer id."""
        if self.phase is Phase.BROKEN:
            return (self._replace_id or self.epoch >= MAX_EPOCH) and position >= self._hole
        return self.phase is Phase.NEW

    def _begin(self, identity: ProducerIdentity) -> bool:
        if self.producer_id != NO_PRODUCER_ID and self.epoch < MAX_EPOCH and not self._replace_id:
            self.epoch += 1
            return True
        if self.producer_id != NO_PRODUCER_ID:
            identity.used_up(self.producer_id)
        if not identity.known:
            identity.wanted = True
            return False
        self.producer_id, self.epoch, self._replace_id = identity.producer_id, identity.epoch, False
        return True

    def _renumber(self, outstanding: Sequence[Numbered]) -> bool:
        self.next = 0
        for batch in outstanding:
            self.assign(batch)
        self.phase = Phase.PROBING
        self._confirmed = NOTHING
        return True
