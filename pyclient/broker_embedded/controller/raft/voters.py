"""The voters of the metadata quorum (KIP-853): their ids, their addresses, and the changes of the set in the log."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """A replica of the metadata log: a node id and the id of its metadata directory.

    A node that lost its disk comes back with another directory id and is another replica: it may have forgotten a vote.
    """

    id: int
    directory_id: UUID = ZERO_UUID

    def __str__(self) -> str:
        return str(self.id) if self.directory_id == ZERO_UUID else f"{self.id}-{str(self.directory_id)[:8]}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which a voter is reached through the listener called `name`."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the voter set, with its addresses and the range of kraft.version that it supports."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = 1


class VoterSet:
    """An immutable set of voters, at most one for each node id."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key)}

    @classmethod
    def of(cls, *ids: int) -> VoterSet:
        """Return a static set of voters known by their node ids alone, as with kraft.version 0."""
        return cls(Voter(ReplicaKey(node)) for node in ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """The node ids, sorted."""
        return tuple(self._voters)

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The voters' keys, sorted by node id."""
        return tuple(voter.key for voter in self)

    @property
    def majority(self) -> int:
        """The number of voters that decide."""
        return len(self._voters) // 2 + 1

    def voter(self, node: int) -> Voter | None:
        """Return the voter with this node id."""
        return self._voters.get(node)

    def __contains__(self, key: ReplicaKey) -> bool:
        """Return True if the replica is a voter. A static voter has no directory id and is known by its node id."""
        voter = self._voters.get(key.id)
        return voter is not None and voter.key.directory_id in (key.directory_id, ZERO_UUID)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(voter.key) for voter in self)})"

    def with_voter(self, voter: Voter) -> VoterSet:
        """Return the set with this voter added, or in the place of the one with its node id."""
        return VoterSet([*(other for other in self if other.key.id != voter.key.id), voter])

    def without(self, key: ReplicaKey) -> VoterSet:
        """Return the set without this voter."""
        return VoterSet(voter for voter in self if voter.key != key)


class VoterSetHistory:
    """The voter sets that the log wrote, by their offsets.

    The newest counts as soon as it is in the log, committed or not: Raft's rule for changes of one member at a time.
    `initial` is the set of the configuration, in force while the log (or the snapshot before it) has none.
    """

    __slots__ = ("_initial", "_offsets", "_sets")

    def __init__(self, initial: VoterSet) -> None:
        self._initial = initial
        self._offsets: list[int] = []
        self._sets: list[VoterSet] = []

    @property
    def newest(self) -> VoterSet:
        """The voter set in force."""
        return self._sets[-1] if self._sets else self._initial

    @property
    def newest_offset(self) -> int:
        """The offset of the batch that wrote the newest set, -1 for the initial one and that of a snapshot at 0."""
        return self._offsets[-1] if self._offsets else -1

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version: 1 if the log or its snapshot has the voters, 0 if the configuration has them."""
        return 1 if self._sets else 0

    def at(self, offset: int) -> VoterSet:
        """Return the set in force after the records below `offset`."""
        index = bisect_left(self._offsets, offset)
        return self._sets[index - 1] if index else self._initial

    def add(self, offset: int, voters: VoterSet) -> None:
        """Note a set that the log wrote at `offset`, which is above those before it."""
        if offset <= self.newest_offset:
            raise ValueError(f"a voter set at offset {offset} follows the one at {self.newest_offset}")
        self._offsets.append(offset)
        self._sets.append(voters)

    def truncate(self, end_offset: int) -> None:
        """Forget the sets at `end_offset` and above: their records left the log."""
        index = bisect_left(self._offsets, end_offset)
        del self._offsets[index:], self._sets[index:]

    def restart(self, offset: int, voters: VoterSet | None) -> None:
        """Start again with the set of the snapshot that ends at `offset`, None if it has none."""
        self._offsets, self._sets = ([offset - 1], [voters]) if voters is not None else ([], [])

    def trim(self, start_offset: int) -> None:
        """Forget the sets that no offset from `start_offset` on needs."""
        index = bisect_left(self._offsets, start_offset) - 1  # a set at the start itself may still be truncated
        if index > 0:
            del self._offsets[:index], self._sets[:index]
