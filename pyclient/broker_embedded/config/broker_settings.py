"""The options of a broker that are served, under Kafka's names and with its defaults, and what the profiles change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyclient.config.options import (
    BOOLEAN,
    INT,
    INT_MAX,
    LIST,
    LONG,
    SERVED,
    SHORT,
    STRING,
    ConfigType,
    Option,
    Value,
)
from pyclient.config.topic import TOPIC_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

_ASSIGNORS: Final = ("uniform", "range")


def _dynamic(name: str, kind: ConfigType, default: Value, doc: str, minimum: float | None = None) -> Option:
    """An option that may be changed while the broker runs."""
    return Option(name, kind, default, doc, minimum, dynamic=True)


_OWN: Final = (
    Option("auto.create.topics.enable", BOOLEAN, True, "whether asking for an unknown topic creates it"),
    Option("broker.rack", STRING, None, "the rack of this broker"),
    Option("connections.max.idle.ms", LONG, 600_000, "silent connections are closed after this time"),
    Option("controller.quota.window.num", INT, 11, "windows of time that a rate of mutations is taken over", 1),
    Option("controller.quota.window.size.seconds", INT, 1, "the length of each of those windows", 1),
    _dynamic("cordoned.log.dirs", LIST, "", "directories of log.dirs that get no new partitions; * stands for all"),
    Option("default.replication.factor", INT, 1, "replicas of a topic that is created without a number", 1),
    Option("delete.topic.enable", BOOLEAN, True, "whether topics may be deleted"),
    Option("fetch.max.bytes", INT, 55 << 20, "the largest answer to a Fetch", 1024),
    _dynamic("group.consumer.assignment.interval.ms", INT, 1_000, "how often a consumer group may be reassigned", 0),
    Option("group.consumer.assignors", LIST, "uniform,range", "the assignors that are served", choices=_ASSIGNORS),
    Option("group.consumer.heartbeat.interval.ms", INT, 5_000, "how often members of consumer groups report", 1),
    Option("group.consumer.max.assignment.interval.ms", INT, 15_000, "the rarest assignment of a group's own", 0),
    Option("group.consumer.max.heartbeat.interval.ms", INT, 15_000, "the rarest heartbeat of a group's own", 1),
    Option("group.consumer.max.session.timeout.ms", INT, 60_000, "the longest session of a group's own", 1),
    Option("group.consumer.max.size", INT, INT_MAX, "the most members of a consumer group", 1),
    Option(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "whether groups change between the protocols",
        choices=("bidirectional", "disabled", "downgrade", "upgrade"),
    ),
    Option("group.consumer.min.assignment.interval.ms", INT, 0, "the most frequent assignment of a group's own", 0),
    Option("group.consumer.min.heartbeat.interval.ms", INT, 5_000, "the most frequent heartbeat of a group's own", 1),
    Option("group.consumer.min.session.timeout.ms", INT, 45_000, "the shortest session of a group's own", 1),
    Option("group.consumer.session.timeout.ms", INT, 45_000, "when a silent member of a consumer group is gone", 1),
    Option(
        "group.coordinator.rebalance.protocols",
        LIST,
        "classic,consumer,streams",
        "the kinds of groups that are served; streams groups are not",
        choices=("classic", "consumer", "share", "streams"),
    ),
    Option("group.initial.rebalance.delay.ms", INT, 3_000, "how long a new group waits for members", 0),
    Option("group.max.session.timeout.ms", INT, 1_800_000, "the longest session a member may ask for", 1),
    Option("group.max.size", INT, INT_MAX, "the most members of a group", 1),
    Option("group.min.session.timeout.ms", INT, 6_000, "the shortest session a member may ask for", 0),
    _dynamic("log.cleaner.backoff.ms", LONG, 15_000, "how often compaction looks for work", 0),
    _dynamic("log.cleaner.dedupe.buffer.size", LONG, 128 << 20, "memory for the keys of a log that is compacted", 1),
    Option("internal.group.session.cap.ms", INT, INT_MAX, "silent members are given up after it at the latest", 1),
    Option("internal.partial.frame.timeout.ms", LONG, 30_000, "a request that stops half-way ends its connection", 1),
    Option("log.cleaner.enable", BOOLEAN, True, "whether compacted topics are compacted"),
    Option("log.dirs", LIST, None, "the data directory"),
    Option("log.flush.offset.checkpoint.interval.ms", INT, 60_000, "how often recovery points are noted", 0),
    Option("log.retention.check.interval.ms", LONG, 300_000, "how often retention is applied", 1),
    Option("max.incremental.fetch.session.cache.slots", INT, 1000, "the most fetch sessions that are kept", 0),
    _dynamic("max.connection.creation.rate", INT, INT_MAX, "the most connections that are accepted a second", 1),
    _dynamic("max.connections", INT, INT_MAX, "the most connections at one time", 0),
    _dynamic("max.connections.per.ip", INT, INT_MAX, "the most connections of one address at one time", 0),
    _dynamic("max.connections.per.ip.overrides", STRING, "", "limits of some addresses, as in 10.0.0.1:5,10.0.0.2:9"),
    Option("max.request.partition.size.limit", INT, 2_000, "the most partitions of one page of descriptions", 1),
    Option("node.id", INT, None, "the id of this broker", 0),
    Option("num.partitions", INT, 1, "partitions of a topic that is created without a number", 1),
    Option("offset.metadata.max.bytes", INT, 4_096, "the largest metadata of a committed offset", 0),
    Option("offsets.retention.check.interval.ms", LONG, 600_000, "how often old offsets are looked for", 1),
    Option("offsets.retention.minutes", INT, 10_080, "how long offsets of an empty group are kept", 1),
    Option("offsets.topic.num.partitions", INT, 50, "partitions of __consumer_offsets", 1),
    Option("offsets.topic.replication.factor", SHORT, 3, "replicas of __consumer_offsets", 1),
    Option("offsets.topic.segment.bytes", INT, 100 << 20, "segment size of __consumer_offsets", 1 << 20),
    _dynamic("producer.id.expiration.ms", INT, 86_400_000, "how long a silent producer is remembered", 1),
    Option("quota.window.num", INT, 11, "windows of time that a client's rate is taken over", 1),
    Option("quota.window.size.seconds", INT, 1, "the length of each of those windows", 1),
    Option("socket.listen.backlog.size", INT, 50, "connections that may wait to be accepted", 1),
    Option("socket.receive.buffer.bytes", INT, 102_400, "SO_RCVBUF of a connection; -1 leaves it to the system", -1),
    Option("socket.request.max.bytes", INT, 100 << 20, "the largest request", 1),
    Option("socket.send.buffer.bytes", INT, 102_400, "SO_SNDBUF of a connection; -1 leaves it to the system", -1),
)


_WITHOUT_DEFAULT: Final = frozenset({"log.flush.interval.ms"})
"""Options whose default in Kafka is the value of another one (log.flush.scheduler.interval.ms)."""


def _topic_defaults() -> Iterator[Option]:
    """The options that set defaults of topics. Of several units only the coarsest has a default, as in Kafka."""
    for option in TOPIC_OPTIONS.values():
        coarsest = len(option.synonyms) - 1
        for position, (name, factor) in enumerate(option.synonyms):
            default = option.default if position == coarsest and name not in _WITHOUT_DEFAULT else None
            made = replace(option, name=name, default=default, dynamic=position == 0, synonyms=(), support=SERVED)
            if factor > 1:  # minutes and hours are of type int
                default = None if default is None else int(default) // factor
                made = replace(made, type=INT, default=default, minimum=min(option.minimum or 0, 1), maximum=None)
            yield made


BROKER_SETTINGS: Final[dict[str, Option]] = {
    setting.name: setting for setting in sorted((*_OWN, *_topic_defaults()), key=lambda setting: setting.name)
}

DYNAMIC: Final = frozenset(name for name, setting in BROKER_SETTINGS.items() if setting.dynamic)
"""The options that may be changed while the broker runs (KIP-226). Of several units, the finest."""

_ALWAYS: Final = {
    "node.id": "1",
    "offsets.topic.replication.factor": "1",  # a cluster of one broker could not create it otherwise
    "socket.listen.backlog.size": "1024",
    "socket.receive.buffer.bytes": "-1",  # the system's own sizes grow with the traffic
    "socket.send.buffer.bytes": "-1",
}

PROFILES: Final[dict[str, dict[str, str]]] = {
    "kafka": _ALWAYS,
    "test": {
        **_ALWAYS,
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.min.session.timeout.ms": "100",
        "group.consumer.session.timeout.ms": "10000",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "internal.group.session.cap.ms": "10000",
        "internal.partial.frame.timeout.ms": "5000",
        "offsets.topic.num.partitions": "4",
        "log.segment.delete.delay.ms": "1000",
    },
}
"""Options that a profile sets before the user's. `kafka` is Kafka's defaults as far as one node can have them."""
