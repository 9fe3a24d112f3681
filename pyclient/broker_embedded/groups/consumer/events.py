"""What a member says to a consumer group, what it is told, and the options that the group obeys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.consumer.model import Member, Record, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request; what is None (or a timeout of -1) has not changed since the last one."""

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

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as a member does that joins or lost an answer."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True)
class ConsumerAnswer:
    """What the member is told; `assignment` is None when it has not changed."""

    member_id: str
    member_epoch: int
    assignment: Target | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The coordinator's options for one group."""

    assignors: tuple[str, ...] = ("uniform", "range")
    max_size: int = 2_147_483_647
    assignment_interval_ms: int = 0
    """New targets are made no faster than this, so that a crowd that joins at once costs few of them."""


@dataclass(slots=True)
class Decision:
    """An answer, and the records that make it true; `gone` are members that the group has to be rid of.

    `must_resolve` asks for `planning.resolve_regexes` once the records are applied.
    """

    answer: ConsumerAnswer
    records: list[Record] = field(default_factory=list)
    gone: tuple[Member, ...] = ()
    must_resolve: bool = False
