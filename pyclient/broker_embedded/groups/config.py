"""The group coordinator's broker options, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pyclient.config.broker import BROKER_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping


def _default(name: str) -> Any:
    return BROKER_OPTIONS[name].default


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Limits and times of the coordinator; a field is Kafka's broker option with `_` for `.`, validated by the broker.

    `internal_group_session_cap_ms` is not Kafka's: it caps the session timeout that members request.
    """

    group_min_session_timeout_ms: int = _default("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = _default("group.max.session.timeout.ms")
    group_initial_rebalance_delay_ms: int = _default("group.initial.rebalance.delay.ms")
    group_max_size: int = _default("group.max.size")
    group_consumer_session_timeout_ms: int = _default("group.consumer.session.timeout.ms")
    group_consumer_heartbeat_interval_ms: int = _default("group.consumer.heartbeat.interval.ms")
    group_consumer_assignment_interval_ms: int = _default("group.consumer.assignment.interval.ms")
    group_consumer_max_size: int = _default("group.consumer.max.size")
    group_consumer_assignors: str = _default("group.consumer.assignors")
    group_consumer_migration_policy: str = _default("group.consumer.migration.policy")
    internal_group_session_cap_ms: int = _default("internal.group.session.cap.ms")
    offset_metadata_max_bytes: int = _default("offset.metadata.max.bytes")
    offsets_retention_minutes: int = _default("offsets.retention.minutes")
    offsets_retention_check_interval_ms: int = _default("offsets.retention.check.interval.ms")

    @classmethod
    def from_mapping(cls, options: Mapping[str, str | int]) -> GroupConfig:
        """Return the coordinator's options out of all broker options (Kafka's dotted names)."""
        dotted = {field.name.replace("_", "."): field.name for field in fields(cls)}
        texts = {field.name for field in fields(cls) if field.type == "str"}
        given = {dotted[name]: value for name, value in options.items() if name in dotted}
        values: dict[str, Any] = {name: str(value) if name in texts else int(value) for name, value in given.items()}
        return cls(**values)
