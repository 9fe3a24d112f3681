"""Placement of new replicas over brokers and racks (Kafka's striped placement). Pure.

Racks take turns, and so do the brokers in a rack, from random starts, so that leaders and replicas are spread evenly.
Fenced brokers get replicas only when no other broker is left in a rack, and never the first replica, the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

T = TypeVar("T")

NONE_USABLE: Final = "All brokers are currently fenced, or have all their log directories cordoned."
"""Kafka's message when there is no broker for a new leader."""


class UsableBroker(NamedTuple):
    """A broker that may get replicas."""

    node_id: int
    rack: str | None
    fenced: bool = False


class _Ring(Generic[T]):
    """Members in turn. In each round every one is returned once, from the next start on."""

    def __init__(self, members: Sequence[T], rng: Random) -> None:
        self.members = list(members)
        self._rng = rng
        self._start = rng.randrange(len(self.members)) if len(self.members) > 1 else 0
        self._taken = 0
        self._round = 0

    def next(self, number: int) -> T | None:
        """Return the next member in round `number`; None if all have been returned in it."""
        if not self.members:
            return None
        if self._round != number:
            self._round = number
            self._taken = 0
            self._start += 1
        if self._taken == len(self.members):
            return None
        self._taken += 1
        return self.members[(self._start + self._taken - 1) % len(self.members)]

    def shuffle(self) -> None:
        """Put the members in random order."""
        self._rng.shuffle(self.members)


class _Rack:
    def __init__(self, brokers: Sequence[UsableBroker], rng: Random) -> None:
        self.unfenced = _Ring(sorted(each.node_id for each in brokers if not each.fenced), rng)
        self._fenced = _Ring(sorted(each.node_id for each in brokers if each.fenced), rng)

    def next(self, number: int) -> int | None:
        """Return the next broker in round `number`, fenced ones last; None if all have been returned in it."""
        chosen = self.unfenced.next(number)
        return self._fenced.next(number) if chosen is None else chosen

    def shuffle(self) -> None:
        """Put the brokers in random order."""
        self.unfenced.shuffle()
        self._fenced.shuffle()


class StripedReplicaPlacer:
    """Chooses the replicas of one new partition after another. `brokers` are those that may get replicas."""

    def __init__(self, brokers: Iterable[UsableBroker], rng: Random) -> None:
        by_rack: dict[str, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack or "", []).append(broker)
        self._racks = [_Rack(by_rack[name], rng) for name in sorted(by_rack)]
        self._rng = rng
        self._count = sum(len(members) for members in by_rack.values())
        self._unfenced = sum(not broker.fenced for members in by_rack.values() for broker in members)
        self._start = rng.randrange(len(self._racks)) if len(self._racks) > 1 else 0
        self._round = 0

    def check(self, replication_factor: int) -> None:
        """Raise `InvalidReplicationFactor`, with Kafka's message, if partitions cannot have so many replicas."""
        if replication_factor <= 0:
            raise errors.InvalidReplicationFactor(
                f"Invalid replication factor {replication_factor}: the replication factor must be positive."
            )
        if not self._unfenced:
            raise errors.InvalidReplicationFactor(NONE_USABLE)
        if replication_factor > self._count:
            raise errors.InvalidReplicationFactor(
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._count} broker(s) are registered."
            )

    def place(self, replication_factor: int) -> list[int]:
        """Return the replicas of the next partition, the leader first. Raise `InvalidReplicationFactor`."""
        self.check(replication_factor)
        if self._round == self._unfenced and self._unfenced > 1:  # otherwise the same assignments would be repeated
            self._rng.shuffle(self._racks)
            for rack in self._racks:
                rack.shuffle()
            self._round = 0
        if self._start == len(self._racks):
            self._start = 0
        leaders_rack, leader = self._leader()
        replicas = [leader]
        position, skip = self._start, leaders_rack
        while len(replicas) < replication_factor:
            if position == skip:  # the leader's rack has had its turn in this pass over the racks
                skip = -1
            else:
                chosen = self._racks[position].next(self._round)
                if chosen is not None:
                    replicas.append(chosen)
            position = (position + 1) % len(self._racks)
        self._round += 1
        self._start += 1
        return replicas

    def _leader(self) -> tuple[int, int]:
        """Return the first rack with an unfenced broker, and the broker."""
        racks = len(self._racks)
        for step in range(racks):
            position = (self._start + step) % racks
            chosen = self._racks[position].unfenced.next(self._round)
            if chosen is not None:
                return position, chosen
        raise errors.InvalidReplicationFactor(NONE_USABLE)
