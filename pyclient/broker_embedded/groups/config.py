"""The group coordinator's broker options, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pyclient.config.broker import default_of

if TYPE_CHECKING:
    from pyclient.broker_embedded.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Limits and times of the coordinator; a field is Kafka's broker option with `_` for `.`, validated by the broker.

    `internal_group_session_cap_ms` is not Kafka's: it caps the session timeout that members request.
    """

    group_min_session_timeout_ms: int = default_of("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = default_of("group.max.session.timeout.ms")
    group_initial_rebalance_delay_ms: int = default_of("group.initial.rebalance.delay.ms")
    group_max_size: int = default_of("group.max.size")
    group_consumer_session_timeout_ms: int = default_of("group.consumer.session.timeout.ms")
    group_consumer_heartbeat_interval_ms: int = default_of("group.consumer.heartbeat.interval.ms")
    group_consumer_assignment_interval_ms: int = default_of("group.consumer.assignment.interval.ms")
    group_consumer_max_size: int = default_of("group.consumer.max.size")
    group_consumer_assignors: str = default_of("group.consumer.assignors")
    group_consumer_migration_policy: str = default_of("group.consumer.migration.policy")
    internal_group_session_cap_ms: int = default_of("internal.group.session.cap.ms")
    offset_metadata_max_bytes: int = default_of("offset.metadata.max.bytes")
    offsets_retention_minutes: int = default_of("offsets.retention.minutes")
    offsets_retention_check_interval_ms: int = default_of("offsets.retention.check.interval.ms")

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupConfig:
        """Return the coordinator's options out of the broker's."""
        values: dict[str, Any] = {field.name: config.values[field.name.replace("_", ".")] for field in fields(cls)}
        return cls(**values)
