"""The history of a run: sends, reads, transactions, states of replicas and their logs; one line of JSON each."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

OK: Final = "ok"
FAIL: Final = "fail"
"""Certainly not written."""
INFO: Final = "info"
"""Written or not: the answer does not say."""

IDEMPOTENT: Final = "idempotent"
PLAIN: Final = "plain"
ONE: Final = "acks=1"
TRANSACTIONAL: Final = "transactional"

COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"

SAFE: Final = frozenset({IDEMPOTENT, TRANSACTIONAL, PLAIN})
"""Kinds of producers whose acknowledged records may not be lost: those with acks=all."""

CLIENTS: Final = 0

COMPACTED: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics whose logs may lack records before others with the same keys."""


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Value(NamedTuple):
    """The content of a record's value: the producer that sent it, and its number there. No two sends have the same."""

    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer}/{self.number}"


def payload(value: Value, place: Place, size: int = 0) -> bytes:
    """Return a record's value, which carries a CRC of itself and the partition that it is for."""
    body = f"{value.producer} {value.number} {place.topic} {place.partition}".encode()
    body = body.ljust(max(0, size - 9), b".") if size else body
    return body + b" %08x" % zlib.crc32(body)


def parsed(content: bytes | None) -> tuple[Value, Place] | None:
    """Return what a record's value says; None if it is damaged."""
    body, separator, crc = (content or b"").rpartition(b" ")
    try:
        if not separator or int(crc, 16) != zlib.crc32(body):
            return None
        producer, number, topic, partition = body.rstrip(b".").decode().split(" ")
        return Value(producer, int(number)), Place(topic, int(partition))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of `send`, noted when it begins. It must have one outcome: a `Send` with its value."""

    value: Value
    place: Place
    at: float = 0.0
    kind: str = ""
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """The outcome of a call of `send`. Times are in seconds of one clock.

    `offset` is None where the answer had none, and for a send that is not OK. It is -1 for one that is proven written
    at an unknown offset, as a producer of ours reports it.
    """

    value: Value
    place: Place
    kind: str
    outcome: str
    offset: int | None = None
    began: float = 0.0
    ended: float = 0.0
    transaction: str | None = None
    error: str = ""

    @property
    def known_offset(self) -> int | None:
        """The offset of an acknowledged record, None if it is unknown."""
        return self.offset if self.outcome == OK and self.offset is not None and self.offset >= 0 else None


@dataclass(frozen=True, slots=True)
class Read:
    """One record that a consumer got in its `poll`-th call. `value` is None if the record's value is damaged.

    `jumped`: the position was set, or the partition newly assigned, since the consumer's last record of it.
    `assigned` is False if the partition was not assigned to the consumer. `transaction` is the one in which it read.
    """

    consumer: str
    poll: int
    place: Place
    offset: int
    value: Value | None
    says: Place | None
    isolation: str = UNCOMMITTED
    jumped: bool = False
    at: float = 0.0
    assigned: bool = True
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Transaction:
    """The end of a transaction as its producer saw it: OK (committed), FAIL (aborted) or INFO.

    `began` is the time at which the commit was requested, None for a transaction that was aborted before.
    """

    name: str
    outcome: str
    began: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of a replica at a time, as its node reports it; `life` counts its starts."""

    node: int
    life: int
    place: Place
    at: float
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    high_watermark: int
    end_offset: int
    stable_offset: int
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Isolation:
    """A node was cut off from all other nodes, and from no client, all the time from `began` to `ended`."""

    node: int
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Freeze:
    """A node did nothing all the time from `began` to `ended`, and went on later."""

    node: int
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The resources of a process: open files, threads, bytes of memory. `node` is `CLIENTS` for the clients'."""

    node: int
    life: int
    at: float
    files: int
    threads: int
    memory: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch in the log of a replica at the end of a run: its checksum, and the producer that wrote it."""

    node: int
    place: Place
    offset: int
    last_offset: int
    crc: int
    below_high_watermark: bool = True
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record of a compacted topic in the log of a replica at the end of a run, with the checksums of key and content.

    `key` is -1 for one that compaction may remove without a later one: of a transaction, or without a key.
    """

    node: int
    place: Place
    offset: int
    leader_epoch: int
    key: int
    crc: int

    @property
    def content(self) -> tuple[int, int, int]:
        """Return the parts that are the same in all logs."""
        return self.leader_epoch, self.key, self.crc


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a replica at the end of a run: the offsets of its first segment and after its last batch."""

    node: int
    place: Place
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class EpochBump:
    """An idempotent producer begins its sequences again in the epoch `epoch`, for a reason that it has logged."""

    producer: str
    producer_id: int
    epoch: int
    reason: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A leader refused a batch of an idempotent producer as out of order, by the producer's log line `text`."""

    producer: str
    place: Place
    producer_id: int
    epoch: int
    base_sequence: int
    text: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class PositionReset:
    """A consumer of librdkafka sets its position in a partition to the beginning while it reads, by its own log."""

    consumer: str
    place: Place
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class StuckMember:
    """A consumer of librdkafka waits for committed offsets for ever, by its own log."""

    consumer: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a group as its member saw it. `outcome` is OK or INFO.

    `generation` is -1 if it is unknown: the lowest that it may have been if the commit is OK, else the highest.
    `began` is None if all commits of the group are listed in the order in which the coordinator got them.
    """

    group: str
    member: str
    generation: int
    place: Place
    offset: int
    at: float = 0.0
    began: float | None = None
    outcome: str = OK


@dataclass(frozen=True, slots=True)
class CommitCall:
    """A member is about to commit offsets. A `Commit` for each of the places follows, unless the member is killed."""

    group: str
    member: str
    places: tuple[Place, ...]
    offsets: tuple[int, ...]
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset of a group, -1 for none, as a coordinator has answered between `began` and `at`.

    `leader_epoch` is that of the group's partition of `__consumer_offsets`, in which the node has led it meanwhile.
    """

    group: str
    place: Place
    offset: int
    began: float
    at: float
    node: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of a partition for readers of committed records and for all others, as the leader has answered."""

    place: Place
    stable_offset: int
    high_watermark: int
    at: float


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of a member in a generation of its group."""

    group: str
    member: str
    generation: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A change of a topic to that many partitions, 0 for its deletion, as its client saw it: OK or INFO.

    No other change of the topic follows one that is INFO.
    """

    topic: str
    partitions: int
    outcome: str


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic that exists at the end of a run."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and the times at which it began and was healed."""

    name: str
    began: float
    ended: float
    majority: bool = True


