"""The configs of a topic as an immutable value, with Kafka's defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyclient import errors
from pyclient.broker_embedded.config.settings import nearest
from pyclient.broker_embedded.log.config_key import ConfigKey
from pyclient.broker_embedded.log.config_table import KEYS

__all__ = ["TOPIC_CONFIGS", "ConfigKey", "LogConfig", "check_asked"]

_LONG_MAX: Final = 2**63 - 1
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The configs of one topic; the field names are Kafka's with `_` for `.`, the defaults those of Kafka 4.

    Durations are milliseconds, sizes bytes, -1 is "no limit" where Kafka allows it.
    """

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _LONG_MAX
    flush_ms: int = _LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = _LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = _HOUR_MS
    message_timestamp_before_max_ms: int = _LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False

    @property
    def compacts(self) -> bool:
        """Return True if the topic keeps the newest value of each key (`cleanup.policy` has `compact`)."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Return True if old segments are deleted by time and size (`cleanup.policy` has `delete`)."""
        return "delete" in self.cleanup_policy

    @property
    def longest_segment_ms(self) -> int:
        """Return the age (ms) at which a segment is closed: `segment.ms`, and `max.compaction.lag.ms` if compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        """Return True if the broker stamps records with its own time (`message.timestamp.type=LogAppendTime`)."""
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def from_topic(cls, configs: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """Return the configs of a topic that overrides `configs`.

        Raises `InvalidConfig` for unknown names and impossible values.
        """
        values: dict[str, Any] = {}
        for name, text in configs.items():
            key = TOPIC_CONFIGS.get(name)
            if key is None:
                raise errors.InvalidConfig(f"{name!r} is not a topic config; known are {', '.join(TOPIC_CONFIGS)}")
            values[key.field] = key.parse(text)
        return dataclasses.replace(defaults or cls(), **values)

    @classmethod
    def from_broker(cls, configs: Mapping[str, str]) -> LogConfig:
        """Return the topic defaults of a broker that sets `configs` (`log.retention.hours`, `message.max.bytes`...).

        Names that are no topic defaults are ignored. Of several units of one option the finest wins, as in Kafka.
        """
        values: dict[str, Any] = {}
        for key in TOPIC_CONFIGS.values():
            for name, factor in key.broker_names:
                if name in configs:
                    value = key.scaled(configs[name], factor)
                    values[key.field] = key.parse(value, name)
                    break
        return cls(**values)


_DEFAULTS: Final = LogConfig()

TOPIC_CONFIGS: Final[Mapping[str, ConfigKey]] = {
    key.name: dataclasses.replace(key, default=getattr(_DEFAULTS, key.field)) for key in KEYS
}
"""The served topic configs by name."""


def check_asked(configs: Mapping[str, str]) -> None:
    """Raise `InvalidConfig` if an option is unknown, or if it enables tiered storage."""
    for name in configs:
        if name not in TOPIC_CONFIGS:
            raise errors.InvalidConfig(f"{name}: unknown topic option{nearest(name, TOPIC_CONFIGS)}")
    tiered = "remote.storage.enable"
    if tiered in configs and TOPIC_CONFIGS[tiered].parse(configs[tiered]):
        raise errors.InvalidConfig(f"{tiered}=true: there is no tiered storage here, as in a Kafka that disables it")
