"""The group coordinator's broker options, under Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Limits and times of the coordinator; a field is Kafka's broker option with `_` for `.`, validated by the broker.

    `internal_group_session_cap_ms` is not Kafka's: it caps the session timeout that members request.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: str = "uniform,range"
    group_consumer_migration_policy: str = "bidirectional"
    internal_group_session_cap_ms: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    @classmethod
    def from_mapping(cls, options: Mapping[str, str | int]) -> GroupConfig:
        """Return the coordinator's options out of all broker options (Kafka's dotted names)."""
        dotted = {field.name.replace("_", "."): field.name for field in fields(cls)}
        texts = {field.name for field in fields(cls) if field.type == "str"}
        given = {dotted[name]: value for name, value in options.items() if name in dotted}
        values: dict[str, Any] = {name: str(value) if name in texts else int(value) for name, value in given.items()}
        return cls(**values)
