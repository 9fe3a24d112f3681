"""The configs of a topic as an immutable value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyclient import errors
from pyclient.config.options import LIST, Option, items_of, nearest
from pyclient.config.topic import TOPIC_OPTIONS, in_topic_unit


def _default(name: str) -> Any:
    option = TOPIC_OPTIONS[name]
    return items_of(str(option.default)) if option.type is LIST else option.default


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The configs of one topic; fields are the options of `pyclient.config.topic` with `_` for `.`, a list a tuple.

    Durations are milliseconds, sizes bytes, -1 is "no limit" where Kafka allows it.
    """

    cleanup_policy: tuple[str, ...] = _default("cleanup.policy")
    compression_type: str = _default("compression.type")
    compression_gzip_level: int = _default("compression.gzip.level")
    compression_lz4_level: int = _default("compression.lz4.level")
    compression_zstd_level: int = _default("compression.zstd.level")
    delete_retention_ms: int = _default("delete.retention.ms")
    file_delete_delay_ms: int = _default("file.delete.delay.ms")
    flush_messages: int = _default("flush.messages")
    flush_ms: int = _default("flush.ms")
    follower_replication_throttled_replicas: tuple[str, ...] = _default("follower.replication.throttled.replicas")
    index_interval_bytes: int = _default("index.interval.bytes")
    leader_replication_throttled_replicas: tuple[str, ...] = _default("leader.replication.throttled.replicas")
    local_retention_bytes: int = _default("local.retention.bytes")
    local_retention_ms: int = _default("local.retention.ms")
    max_compaction_lag_ms: int = _default("max.compaction.lag.ms")
    max_message_bytes: int = _default("max.message.bytes")
    message_timestamp_after_max_ms: int = _default("message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = _default("message.timestamp.before.max.ms")
    message_timestamp_type: str = _default("message.timestamp.type")
    min_cleanable_dirty_ratio: float = _default("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _default("min.compaction.lag.ms")
    min_insync_replicas: int = _default("min.insync.replicas")
    preallocate: bool = _default("preallocate")
    remote_log_copy_disable: bool = _default("remote.log.copy.disable")
    remote_log_delete_on_disable: bool = _default("remote.log.delete.on.disable")
    remote_storage_enable: bool = _default("remote.storage.enable")
    retention_bytes: int = _default("retention.bytes")
    retention_ms: int = _default("retention.ms")
    segment_bytes: int = _default("segment.bytes")
    segment_index_bytes: int = _default("segment.index.bytes")
    segment_jitter_ms: int = _default("segment.jitter.ms")
    segment_ms: int = _default("segment.ms")
    unclean_leader_election_enable: bool = _default("unclean.leader.election.enable")

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

        Raise `InvalidConfig` for unknown names and impossible values.
        """
        values: dict[str, Any] = {}
        for name, text in configs.items():
            option = TOPIC_OPTIONS.get(name)
            if option is None:
                raise errors.InvalidConfig(f"{name!r} is not a topic config; known are {', '.join(TOPIC_OPTIONS)}")
            values[field_of(name)] = _parse(option, text)
        return dataclasses.replace(defaults or cls(), **values)

    @classmethod
    def from_broker(cls, configs: Mapping[str, str]) -> LogConfig:
        """Return the topic defaults of a broker that sets `configs` (`log.retention.hours`, `message.max.bytes`...).

        Names that are no topic defaults are ignored. Of several units of one option the finest wins, as in Kafka.
        """
        values: dict[str, Any] = {}
        for option in TOPIC_OPTIONS.values():
            for name, factor in option.synonyms:
                if name in configs:
                    text = in_topic_unit(configs[name], factor)
                    values[field_of(option.name)] = _parse(dataclasses.replace(option, name=name), text)
                    break
        return cls(**values)


def field_of(name: str) -> str:
    """Return the name of an option's field in `LogConfig`."""
    return name.removeprefix("internal.").replace(".", "_")


def _parse(option: Option, text: str) -> Any:
    """Return the typed value, of a list a tuple, which may be empty. Raise `InvalidConfig`."""
    try:
        if option.type is not LIST:
            return option.parse(text)
        items = items_of(text)
        if items:
            option.parse(",".join(items))
        return items
    except ValueError as error:
        raise errors.InvalidConfig(str(error)) from None


def check_asked(configs: Mapping[str, str]) -> None:
    """Raise `InvalidConfig` if an option is unknown, or if `remote.storage.enable` is true or no boolean."""
    for name in configs:
        if name not in TOPIC_OPTIONS:
            raise errors.InvalidConfig(f"{name}: unknown topic option{nearest(name, TOPIC_OPTIONS)}")
    tiered = "remote.storage.enable"
    if tiered in configs and _parse(TOPIC_OPTIONS[tiered], configs[tiered]):
        raise errors.InvalidConfig(f"{tiered}=true: there is no tiered storage here, as in a Kafka that disables it")
