"""The options of a broker that are served, under Kafka's names and with its defaults, and what the profiles change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.config.settings import (
    BOOLEAN,
    INT,
    INT_MAX,
    LIST,
    LONG,
    SHORT,
    STRING,
    Setting,
    SettingType,
    Value,
)
from pyclient.broker_embedded.log.config import TOPIC_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterator

_ASSIGNORS: Final = ("uniform", "range")


def _dynamic(name: str, kind: SettingType, default: Value, doc: str, minimum: float | None = None) -> Setting:
    """An option that may be changed while the broker runs."""
    return Setting(name, kind, default, doc, minimum, dynamic=True)


_OWN: Final = (
    Setting("auto.create.topics.enable", BOOLEAN, True, "whether asking for an unknown topic creates it"),
    Setting("broker.rack", STRING, None, "the rack of this broker"),
    Setting("connections.max.idle.ms", LONG, 600_000, "silent connections are closed after this time"),
    Setting("controller.quota.window.num", INT, 11, "windows of time that a rate of mutations is taken over", 1),
    Setting("controller.quota.window.size.seconds", INT, 1, "the length of each of those windows", 1),
    _dynamic("cordoned.log.dirs", LIST, "", "directories of log.dirs that get no new partitions; * stands for all"),
    Setting("default.replication.factor", INT, 1, "replicas of a topic that is created without a number", 1),
    Setting("delete.topic.enable", BOOLEAN, True, "whether topics may be deleted"),
    Setting("fetch.max.bytes", INT, 55 << 20, "the largest answer to a Fetch", 1024),
    _dynamic("group.consumer.assignment.interval.ms", INT, 1_000, "how often a consumer group may be reassigned", 0),
    Setting("group.consumer.assignors", LIST, "uniform,range", "the assignors that are served", choices=_ASSIGNORS),
    Setting("group.consumer.heartbeat.interval.ms", INT, 5_000, "how often members of consumer groups report", 1),
    Setting("group.consumer.max.assignment.interval.ms", INT, 15_000, "the rarest assignment of a group's own", 0),
    Setting("group.consumer.max.heartbeat.interval.ms", INT, 15_000, "the rarest heartbeat of a group's own", 1),
    Setting("group.consumer.max.session.timeout.ms", INT, 60_000, "the longest session of a group's own", 1),
    Setting("group.consumer.max.size", INT, INT_MAX, "the most members of a consumer group", 1),
    Setting(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "whether groups change between the protocols",
        choices=("bidirectional", "disabled", "downgrade", "upgrade"),
    ),
    Setting("group.consumer.min.assignment.interval.ms", INT, 0, "the most frequent assignment of a group's own", 0),
    Setting("group.consumer.min.heartbeat.interval.ms", INT, 5_000, "the most frequent heartbeat of a group's own", 1),
    Setting("group.consumer.min.session.timeout.ms", INT, 45_000, "the shortest session of a group's own", 1),
    Setting("group.consumer.session.timeout.ms", INT, 45_000, "when a silent member of a consumer group is gone", 1),
    Setting(
        "group.coordinator.rebalance.protocols",
        LIST,
        "classic,consumer,streams",
        "the kinds of groups that are served; streams groups are not",
        choices=("classic", "consumer", "share", "streams"),
    ),
    Setting("group.initial.rebalance.delay.ms", INT, 3_000, "how long a new group waits for members", 0),
    Setting("group.max.session.timeout.ms", INT, 1_800_000, "the longest session a member may ask for", 1),
    Setting("group.max.size", INT, INT_MAX, "the most members of a group", 1),
    Setting("group.min.session.timeout.ms", INT, 6_000, "the shortest session a member may ask for", 0),
    _dynamic("log.cleaner.backoff.ms", LONG, 15_000, "how often compaction looks for work", 0),
    _dynamic("log.cleaner.dedupe.buffer.size", LONG, 128 << 20, "memory for the keys of a log that is compacted", 1),
    Setting("internal.group.session.cap.ms", INT, INT_MAX, "silent members are given up after it at the latest", 1),
    Setting("internal.partial.frame.timeout.ms", LONG, 30_000, "a request that stops half-way ends its connection", 1),
    Setting("log.cleaner.enable", BOOLEAN, True, "whether compacted topics are compacted"),
    Setting("log.dirs", LIST, None, "the data directory"),
    Setting("log.flush.offset.checkpoint.interval.ms", INT, 60_000, "how often recovery points are noted", 0),
    Setting("log.retention.check.interval.ms", LONG, 300_000, "how often retention is applied", 1),
    Setting("max.incremental.fetch.session.cache.slots", INT, 1000, "the most fetch sessions that are kept", 0),
    _dynamic("max.connection.creation.rate", INT, INT_MAX, "the most connections that are accepted a second", 1),
    _dynamic("max.connections", INT, INT_MAX, "the most connections at one time", 0),
    _dynamic("max.connections.per.ip", INT, INT_MAX, "the most connections of one address at one time", 0),
    _dynamic("max.connections.per.ip.overrides", STRING, "", "limits of some addresses, as in 10.0.0.1:5,10.0.0.2:9"),
    Setting("max.request.partition.size.limit", INT, 2_000, "the most partitions of one page of descriptions", 1),
    Setting("node.id", INT, None, "the id of this broker", 0),
    Setting("num.partitions", INT, 1, "partitions of a topic that is created without a number", 1),
    Setting("offset.metadata.max.bytes", INT, 4_096, "the largest metadata of a committed offset", 0),
    Setting("offsets.retention.check.interval.ms", LONG, 600_000, "how often old offsets are looked for", 1),
    Setting("offsets.retention.minutes", INT, 10_080, "how long offsets of an empty group are kept", 1),
    Setting("offsets.topic.num.partitions", INT, 50, "partitions of __consumer_offsets", 1),
    Setting("offsets.topic.replication.factor", SHORT, 3, "replicas of __consumer_offsets", 1),
    Setting("offsets.topic.segment.bytes", INT, 100 << 20, "segment size of __consumer_offsets", 1 << 20),
    _dynamic("producer.id.expiration.ms", INT, 86_400_000, "how long a silent producer is remembered", 1),
    Setting("quota.window.num", INT, 11, "windows of time that a client's rate is taken over", 1),
    Setting("quota.window.size.seconds", INT, 1, "the length of each of those windows", 1),
    Setting("socket.listen.backlog.size", INT, 50, "connections that may wait to be accepted", 1),
    Setting("socket.receive.buffer.bytes", INT, 102_400, "SO_RCVBUF of a connection; -1 leaves it to the system", -1),
    Setting("socket.request.max.bytes", INT, 100 << 20, "the largest request", 1),
    Setting("socket.send.buffer.bytes", INT, 102_400, "SO_SNDBUF of a connection; -1 leaves it to the system", -1),
)


_WITHOUT_DEFAULT: Final = frozenset({"log.flush.interval.ms"})
"""Options whose default in Kafka is the value of another one (log.flush.scheduler.interval.ms)."""


def _topic_defaults() -> Iterator[Setting]:
    """The options that set defaults of topics. Of several units only the coarsest has a default, as in Kafka."""
    for key in TOPIC_CONFIGS.values():
        coarsest = len(key.broker_names) - 1
        for position, (name, factor) in enumerate(key.broker_names):
            default = key.default // factor if factor > 1 else key.render(key.default)
            kind = SettingType[key.type.upper()] if factor == 1 else INT  # minutes and hours are of type int
            low, high = (key.minimum, key.maximum) if factor == 1 else (min(key.minimum or 0, 1), None)
            setting = Setting(name, kind, None, key.doc, low, high, key.choices, dynamic=position == 0)
            if position == coarsest and name not in _WITHOUT_DEFAULT:
                setting = replace(setting, default=setting.parse(str(default)))
            yield setting


BROKER_SETTINGS: Final[dict[str, Setting]] = {
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