@dataclass(frozen=True, slots=True)
class ClientFault:
    """A client's process was killed at `began`, or frozen until `ended`.

    `unknown` is the number of its sends and commits that had no outcome when it was killed.
    """

    client: str
    name: str
    began: float
    ended: float
    unknown: int = 0


Event = (
    Call
    | Send
    | Read
    | Transaction
    | ReplicaState
    | Isolation
    | Freeze
    | ProcessState
    | Batch
    | StoredRecord
    | Log
    | EpochBump
    | Refusal
    | PositionReset
    | StuckMember
    | Commit
    | CommitCall
    | Committed
    | Ends
    | Assignment
    | TopicChange
    | FoundTopic
    | Fault
    | ClientFault
)
_LISTS: Final[dict[type, str]] = {
    Call: "calls",
    Send: "sends",
    Read: "reads",
    Transaction: "transactions",
    ReplicaState: "states",
    Isolation: "isolations",
    Freeze: "freezes",
    ProcessState: "processes",
    Batch: "batches",
    StoredRecord: "stored_records",
    Log: "logs",
    EpochBump: "epoch_bumps",
    Refusal: "refusals",
    PositionReset: "position_resets",
    StuckMember: "stuck_members",
    Commit: "commits",
    CommitCall: "commit_calls",
    Committed: "committed",
    Ends: "ends",
    Assignment: "assignments",
    TopicChange: "topic_changes",
    FoundTopic: "found_topics",
    Fault: "faults",
    ClientFault: "client_faults",
}
_KINDS: Final = {kind.__name__: kind for kind in _LISTS}


