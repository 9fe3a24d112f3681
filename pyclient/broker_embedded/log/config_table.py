"""The table of topic configs: Kafka's names, limits, and the broker options that set their defaults."""

from __future__ import annotations

from typing import Final

from pyclient.broker_embedded.log.config_key import ConfigKey

_CODECS: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_MINUTE_MS: Final = 60_000


def _same(name: str) -> tuple[tuple[str, int], ...]:
    return ((name, 1),)


def _time(prefix: str, *units: str) -> tuple[tuple[str, int], ...]:
    factors = {"ms": 1, "minutes": _MINUTE_MS, "hours": 60 * _MINUTE_MS}
    return tuple((f"{prefix}.{unit}", factors[unit]) for unit in units)


_THROTTLED: Final = r"\*|(\d+:\d+(,\d+:\d+)*)?"  # all, or partition:broker pairs

KEYS: Final = (
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
"""All topic configs; `config.TOPIC_CONFIGS` has them by name, with their defaults."""
