"""The broker options that the group coordinator obeys, under Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from pyclient.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Limits and times of the coordinator; a field is Kafka's option with `_` for `.`."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    def __post_init__(self) -> None:
        for name in ("group_max_size", "offsets_retention_minutes", "offsets_retention_check_interval_ms"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name.replace('_', '.')} is {getattr(self, name)}: it must be at least 1")
        for name in ("group_min_session_timeout_ms", "group_initial_rebalance_delay_ms", "offset_metadata_max_bytes"):
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name.replace('_', '.')} is {getattr(self, name)}: it must not be negative")
        if self.group_max_session_timeout_ms < self.group_min_session_timeout_ms:
            raise InvalidConfig(
                f"group.max.session.timeout.ms ({self.group_max_session_timeout_ms}) is below "
                f"group.min.session.timeout.ms ({self.group_min_session_timeout_ms})"
            )

    @classmethod
    def from_mapping(cls, options: Mapping[str, str | int]) -> GroupConfig:
        """Take the coordinator's options (Kafka's dotted names) out of a broker's configuration; others are left.

        Raises `InvalidConfig` for a value that is no whole number or is out of range.
        """
        given: dict[str, int] = {}
        for field in fields(cls):
            dotted = field.name.replace("_", ".")
            if dotted not in options:
                continue
            try:
                given[field.name] = int(options[dotted])
            except ValueError as error:
                raise InvalidConfig(f"{dotted} is {options[dotted]!r}: it must be a whole number") from error
        return cls(**given)