@dataclass(slots=True)
class History:
    """Everything that happened, by kind. Reads and sends of one client are in the order of its calls."""

    calls: list[Call] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    states: list[ReplicaState] = field(default_factory=list)
    isolations: list[Isolation] = field(default_factory=list)
    freezes: list[Freeze] = field(default_factory=list)
    processes: list[ProcessState] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    stored_records: list[StoredRecord] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    epoch_bumps: list[EpochBump] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    position_resets: list[PositionReset] = field(default_factory=list)
    stuck_members: list[StuckMember] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    commit_calls: list[CommitCall] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    ends: list[Ends] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    topic_changes: list[TopicChange] = field(default_factory=list)
    found_topics: list[FoundTopic] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    client_faults: list[ClientFault] = field(default_factory=list)

    def add(self, *events: Event) -> History:
        """Add events and return the history."""
        for event in events:
            self._list_of(event).append(event)
        return self

    def _list_of(self, event: Event) -> list[Any]:
        found: list[Any] = getattr(self, _LISTS[type(event)])
        return found

    def __iter__(self) -> Iterator[Event]:
        for name in self.__slots__:
            yield from getattr(self, name)

    def write(self, path: Path) -> None:
        """Write one line of JSON per event."""
        path.write_text("".join(f"{line_of(event)}\n" for event in self))

    @classmethod
    def read(cls, path: Path) -> History:
        """Return the history in a file."""
        return cls().add(*map(event_of, path.read_text().splitlines()))

    def values_at(self) -> dict[Place, dict[int, set[Value]]]:
        """Return the values that sends and reads name for each offset; sends with acks=1 may lose theirs to others."""
        found: dict[Place, dict[int, set[Value]]] = defaultdict(lambda: defaultdict(set))
        for send in self.sends:
            if send.known_offset is not None and send.kind != ONE:
                found[send.place][send.known_offset].add(send.value)
        for read in self.reads:
            if read.value is not None:
                found[read.place][read.offset].add(read.value)
        return found


def line_of(event: Event) -> str:
    """Return a line of JSON."""
    return json.dumps({"event": type(event).__name__, **asdict(event)})


def event_of(line: str) -> Event:
    """Return the event in a line of JSON."""
    values = json.loads(line)
    made: Event = _KINDS[values.pop("event")](**{name: _restored(name, each) for name, each in values.items()})
    return made


def _restored(name: str, value: Any) -> Any:
    if name in ("place", "says") and value is not None:
        return Place(*value)
    if name == "value" and value is not None:
        return Value(*value)
    if name == "places":
        return tuple(Place(*each) for each in value)
    return tuple(value) if isinstance(value, list) else value


def by_client(reads: Iterable[Read]) -> dict[tuple[str, Place], list[Read]]:
    """Return the reads of each consumer from each partition, in the order of its calls."""
    found: dict[tuple[str, Place], list[Read]] = defaultdict(list)
    for read in reads:
        found[read.consumer, read.place].append(read)
    return found


def readable(history: History) -> dict[Place, dict[int, Value]]:
    """Return the values that every consumer has to see: acknowledged ones outside of transactions, and all reads with
    read_committed."""
    found: dict[Place, dict[int, Value]] = defaultdict(dict)
    for send in history.sends:
        if send.transaction is None and send.known_offset is not None and send.kind in SAFE:
            found[send.place][send.known_offset] = send.value
    for read in history.reads:
        if read.isolation == COMMITTED and read.value is not None:
            found[read.place][read.offset] = read.value
    return found
