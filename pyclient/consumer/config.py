"""A consumer's options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from pyclient.assignment import ASSIGNORS, Assignor
from pyclient.config import INT_MAX, ClientConfig, ClientOptions, option

AssignorName = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]
GroupProtocol = Literal["classic", "consumer"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
OffsetReset = Literal["earliest", "latest", "none"]

EARLIEST: Final = -2
LATEST: Final = -1

_JAVA_ASSIGNORS: Final[Mapping[str, str]] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?", re.ASCII
)
_CLASSIC_DEFAULTS: Final[Mapping[str, Any]] = {
    "partition_assignment_strategy": (ASSIGNORS["range"], ASSIGNORS["cooperative-sticky"]),
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
}
_DECIDED_BY_BROKER: Final[Mapping[str, str]] = {
    "partition_assignment_strategy": "the broker assigns, by group_remote_assignor",
    "session_timeout_ms": "the broker decides (group.consumer.session.timeout.ms)",
    "heartbeat_interval_ms": "the broker decides (group.consumer.heartbeat.interval.ms)",
}


def parse_duration_ms(text: str) -> int:
    """Return an ISO-8601 duration such as "P3D" or "PT1H30M" in milliseconds; raise `ValueError` if invalid."""
    match = _DURATION.fullmatch(text.upper())
    parts = match.groupdict() if match else {}
    if not any(parts.values()):
        raise ValueError(f"{text!r} is not an ISO-8601 duration such as P3D or PT1H30M")
    seconds = sum(
        float(parts[name] or 0) * factor
        for name, factor in (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
    )
    return round(seconds * 1000)


def reset_timestamp(policy: str, now_ms: int) -> int | None:
    """Return an `auto_offset_reset` policy as a ListOffsets timestamp: EARLIEST, LATEST or a time; None for "none"."""
    if policy.startswith("by_duration:"):
        return max(0, now_ms - parse_duration_ms(policy.removeprefix("by_duration:")))
    return {"earliest": EARLIEST, "latest": LATEST, "none": None}[policy]


def _reset_policy(value: Any) -> str:
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise ValueError("the duration is negative")
        return f"by_duration:PT{value / timedelta(seconds=1):f}S"
    if not isinstance(value, str):
        raise ValueError("not a string")
    name, _, duration = value.partition(":")
    name = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest"}.get(
        name.casefold(), name.casefold()
    )
    if name == "by_duration":
        parse_duration_ms(duration)
        return f"by_duration:{duration.upper()}"
    if name not in ("earliest", "latest", "none") or duration:
        raise ValueError("unknown policy")
    return name


def _assignors(value: Any) -> tuple[Assignor, ...]:
    given: Iterable[Any] = value.split(",") if isinstance(value, str) else value
    if isinstance(given, Assignor) or not isinstance(given, Sequence) or not given:
        given = (value,)
    found = tuple(_assignor(item) for item in given)
    if len({assignor.name for assignor in found}) < len(found):
        raise ValueError("one assignor is named twice")
    return found


def _assignor(item: Any) -> Assignor:
    if isinstance(item, Assignor):
        return item
    if not isinstance(item, str):
        raise ValueError(f"{item!r} is neither a name nor an Assignor")
    name = item.strip()
    name = _JAVA_ASSIGNORS.get(name.rpartition(".")[2], name)
    if name not in ASSIGNORS:
        raise ValueError(f"there is no assignor {name!r}")
    return ASSIGNORS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Options of `Consumer` and `AsyncConsumer`. Names, units and defaults are Kafka's, with `_` for `.`."""

    group_id: str | None = option(None, doc="The consumer group to join and to keep committed offsets under.")
    group_instance_id: str | None = option(
        None,
        doc="Names this member across restarts (static membership, KIP-345): a restart within the session timeout "
        "moves no partitions.",
    )
    group_protocol: GroupProtocol = option(
        "classic",
        doc="How the group is run: by its members ('classic'), or by the broker ('consumer', KIP-848; Kafka 4.0 or "
        "later). A group changes over while it runs, one member after the other.",
        allowed="'classic' or 'consumer'",
    )
    group_remote_assignor: str | None = option(
        None,
        doc="group_protocol='consumer' only: the broker's assignor for this group, 'uniform' or 'range' unless it has "
        "others; by default the broker chooses.",
    )
    partition_assignment_strategy: tuple[Assignor, ...] | None = option(
        None,
        doc="group_protocol='classic' only: assignors this member supports, best first: 'range', 'roundrobin', "
        "'sticky', 'cooperative-sticky', or an `Assignor` of your own. If all of them are cooperative, rebalances are. "
        "By default 'range', then 'cooperative-sticky'.",
        convert=_assignors,
        allowed=f"names of assignors ({', '.join(ASSIGNORS)}), or pyclient.assignment.Assignor values",
        aliases=("partition_assignment_strategies",),
    )
    auto_offset_reset: str = option(
        "latest",
        doc="Where to begin when nothing is committed, or when the position is not in the log any more: 'earliest', "
        "'latest', a `timedelta` back from now (or 'by_duration:PT1H', ISO-8601), or 'none' to get an error instead.",
        convert=_reset_policy,
        allowed="'earliest', 'latest', 'none', a timedelta or 'by_duration:<ISO-8601 duration>'",
    )
    enable_auto_commit: bool | None = option(
        None,
        doc="Commit what earlier polls returned, every auto_commit_interval_ms, on rebalance and on close. "
        "By default True with a group_id, False without.",
    )
    auto_commit_interval_ms: int = option(5_000, doc="How often auto-commit commits, at most.", minimum=0)
    session_timeout_ms: int | None = option(
        None,
        doc="group_protocol='classic' only: without a heartbeat for so long, the group gives this member's partitions "
        "to others. By default 45,000; with 'consumer' the broker decides.",
        minimum=1,
        maximum=INT_MAX,
    )
    heartbeat_interval_ms: int | None = option(
        None,
        doc="group_protocol='classic' only: how often to send a heartbeat to the group's coordinator. By default "
        "3,000; with 'consumer' the broker decides.",
        minimum=1,
    )
    max_poll_interval_ms: int = option(
        300_000,
        doc="The longest time between two polls; past it this member leaves the group and the next poll says so.",
        minimum=1,
        maximum=INT_MAX,
    )
    max_poll_records: int = option(
        500, doc="How many records one poll returns at most, unless it says otherwise.", minimum=1
    )
    fetch_min_bytes: int = option(
        1, doc="A fetch waits at the broker until so many bytes are there.", minimum=0, maximum=INT_MAX
    )
    fetch_max_wait_ms: int = option(
        500, doc="How long a fetch waits for fetch_min_bytes at most.", minimum=0, aliases=("fetch_wait_max_ms",)
    )
    fetch_max_bytes: int = option(
        52_428_800,
        doc="How much is fetched from one broker at once, and kept ahead of the reader.",
        minimum=1,
        maximum=INT_MAX,
    )
    max_partition_fetch_bytes: int = option(
        1_048_576,
        doc="How much of one partition is fetched at once. One batch comes whole, however large it is.",
        minimum=1,
        maximum=INT_MAX,
        aliases=("fetch_message_max_bytes",),
    )
    check_crcs: bool = option(True, doc="Check every batch's CRC-32C before its records are returned.")
    isolation_level: IsolationLevel = option(
        "read_uncommitted",
        doc="With 'read_committed', records of aborted or undecided transactions are not returned.",
    )
    client_rack: str = option("", doc="Where this client is; brokers may then point it to a replica nearby (KIP-392).")
    default_api_timeout_ms: int = option(
        60_000, doc="How long calls without a timeout of their own (commit, position, ...) may take.", minimum=1
    )
    allow_auto_create_topics: bool = option(
        True, doc="Whether brokers that create topics on demand may do so for topics this consumer asks for."
    )
    exclude_internal_topics: bool = option(True, doc="Whether a pattern subscription leaves out internal topics.")

    def __post_init__(self) -> None:
        """Check every option, then those that depend on each other, and fill in defaults that depend on others."""
        ClientConfig.__post_init__(self)
        if self.enable_auto_commit is None:
            object.__setattr__(self, "enable_auto_commit", self.group_id is not None)
        if self.group_protocol == "classic":
            for name, default in _CLASSIC_DEFAULTS.items():
                if getattr(self, name) is None:
                    object.__setattr__(self, name, default)

    def conflicts(self) -> Iterable[str]:
        """Yield a text for each conflict between options."""
        yield from ClientConfig.conflicts(self)
        if self.group_id == "":
            yield "group_id='' is not possible: give a name, or leave it out to read without a group"
        if self.group_id is None and self.enable_auto_commit:
            yield "enable_auto_commit=True needs a group_id: offsets are committed under a group"
        if self.group_id is None and self.group_instance_id is not None:
            yield "group_instance_id needs a group_id: it names a member of that group"
        yield from self._protocol_conflicts()
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            yield (
                f"fetch_max_wait_ms={self.fetch_max_wait_ms} is not possible: it must be smaller than "
                f"request_timeout_ms={self.request_timeout_ms}, or every idle fetch times out"
            )

    def _protocol_conflicts(self) -> Iterable[str]:
        if self.group_protocol == "consumer":
            for name, reason in _DECIDED_BY_BROKER.items():
                if getattr(self, name) is not None:
                    yield (
                        f"{name} does not go with group_protocol='consumer': {reason}. Leave it out, or set "
                        "group_protocol='classic'"
                    )
            return
        if self.group_remote_assignor is not None:
            yield (
                "group_remote_assignor needs group_protocol='consumer'; with 'classic' the members assign, by "
                "partition_assignment_strategy"
            )
        heartbeat, session = (
            _CLASSIC_DEFAULTS[name] if getattr(self, name) is None else getattr(self, name)
            for name in ("heartbeat_interval_ms", "session_timeout_ms")
        )
        if heartbeat >= session:
            yield (
                f"heartbeat_interval_ms={heartbeat} is not possible: it must be smaller than "
                f"session_timeout_ms={session}, usually a third of it"
            )

    @property
    def read_committed(self) -> bool:
        """Return True if records of aborted transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def cooperative(self) -> bool:
        """Return True if members keep their partitions while they join (KIP-429): every assignor has to allow it."""
        return all(assignor.cooperative for assignor in self.partition_assignment_strategy or ())


class ConsumerOptions(ClientOptions, total=False):
    """The keyword arguments of a consumer; `ConsumerConfig` documents them."""

    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    partition_assignment_strategy: AssignorName | Assignor | Sequence[AssignorName | Assignor]
    auto_offset_reset: OffsetReset | timedelta
    enable_auto_commit: bool | None
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    isolation_level: IsolationLevel
    client_rack: str
    default_api_timeout_ms: int
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
