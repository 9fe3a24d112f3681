"""Requests and answers of a consumer group, and the options in force for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.consumer.model import Member, Record, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request; None (or a timeout of -1) means unchanged since the last one."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Target | None = None
    client_id: str = ""
    client_host: str = ""
    connection_id: int = 0
    """The connection that the request came on, a different number for each."""

    @property
    def is_full(self) -> bool:
        """True if all fields are set, as when a member joins or did not receive an answer."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True)
class ConsumerAnswer:
    """The answer to a member; `assignment` is None if it was sent to the member before."""

    member_id: str
    member_epoch: int
    assignment: Target | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The coordinator's options for one group."""

    assignors: tuple[str, ...] = ("uniform", "range")
    max_size: int = 2_147_483_647
    assignment_interval_ms: int = 0
    """Minimum time between two target assignments, so that many members joining at once cost few of them."""


@dataclass(slots=True)
class Decision:
    """An answer, the records to write before it is sent, and the members to remove.

    With `must_resolve` the caller has to call `planning.resolve_regexes` after applying the records.
    """

    answer: ConsumerAnswer
    records: list[Record] = field(default_factory=list)
    removed: tuple[Member, ...] = ()
    must_resolve: bool = False
