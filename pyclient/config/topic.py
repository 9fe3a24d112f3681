"""The table of topic options: Kafka's names, types, defaults, limits, and the broker options that set the defaults."""

from __future__ import annotations

from typing import Final

from pyclient.config.options import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    WITHOUT_EFFECT,
    Option,
    Synonyms,
    table_of,
)

_CODECS: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_GZIP_LEVELS: Final = ("-1", "1", "2", "3", "4", "5", "6", "7", "8", "9")
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_SEGMENT_BYTES: Final = 1 << 30
_THROTTLED: Final = r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?"  # all, or partition:broker pairs


def _same(name: str) -> Synonyms:
    return ((name, 1),)


def _time(prefix: str, *units: str) -> Synonyms:
    factors = {"ms": 1, "minutes": _MINUTE_MS, "hours": _HOUR_MS}
    return tuple((f"{prefix}.{unit}", factors[unit]) for unit in units)


TOPIC_OPTIONS: Final[dict[str, Option]] = table_of(
    Option(
        "cleanup.policy",
        LIST,
        "delete",
        "what happens to old data: delete, compact, or both",
        choices=("delete", "compact"),
        synonyms=_same("log.cleanup.policy"),
    ),
    Option(
        "compression.gzip.level",
        INT,
        -1,
        "level when the broker compresses with gzip",
        choices=_GZIP_LEVELS,
        synonyms=_same("compression.gzip.level"),
    ),
    Option(
        "compression.lz4.level",
        INT,
        9,
        "level when the broker compresses with lz4",
        1,
        17,
        synonyms=_same("compression.lz4.level"),
    ),
    Option(
        "compression.type",
        STRING,
        "producer",
        "codec of stored batches; producer keeps what came",
        choices=_CODECS,
        synonyms=_same("compression.type"),
    ),
    Option(
        "compression.zstd.level",
        INT,
        3,
        "level when the broker compresses with zstd",
        -131_072,
        22,
        synonyms=_same("compression.zstd.level"),
    ),
    Option(
        "delete.retention.ms",
        LONG,
        _DAY_MS,
        "how long tombstones stay after compaction",
        0,
        synonyms=_same("log.cleaner.delete.retention.ms"),
    ),
    Option(
        "file.delete.delay.ms",
        LONG,
        60_000,
        "how long deleted files stay on disk",
        0,
        synonyms=_same("log.segment.delete.delay.ms"),
    ),
    Option(
        "flush.messages",
        LONG,
        LONG_MAX,
        "records between forced writes to disk",
        1,
        synonyms=_same("log.flush.interval.messages"),
    ),
    Option(
        "flush.ms", LONG, LONG_MAX, "time between forced writes to disk", 0, synonyms=_same("log.flush.interval.ms")
    ),
    Option(
        "follower.replication.throttled.replicas",
        LIST,
        "",
        "replicas, as partition:broker, whose fetches follower.replication.throttled.rate limits; * means all",
        shape=_THROTTLED,
    ),
    Option(
        "index.interval.bytes",
        INT,
        4096,
        "bytes of log between index entries",
        0,
        synonyms=_same("log.index.interval.bytes"),
    ),
    Option(
        "leader.replication.throttled.replicas",
        LIST,
        "",
        "leaders, as partition:broker, from which leader.replication.throttled.rate limits fetches; * means all",
        shape=_THROTTLED,
    ),
    Option(
        "local.retention.bytes",
        LONG,
        -2,
        "size kept here of a tiered topic; -2 is retention.bytes (no topic is tiered here)",
        -2,
        synonyms=_same("log.local.retention.bytes"),
        support=WITHOUT_EFFECT,
    ),
    Option(
        "local.retention.ms",
        LONG,
        -2,
        "age kept here of a tiered topic; -2 is retention.ms (no topic is tiered here)",
        -2,
        synonyms=_same("log.local.retention.ms"),
        support=WITHOUT_EFFECT,
    ),
    Option(
        "max.compaction.lag.ms",
        LONG,
        LONG_MAX,
        "longest time a record stays out of compaction",
        1,
        synonyms=_same("log.cleaner.max.compaction.lag.ms"),
    ),
    Option("max.message.bytes", INT, 1_048_588, "largest batch", 0, synonyms=_same("message.max.bytes")),
    Option(
        "message.timestamp.after.max.ms",
        LONG,
        _HOUR_MS,
        "how far ahead of the broker's clock a record may be",
        0,
        synonyms=_same("log.message.timestamp.after.max.ms"),
    ),
    Option(
        "message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        "how far behind the broker's clock a record may be",
        0,
        synonyms=_same("log.message.timestamp.before.max.ms"),
    ),
    Option(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "whose time records carry",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=_same("log.message.timestamp.type"),
    ),
    Option(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        0.5,
        "share of a log that must be dirty before compaction",
        0,
        1,
        synonyms=_same("log.cleaner.min.cleanable.ratio"),
    ),
    Option(
        "min.compaction.lag.ms",
        LONG,
        0,
        "time a record stays out of compaction at least",
        0,
        synonyms=_same("log.cleaner.min.compaction.lag.ms"),
    ),
    Option(
        "min.insync.replicas",
        INT,
        1,
        "replicas that must have a record before acks=all is answered",
        1,
        synonyms=_same("min.insync.replicas"),
    ),
    Option(
        "preallocate",
        BOOLEAN,
        False,
        "whether segment files are made at full size (never done here)",
        synonyms=_same("log.preallocate"),
        support=WITHOUT_EFFECT,
    ),
    Option(
        "remote.log.copy.disable",
        BOOLEAN,
        False,
        "whether a tiered topic copies nothing more (none is tiered here)",
        support=WITHOUT_EFFECT,
    ),
    Option(
        "remote.log.delete.on.disable",
        BOOLEAN,
        False,
        "whether a topic's remote data go when it is tiered no more (none is tiered here)",
        support=WITHOUT_EFFECT,
    ),
    Option(
        "remote.storage.enable",
        BOOLEAN,
        False,
        "whether a topic is tiered; only false can be asked for",
        support=WITHOUT_EFFECT,
    ),
    Option(
        "retention.bytes",
        LONG,
        -1,
        "size of a partition above which old segments go",
        synonyms=_same("log.retention.bytes"),
    ),
    Option(
        "retention.ms",
        LONG,
        7 * _DAY_MS,
        "age above which old segments go",
        -1,
        synonyms=_time("log.retention", "ms", "minutes", "hours"),
    ),
    Option(
        "segment.bytes", INT, _SEGMENT_BYTES, "size of a segment file", 1 << 20, synonyms=_same("log.segment.bytes")
    ),
    Option(
        "internal.segment.bytes",
        INT,
        _SEGMENT_BYTES,
        "size of a segment file, without the lower limit",
        14,
        synonyms=_same("internal.log.segment.bytes"),
    ),
    Option(
        "segment.index.bytes",
        INT,
        10 << 20,
        "largest size of a segment's index",
        4,
        synonyms=_same("log.index.size.max.bytes"),
    ),
    Option(
        "segment.jitter.ms",
        LONG,
        0,
        "random time taken off segment.ms",
        0,
        synonyms=_time("log.roll.jitter", "ms", "hours"),
    ),
    Option(
        "segment.ms",
        LONG,
        7 * _DAY_MS,
        "age at which a segment is closed",
        1,
        synonyms=_time("log.roll", "ms", "hours"),
    ),
    Option(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "whether a replica that is behind may lead",
        synonyms=_same("unclean.leader.election.enable"),
    ),
)
"""The topic options by name. Of a list the default is a text, as Kafka's tools print it."""


def in_topic_unit(text: str, factor: int) -> str:
    """Return a broker option's value in the unit of the topic option whose default it sets; -1 (no limit) stays."""
    if factor == 1 or text.strip() == "-1":
        return text
    try:
        return str(int(text) * factor)
    except ValueError:
        return text
