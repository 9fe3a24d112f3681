"""The state of elections that a replica of the metadata log keeps across restarts (the file `quorum-state`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.raft.voters import ReplicaKey


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The epoch, its leader if known, and the replica voted for in it.

    It is on the disk before any message that follows from it is sent: a replica that forgot its vote could give a
    second one in the same epoch.
    """

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None
