"""Topic configs: Kafka's names, defaults and limits, and the frozen value that a log is given."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyclient import errors
from pyclient.broker_embedded.settings import nearest

ConfigType = Literal["int", "long", "double", "boolean", "string", "list"]

_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_CODECS: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


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
        """Whether the topic keeps the newest value of each key (`cleanup.policy` has `compact`)."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments go by time and size (`cleanup.policy` has `delete`)."""
        return "delete" in self.cleanup_policy

    @property
    def longest_segment_ms(self) -> int:
        """The age at which a segment is closed; records that must not wait longer for compaction close it, too."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        """Whether the broker stamps records with its own time (`message.timestamp.type=LogAppendTime`)."""
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def from_topic(cls, configs: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """The value for a topic that overrides `configs`.

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
        """The defaults for all topics of a broker that sets `configs` (`log.retention.hours`, `message.max.bytes`...).

        Names that are no defaults of topics are left alone. Of several units of one thing the finest wins, as in Kafka.
        """
        values: dict[str, Any] = {}
        for key in TOPIC_CONFIGS.values():
            for name, factor in key.broker_names:
                if name in configs:
                    value = key.scaled(configs[name], factor)
                    values[key.field] = key.parse(value, name)
                    break
        return cls(**values)


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One topic config: its name, type and limits, and what sets its default on a broker.

    `broker_names` are (name, factor) pairs, the finest unit first: the factor turns the broker's unit into the topic's.
    """

    name: str
    type: ConfigType
    doc: str
    broker_names: tuple[tuple[str, int], ...]
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    shape: str = ""  # an expression that the value matches as it is printed

    @property
    def field(self) -> str:
        """The name of the field in `LogConfig`."""
        return self.name.removeprefix("internal.").replace(".", "_")

    @property
    def default(self) -> Any:
        """Kafka's default, typed."""
        return getattr(_DEFAULTS, self.field)

    def parse(self, text: str, name: str | None = None) -> Any:
        """The typed value of `text`; raises `errors.InvalidConfig` saying what is allowed."""
        try:
            value = _PARSERS[self.type](text)
        except ValueError:
            raise errors.InvalidConfig(f"{name or self.name}={text!r}: not a {self.type}") from None
        if self.minimum is not None and not value >= self.minimum:  # nor is NaN
            raise errors.InvalidConfig(f"{name or self.name}={text!r}: must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise errors.InvalidConfig(f"{name or self.name}={text!r}: must be at most {self.maximum}")
        for item in value if isinstance(value, tuple) else (value,):
            if self.choices and str(item) not in self.choices:
                raise errors.InvalidConfig(f"{name or self.name}={text!r}: allowed are {', '.join(self.choices)}")
        if self.shape and not re.fullmatch(self.shape, self.render(value), re.ASCII):
            raise errors.InvalidConfig(f"{name or self.name}={text!r}: not of the form {self.shape}")
        return value

    def scaled(self, text: str, factor: int) -> str:
        """`text` in the topic's unit; -1 (no limit) stays."""
        if factor == 1 or text.strip() == "-1":
            return text
        try:
            return str(int(text) * factor)
        except ValueError:
            return text

    def render(self, value: Any) -> str:
        """`value` as Kafka prints it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)


def _integer(bits: int) -> Any:
    def parse(text: str) -> int:
        text = text.strip()
        value = int(text)
        if "_" in text or not text.isascii() or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(text)
        return value

    return parse


def _boolean(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError(text)
    return value == "true"


def _list(text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    return tuple(dict.fromkeys(items))


_PARSERS: Final = {
    "int": _integer(32),
    "long": _integer(64),
    "double": float,
    "boolean": _boolean,
    "string": str.strip,
    "list": _list,
}
_DEFAULTS: Final = LogConfig()


def _same(name: str) -> tuple[tuple[str, int], ...]:
    return ((name, 1),)


def _time(prefix: str, *units: str) -> tuple[tuple[str, int], ...]:
    factors = {"ms": 1, "minutes": 60_000, "hours": _HOUR_MS}
    return tuple((f"{prefix}.{unit}", factors[unit]) for unit in units)


_THROTTLED: Final = r"\*|(\d+:\d+(,\d+:\d+)*)?"  # all, or partition:broker pairs

_KEYS: Final = (
    ConfigKey(
        "cleanup.policy",
        "list",
        "what happens to old data: delete, compact, or both",
        _same("log.cleanup.policy"),
        choices=("delete", "compact"),
    ),
    ConfigKey(
        "compression.gzip.level",
        "int",
        "level when the broker compresses with gzip",
        _same("compression.gzip.level"),
        choices=("-1", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    ),
    ConfigKey(
        "compression.lz4.level",
        "int",
        "level when the broker compresses with lz4",
        _same("compression.lz4.level"),
        1,
        17,
    ),
    ConfigKey(
        "compression.type",
        "string",
        "codec of stored batches; producer keeps what came",
        _same("compression.type"),
        choices=_CODECS,
    ),
    ConfigKey(
        "compression.zstd.level",
        "int",
        "level when the broker compresses with zstd",
        _same("compression.zstd.level"),
        -131072,
        22,
    ),
    ConfigKey(
        "delete.retention.ms",
        "long",
        "how long tombstones stay after compaction",
        _same("log.cleaner.delete.retention.ms"),
        0,
    ),
    ConfigKey(
        "file.delete.delay.ms", "long", "how long deleted files stay on disk", _same("log.segment.delete.delay.ms"), 0
    ),
    ConfigKey(
        "flush.messages", "long", "records between forced writes to disk", _same("log.flush.interval.messages"), 1
    ),
    ConfigKey("flush.ms", "long", "time between forced writes to disk", _same("log.flush.interval.ms"), 0),
    ConfigKey(
        "follower.replication.throttled.replicas",
        "list",
        "followers that a quota of replication would slow down (there is none here)",
        (),
        shape=_THROTTLED,
    ),
    ConfigKey(
        "index.interval.bytes", "int", "bytes of log between index entries", _same("log.index.interval.bytes"), 0
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        "list",
        "leaders that a quota of replication would slow down (there is none here)",
        (),
        shape=_THROTTLED,
    ),
    ConfigKey(
        "local.retention.bytes",
        "long",
        "size kept here of a tiered topic; -2 is retention.bytes (no topic is tiered here)",
        _same("log.local.retention.bytes"),
        -2,
    ),
    ConfigKey(
        "local.retention.ms",
        "long",
        "age kept here of a tiered topic; -2 is retention.ms (no topic is tiered here)",
        _same("log.local.retention.ms"),
        -2,
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        "long",
        "longest time a record stays out of compaction",
        _same("log.cleaner.max.compaction.lag.ms"),
        1,
    ),
    ConfigKey("max.message.bytes", "int", "largest batch", _same("message.max.bytes"), 0),
    ConfigKey(
        "message.timestamp.after.max.ms",
        "long",
        "how far ahead of the broker's clock a record may be",
        _same("log.message.timestamp.after.max.ms"),
        0,
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        "long",
        "how far behind the broker's clock a record may be",
        _same("log.message.timestamp.before.max.ms"),
        0,
    ),
    ConfigKey(
        "message.timestamp.type",
        "string",
        "whose time records carry",
        _same("log.message.timestamp.type"),
        choices=("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        "double",
        "share of a log that must be dirty before compaction",
        _same("log.cleaner.min.cleanable.ratio"),
        0,
        1,
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        "long",
        "time a record stays out of compaction at least",
        _same("log.cleaner.min.compaction.lag.ms"),
        0,
    ),
    ConfigKey(
        "min.insync.replicas",
        "int",
        "replicas that must have a record before acks=all is answered",
        _same("min.insync.replicas"),
        1,
    ),
    ConfigKey(
        "preallocate",
        "boolean",
        "whether segment files are made at full size (never done here)",
        _same("log.preallocate"),
    ),
    ConfigKey(
        "remote.log.copy.disable", "boolean", "whether a tiered topic copies nothing more (none is tiered here)", ()
    ),
    ConfigKey(
        "remote.log.delete.on.disable",
        "boolean",
        "whether a topic's remote data go when it is tiered no more (none is tiered here)",
        (),
    ),
    ConfigKey("remote.storage.enable", "boolean", "whether a topic is tiered; only false can be asked for", ()),
    ConfigKey(
        "retention.bytes", "long", "size of a partition above which old segments go", _same("log.retention.bytes")
    ),
    ConfigKey(
        "retention.ms", "long", "age above which old segments go", _time("log.retention", "ms", "minutes", "hours"), -1
    ),
    ConfigKey("segment.bytes", "int", "size of a segment file", _same("log.segment.bytes"), 1 << 20),
    ConfigKey(
        "internal.segment.bytes",
        "int",
        "size of a segment file, without the lower limit",
        _same("internal.log.segment.bytes"),
        14,
    ),
    ConfigKey("segment.index.bytes", "int", "largest size of a segment's index", _same("log.index.size.max.bytes"), 4),
    ConfigKey(
        "segment.jitter.ms", "long", "random time taken off segment.ms", _time("log.roll.jitter", "ms", "hours"), 0
    ),
    ConfigKey("segment.ms", "long", "age at which a segment is closed", _time("log.roll", "ms", "hours"), 1),
    ConfigKey(
        "unclean.leader.election.enable",
        "boolean",
        "whether a replica that is behind may lead",
        _same("unclean.leader.election.enable"),
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in _KEYS}
"""Every topic config that is served, by name."""


def check_asked(configs: Mapping[str, str]) -> None:
    """Raise `InvalidConfig` unless these options may be asked for: they are known, and no topic is to be tiered."""
    for name in configs:
        if name not in TOPIC_CONFIGS:
            raise errors.InvalidConfig(f"{name}: unknown topic option{nearest(name, TOPIC_CONFIGS)}")
    tiered = "remote.storage.enable"
    if tiered in configs and TOPIC_CONFIGS[tiered].parse(configs[tiered]):
        raise errors.InvalidConfig(f"{tiered}=true: there is no tiered storage here, as in a Kafka that disables it")
