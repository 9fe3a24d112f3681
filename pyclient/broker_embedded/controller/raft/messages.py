"""The inputs and outputs of the Raft core: the quorum's requests and responses without their wire form, and effects.

An effect is something the caller has to do. Effects are carried out in their order: an election state is on the disk
before the messages after it leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.raft.election_state import ElectionState
    from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
    from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, Voter, VoterSet

Token: TypeAlias = Any
"""The caller's own key of the connection that waits for an answer; the core only returns it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch of the metadata log: its place, and bytes that the core does not look into.

    `voters` is the set that the batch writes, if it is a control batch with a VotersRecord.
    """

    base_offset: int
    end_offset: int
    epoch: int
    data: Any
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class Vote:
    """Vote: a candidate asks for a vote in `epoch`, or with `pre_vote` whether it would get one (KIP-996)."""

    voter: ReplicaKey
    candidate: ReplicaKey
    epoch: int
    last: OffsetAndEpoch
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpoch:
    """BeginQuorumEpoch: a new leader announces its epoch to a voter."""

    voter: ReplicaKey
    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpoch:
    """EndQuorumEpoch: a leader resigns and names its preferred successors, the best first."""

    leader_id: int
    epoch: int
    preferred: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch of the metadata log: its offset also confirms that everything below it is on the replica's disk."""

    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int
    max_wait: float


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """FetchSnapshot (KIP-630): a piece of a snapshot from a byte position on."""

    replica: ReplicaKey
    epoch: int
    snapshot: OffsetAndEpoch
    position: int


@dataclass(frozen=True, slots=True)
class AddVoter:
    """AddRaftVoter (KIP-853): an observer that has caught up becomes a voter.

    The answer comes once that is committed, with `ack_when_committed=False` once it is in the leader's log.
    """

    voter: Voter
    max_wait: float
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """RemoveRaftVoter (KIP-853): a voter becomes an observer; a leader that is removed resigns."""

    voter: ReplicaKey
    max_wait: float


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    """UpdateRaftVoter (KIP-853): a voter reports its present addresses and range of kraft.version to the leader."""

    voter: Voter
    epoch: int
    max_wait: float


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The answer to a Vote. Here and below `error` is a Kafka error code, 0 for none."""

    error: int
    epoch: int
    leader_id: int | None
    granted: bool


@dataclass(frozen=True, slots=True)
class QuorumEpochResponse:
    """The answer to BeginQuorumEpoch and EndQuorumEpoch."""

    error: int
    epoch: int
    leader_id: int | None


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """The answer to a Fetch: batches, or where the logs diverge, or the snapshot to fetch first.

    The core leaves `batches` empty: the caller reads them from the log (see `Answer`).
    """

    error: int
    epoch: int
    leader_id: int | None
    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """The answer to a FetchSnapshot: `data` from `position` on of a snapshot of `size` bytes.

    The core leaves `size` and `data` empty: the caller reads them from the snapshot's file (see `Answer`).
    """

    error: int
    epoch: int
    leader_id: int | None
    snapshot: OffsetAndEpoch | None = None
    position: int = 0
    size: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class VoterChangeResponse:
    """The answer to AddVoter, RemoveVoter and UpdateVoter. `reason` explains an error."""

    error: int
    epoch: int
    leader_id: int | None
    reason: str = ""


VoterChange: TypeAlias = AddVoter | RemoveVoter | UpdateVoter
Request: TypeAlias = Vote | BeginQuorumEpoch | EndQuorumEpoch | Fetch | FetchSnapshot | UpdateVoter
Response: TypeAlias = VoteResponse | QuorumEpochResponse | FetchResponse | FetchSnapshotResponse | VoterChangeResponse


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to a node; its response or its failure goes back to the core."""

    node: int
    request: Request


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the request that came with `token`.

    With `read_from` the caller adds the log's batches from that offset on, with `read_snapshot` the snapshot's bytes
    from the response's position on.
    """

    token: Token
    response: Response
    read_from: int | None = None
    read_snapshot: OffsetAndEpoch | None = None


@dataclass(frozen=True, slots=True)
class SaveElection:
    """Write `quorum-state` and sync it before anything that follows."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class Append:
    """Append a follower's fetched batches to the log, sync it, then report `flushed`."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append the leader's proposed records as one batch, sync it, then report `flushed`."""

    base_offset: int
    epoch: int
    data: Any


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Append a LeaderChangeMessage, the first record of a leader's epoch, sync it, then report `flushed`."""

    offset: int
    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """Append a voter set as the only batch at `offset`, sync it, then report `flushed`.

    It is a VotersRecord; the first in a log comes after a KRaftVersionRecord with `kraft_version`, None for later ones.
    """

    offset: int
    epoch: int
    voters: VoterSet
    kraft_version: int | None = None

    @property
    def count(self) -> int:
        """The number of records."""
        return 1 if self.kraft_version is None else 2


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop the log from `offset` on: those records were never committed."""

    offset: int


@dataclass(frozen=True, slots=True)
class StoreSnapshotPiece:
    """Write a piece of a snapshot that is being fetched at `position` (0 restarts it)."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Sync and install the fetched snapshot, drop the whole log, and let it start at the snapshot's end.

    Then report `snapshot_installed` with the voter set that the snapshot has.
    """

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class DeleteBefore:
    """Let the log start at the end of this snapshot: what it replaces can be deleted."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """Everything below `offset` is committed: apply it."""

    offset: int


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The epoch or its known leader changed."""

    epoch: int
    leader_id: int | None


Effect: TypeAlias = (
    Send
    | Answer
    | SaveElection
    | Append
    | AppendRecords
    | AppendLeaderChange
    | AppendVoters
    | Truncate
    | StoreSnapshotPiece
    | InstallSnapshot
    | DeleteBefore
    | HighWatermark
    | LeaderChange
)
