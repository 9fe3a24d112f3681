"""The table of broker options: served, without effect, and refused, with the reason.

Names, types and defaults are Kafka's. The refused ones are in it since clients see Kafka's defaults of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyclient.config.broker_security import FIXED, SECURITY_OPTIONS, own_option
from pyclient.config.options import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    PASSWORD,
    REFUSED,
    SERVED,
    SHORT,
    STRING,
    WITHOUT_EFFECT,
    ConfigType,
    Option,
    Support,
    Value,
    table_of,
)
from pyclient.config.topic import TOPIC_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = tuple[str, ConfigType, Value]
"""Name, type and default of an option that is not served."""

_ASSIGNORS: Final = ("uniform", "range")


def _dynamic(name: str, kind: ConfigType, default: Value, doc: str, minimum: float | None = None) -> Option:
    """Return an option that may be changed while the broker runs."""
    return Option(name, kind, default, doc, minimum, dynamic=True)


_SERVED: Final = (
    Option("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, "how long a write waits for its coordinator", 0),
    Option("add.partitions.to.txn.retry.backoff.ms", INT, 20, "the pause between two of its attempts", 1),
    Option("auto.create.topics.enable", BOOLEAN, True, "whether asking for an unknown topic creates it"),
    Option("auto.leader.rebalance.enable", BOOLEAN, True, "whether preferred leaders are elected again by themselves"),
    Option("broker.heartbeat.interval.ms", INT, 2_000, "how often a broker sends a heartbeat to the controller", 1),
    Option("broker.rack", STRING, None, "the rack of this broker"),
    Option("broker.session.timeout.ms", INT, 9_000, "when the controller fences a broker that is silent", 1),
    Option("connection.failed.authentication.delay.ms", INT, 100, "how late a refused login is answered", 0),
    Option("connections.max.reauth.ms", LONG, 0, "the time after which clients authenticate again; 0: never"),
    Option("connections.max.idle.ms", LONG, 600_000, "silent connections are closed after this time"),
    Option("controller.listener.names", LIST, None, "the name of the listener for controllers, CONTROLLER by default"),
    Option(
        "controller.quorum.bootstrap.servers",
        LIST,
        "",
        "controllers to begin with, host:port or 1@host:port, where the metadata log has the voters (KIP-853)",
    ),
    Option("controller.quorum.election.backoff.max.ms", INT, 1000, "the longest wait after a lost election", 0),
    Option("controller.quorum.election.timeout.ms", INT, 1000, "how long to wait for a leader or for votes", 1),
    Option("controller.quorum.fetch.max.bytes", INT, 1_048_576, "the largest answer to a Fetch of the metadata", 1),
    Option(
        "controller.quorum.fetch.snapshot.max.bytes",
        INT,
        1_048_576,
        "the largest piece of a snapshot of the metadata",
        1,
    ),
    Option("controller.quorum.fetch.timeout.ms", INT, 2000, "how long a follower waits for its leader", 1),
    Option("controller.quorum.request.timeout.ms", INT, 2000, "how long a request of the quorum may take", 1),
    Option("controller.quorum.retry.backoff.ms", INT, 20, "the pause before a failed request of the quorum", 0),
    Option("controller.quorum.voters", LIST, "", "the controllers, as in 1@host:port; empty: this node alone"),
    Option("controlled.shutdown.enable", BOOLEAN, True, "whether a broker that stops hands its leaderships over first"),
    Option("controller.quota.window.num", INT, 11, "windows of time that a rate of mutations is taken over", 1),
    Option("controller.quota.window.size.seconds", INT, 1, "the length of each of those windows", 1),
    _dynamic("cordoned.log.dirs", LIST, "", "directories of log.dirs that get no new partitions; * means all"),
    Option("default.replication.factor", INT, 1, "replicas of a topic that is created without a number", 1),
    Option(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        3_600_000,
        "how often the controller removes expired delegation tokens",
        1,
    ),
    Option("delegation.token.expiry.time.ms", LONG, 86_400_000, "when a token expires that is not renewed", 1),
    Option("delegation.token.max.lifetime.ms", LONG, 604_800_000, "when a token expires that is renewed", 1),
    Option(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "the key of delegation tokens, the same on all nodes; without it there are none (KIP-48)",
    ),
    Option("delete.topic.enable", BOOLEAN, True, "whether topics may be deleted"),
    Option("fetch.max.bytes", INT, 55 << 20, "the largest answer to a Fetch", 1024),
    _dynamic(
        "follower.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "the most bytes a second that this node fetches of follower.replication.throttled.replicas (KIP-73)",
        0,
    ),
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
    _dynamic(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 << 20,
        "memory for the keys of a log that is compacted, of which each round takes as many as fit",
        (1 << 20) + 1,  # as Kafka demands it
    ),
    Option("initial.broker.registration.timeout.ms", INT, 60_000, "how long a start may wait for the controller", 1),
    Option(
        "internal.broker.closed.connection.grace.ms", INT, 1_000, "a broker whose connection ends is fenced then", 0
    ),
    Option("internal.group.session.cap.ms", INT, INT_MAX, "silent members are given up after it at the latest", 1),
    Option("internal.partial.frame.timeout.ms", LONG, 30_000, "a request that stops half-way ends its connection", 1),
    Option(
        "internal.replica.check.interval.ms",
        LONG,
        86_400_000,
        "how often replicas are checked for damage",
        0,
    ),
    Option("leader.imbalance.check.interval.seconds", LONG, 300, "how often preferred leaders are looked at", 1),
    _dynamic(
        "leader.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "the most bytes a second that followers get of leader.replication.throttled.replicas (KIP-73)",
        0,
    ),
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
    Option(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        20_971_520,
        "after how many bytes of changes the metadata are written as a snapshot",
        1,
    ),
    Option("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, "the same after so long; 0: by size alone", 0),
    Option("node.id", INT, None, "the id of this broker", 0),
    Option("num.partitions", INT, 1, "partitions of a topic that is created without a number", 1),
    Option("offset.metadata.max.bytes", INT, 4_096, "the largest metadata of a committed offset", 0),
    Option("offsets.commit.timeout.ms", INT, 5000, "how long a commit waits for the replicas of its partition", 1),
    Option("offsets.retention.check.interval.ms", LONG, 600_000, "how often old offsets are looked for", 1),
    Option("offsets.retention.minutes", INT, 10_080, "how long offsets of an empty group are kept", 1),
    Option("offsets.topic.num.partitions", INT, 50, "partitions of __consumer_offsets", 1),
    Option("offsets.topic.replication.factor", SHORT, 3, "replicas of __consumer_offsets", 1),
    Option("offsets.topic.segment.bytes", INT, 100 << 20, "segment size of __consumer_offsets", 1 << 20),
    Option("process.roles", LIST, None, "broker, controller, or both, which is the default"),
    _dynamic("producer.id.expiration.ms", INT, 86_400_000, "how long a silent producer is remembered", 1),
    Option("quota.window.num", INT, 11, "windows of time that a client's rate is taken over", 1),
    Option("quota.window.size.seconds", INT, 1, "the length of each of those windows", 1),
    Option("replica.fetch.backoff.ms", INT, 1000, "the longest pause of a follower after a fetch that failed", 0),
    Option("replica.fetch.max.bytes", INT, 1_048_576, "bytes of a partition that a follower asks for at once", 0),
    Option("replica.fetch.min.bytes", INT, 1, "bytes that the leader waits for before it answers a follower"),
    Option("replica.fetch.response.max.bytes", INT, 10_485_760, "bytes that a follower asks for at once in all", 0),
    Option("replica.fetch.wait.max.ms", INT, 500, "how long the leader waits for data before it answers a follower"),
    Option("replica.lag.time.max.ms", LONG, 30_000, "a follower that is behind for longer is not in sync", 1),
    Option(
        "replica.selector.class",
        STRING,
        None,
        "which replica a consumer reads from (KIP-392): by default the leader, or one in its rack",
        choices=("org.apache.kafka.common.replica.RackAwareReplicaSelector",),
    ),
    Option("replica.socket.timeout.ms", INT, 30_000, "how long a follower waits for the answer to a fetch", 1),
    Option("replication.quota.window.num", INT, 11, "windows of time that a rate of replication is taken over", 1),
    Option("replication.quota.window.size.seconds", INT, 1, "the length of each of those windows", 1),
    Option(
        "request.timeout.ms",
        INT,
        30_000,
        "how long the active controller may take for a client's request, and the removal of an unused transactional id",
        1,
    ),
    Option("socket.listen.backlog.size", INT, 50, "connections that may wait to be accepted", 1),
    Option("socket.receive.buffer.bytes", INT, 102_400, "SO_RCVBUF of a connection; -1 leaves it to the system", -1),
    Option("socket.request.max.bytes", INT, 100 << 20, "the largest request", 1),
    Option("socket.send.buffer.bytes", INT, 102_400, "SO_SNDBUF of a connection; -1 leaves it to the system", -1),
    Option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10_000,
        "how often transactions past their timeout are looked for",
        1,
    ),
    Option("transaction.max.timeout.ms", INT, 900_000, "the longest transaction.timeout.ms of a producer", 1),
    _dynamic(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        "whether a partition must be in the transaction that is written to it (KIP-890)",
    ),
    Option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        "how often unused transactional ids are looked for",
        1,
    ),
    Option("transaction.state.log.min.isr", INT, 2, "min.insync.replicas of __transaction_state", 1),
    Option("transaction.state.log.num.partitions", INT, 50, "partitions of __transaction_state", 1),
    Option("transaction.state.log.replication.factor", SHORT, 3, "replicas of __transaction_state", 1),
    Option("transaction.state.log.segment.bytes", INT, 100 << 20, "segment size of __transaction_state", 1 << 20),
    Option("transactional.id.expiration.ms", INT, 604_800_000, "how long an unused transactional id is kept", 1),
)

_WITHOUT_DEFAULT: Final = frozenset({"log.flush.interval.ms"})
"""Options whose default in Kafka is the value of another one (log.flush.scheduler.interval.ms)."""


def _topic_defaults() -> Iterator[Option]:
    """Return the options that set defaults of topics. Of several units only the coarsest has a default, as in Kafka."""
    for option in TOPIC_OPTIONS.values():
        coarsest = len(option.synonyms) - 1
        for position, (name, factor) in enumerate(option.synonyms):
            default = option.default if position == coarsest and name not in _WITHOUT_DEFAULT else None
            made = replace(option, name=name, default=default, dynamic=position == 0, synonyms=(), support=SERVED)
            if factor > 1:  # minutes and hours are of type int
                default = None if default is None else int(default) // factor
                made = replace(made, type=INT, default=default, minimum=min(option.minimum or 0, 1), maximum=None)
            yield made


_WITHOUT_EFFECT: Final[tuple[Row, ...]] = (
    ("alter.log.dirs.replication.quota.window.num", INT, 11),
    ("alter.log.dirs.replication.quota.window.size.seconds", INT, 1),
    ("broker.id", INT, -1),
    ("controller.quorum.append.linger.ms", INT, 25),
    ("controller.socket.timeout.ms", INT, 30_000),
    ("delete.records.purgatory.purge.interval.requests", INT, 1),
    ("fetch.purgatory.purge.interval.requests", INT, 1000),
    ("group.coordinator.append.linger.ms", INT, -1),
    ("group.coordinator.background.threads", INT, 2),
    ("group.coordinator.threads", INT, 4),
    ("group.share.assignors", LIST, "simple"),
    ("group.share.delivery.count.limit", INT, 5),
    ("group.share.heartbeat.interval.ms", INT, 5000),
    ("group.share.max.assignment.interval.ms", INT, 15_000),
    ("group.share.max.delivery.count.limit", INT, 10),
    ("group.share.max.heartbeat.interval.ms", INT, 15_000),
    ("group.share.max.partition.max.record.locks", INT, 4000),
    ("group.share.max.record.lock.duration.ms", INT, 60_000),
    ("group.share.max.session.timeout.ms", INT, 60_000),
    ("group.share.max.share.sessions", INT, 2000),
    ("group.share.max.size", INT, 200),
    ("group.share.min.assignment.interval.ms", INT, 0),
    ("group.share.min.delivery.count.limit", INT, 2),
    ("group.share.min.heartbeat.interval.ms", INT, 5000),
    ("group.share.min.partition.max.record.locks", INT, 100),
    ("group.share.min.record.lock.duration.ms", INT, 15_000),
    ("group.share.min.session.timeout.ms", INT, 45_000),
    ("group.share.partition.max.record.locks", INT, 2000),
    ("group.share.record.lock.duration.ms", INT, 30_000),
    ("group.share.session.timeout.ms", INT, 45_000),
    ("group.streams.heartbeat.interval.ms", INT, 5000),
    ("group.streams.initial.rebalance.delay.ms", INT, 3000),
    ("group.streams.max.assignment.interval.ms", INT, 15_000),
    ("group.streams.max.heartbeat.interval.ms", INT, 15_000),
    ("group.streams.max.session.timeout.ms", INT, 60_000),
    ("group.streams.max.size", INT, INT_MAX),
    ("group.streams.max.standby.replicas", INT, 2),
    ("group.streams.min.assignment.interval.ms", INT, 0),
    ("group.streams.min.heartbeat.interval.ms", INT, 5000),
    ("group.streams.min.session.timeout.ms", INT, 45_000),
    ("group.streams.num.standby.replicas", INT, 0),
    ("group.streams.session.timeout.ms", INT, 45_000),
    ("kafka.metrics.polling.interval.secs", INT, 10),
    ("kafka.metrics.reporters", LIST, ""),
    ("log.dir.failure.timeout.ms", LONG, 30_000),
    ("log.flush.scheduler.interval.ms", LONG, LONG_MAX),
    ("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000),
    ("metadata.log.segment.bytes", INT, 1_073_741_824),
    ("metadata.log.segment.ms", LONG, 604_800_000),
    ("metadata.max.idle.interval.ms", INT, 500),
    ("metadata.max.retention.bytes", LONG, 104_857_600),
    ("metadata.max.retention.ms", LONG, 604_800_000),
    ("metrics.num.samples", INT, 2),
    ("metrics.recording.level", STRING, "INFO"),
    ("metrics.sample.window.ms", LONG, 30_000),
    ("num.replica.alter.log.dirs.threads", INT, None),
    ("offsets.load.buffer.size", INT, 5_242_880),
    ("offsets.topic.compression.codec", INT, 0),
    ("producer.purgatory.purge.interval.requests", INT, 1000),
    ("queued.max.request.bytes", LONG, -1),
    ("queued.max.requests", INT, 500),
    ("replica.high.watermark.checkpoint.interval.ms", LONG, 5000),
    ("replica.socket.receive.buffer.bytes", INT, 65_536),
    ("share.coordinator.append.linger.ms", INT, -1),
    ("share.coordinator.load.buffer.size", INT, 5_242_880),
    ("share.coordinator.snapshot.update.records.per.snapshot", INT, 500),
    ("share.coordinator.state.topic.compression.codec", INT, 0),
    ("share.coordinator.state.topic.min.isr", SHORT, 2),
    ("share.coordinator.state.topic.num.partitions", INT, 50),
    ("share.coordinator.state.topic.replication.factor", SHORT, 3),
    ("share.coordinator.state.topic.segment.bytes", INT, 104_857_600),
    ("share.coordinator.threads", INT, 1),
    ("share.coordinator.write.timeout.ms", INT, 5000),
    ("share.fetch.purgatory.purge.interval.requests", INT, 1000),
    ("socket.connection.setup.timeout.max.ms", LONG, 30_000),
    ("socket.connection.setup.timeout.ms", LONG, 10_000),
    ("telemetry.max.bytes", INT, 1_048_576),
    ("transaction.state.log.load.buffer.size", INT, 5_242_880),
    ("transaction.two.phase.commit.enable", BOOLEAN, False),
)
"""Threads, buffers, replication between brokers, coordinators of transactions, share and streams groups.

One node has no use for them, but a `server.properties` may name them.
"""

_WITHOUT_EFFECT_DYNAMIC: Final[tuple[Row, ...]] = (
    ("background.threads", INT, 10),
    ("follower.fetch.last.tiered.offset.enable", BOOLEAN, False),
    ("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588),
    ("group.share.assignment.interval.ms", INT, 1000),
    ("group.streams.assignment.interval.ms", INT, 1000),
    ("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9),
    ("log.cleaner.io.buffer.size", INT, 524_288),
    ("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308),
    ("log.cleaner.threads", INT, 1),
    ("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter"),
    ("num.io.threads", INT, 8),
    ("num.network.threads", INT, 3),
    ("num.recovery.threads.per.data.dir", INT, 2),
    ("num.replica.fetchers", INT, 1),
    ("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX),
    ("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588),
)
"""Options without effect that are dynamic in Kafka."""

_OF_OLDER_RELEASES: Final[tuple[Row, ...]] = (
    ("auto.include.jmx.reporter", BOOLEAN, True),
    ("controlled.shutdown.max.retries", INT, 3),
    ("controlled.shutdown.retry.backoff.ms", LONG, 5000),
    ("group.share.enable", BOOLEAN, False),
    ("inter.broker.protocol.version", STRING, None),
    ("leader.imbalance.per.broker.percentage", INT, 10),
    ("log.message.downconversion.enable", BOOLEAN, True),
    ("log.message.format.version", STRING, None),
    ("offsets.commit.required.acks", SHORT, -1),
)
"""Options that Kafka 4.3 no longer lists; configuration files for older releases have them."""

REASONS: Final[dict[str, str]] = {
    "alter.config.policy.class.name": "plug-ins of Java classes cannot run here",
    "client.quota.callback.class": "plug-ins of Java classes cannot run here",
    "config.providers": "plug-ins of Java classes cannot run here",
    "controller.quorum.auto.join.enable": "a controller is added by AddRaftVoter",
    "create.topic.policy.class.name": "plug-ins of Java classes cannot run here",
    "early.start.listeners": "no listener for clients starts before the node has the metadata",
    "listener.": "a listener has options of TLS and SASL of its own only",
    "log.dir": "directories are given, as log.dirs, when the broker is started",
    "metadata.log.dir": "the metadata are in the first directory of log.dirs",
    "principal.builder.class": "plug-ins of Java classes cannot run here",
    "remote.": "there is no tiered storage",
    "sasl.": "of SASL, PLAIN, SCRAM and OAUTHBEARER with a JWKS are served",
    "security.": "Java's providers cannot run here",
    "ssl.": "TLS is OpenSSL's, with certificates and keys in PEM or PKCS12",
    "zookeeper.": "metadata is kept in KRaft's log",
}
"""Options (with a trailing dot: families of options) that are refused, with the reason."""

_REFUSED: Final[tuple[Row, ...]] = (
    ("alter.config.policy.class.name", CLASS, None),
    ("client.quota.callback.class", CLASS, None),
    ("controller.quorum.auto.join.enable", BOOLEAN, False),
    ("create.topic.policy.class.name", CLASS, None),
    ("early.start.listeners", LIST, None),
    ("log.dir", LIST, "/tmp/kafka-logs"),
    ("metadata.log.dir", STRING, None),
    ("remote.log.manager.copy.quota.window.num", INT, 11),
    ("remote.log.manager.copy.quota.window.size.seconds", INT, 1),
    ("remote.log.manager.fetch.quota.window.num", INT, 11),
    ("remote.log.manager.fetch.quota.window.size.seconds", INT, 1),
    ("remote.log.manager.task.interval.ms", LONG, 30_000),
    ("remote.log.manager.thread.pool.size", INT, 2),
    ("remote.log.metadata.custom.metadata.max.bytes", INT, 128),
    (
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    ),
    ("remote.log.metadata.manager.class.path", STRING, None),
    ("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config."),
    ("remote.log.metadata.manager.listener.name", STRING, None),
    ("remote.log.reader.max.pending.tasks", INT, 100),
    ("remote.log.storage.manager.class.name", STRING, None),
    ("remote.log.storage.manager.class.path", STRING, None),
    ("remote.log.storage.manager.impl.prefix", STRING, "rsm.config."),
    ("remote.log.storage.system.enable", BOOLEAN, False),
    ("sasl.client.callback.handler.class", CLASS, None),
    ("sasl.login.class", CLASS, None),
    ("sasl.oauthbearer.jwt.validator.class", CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"),
    ("sasl.server.max.receive.size", INT, 524_288),
    ("security.providers", STRING, None),
    ("ssl.allow.dn.changes", BOOLEAN, False),
    ("ssl.allow.san.changes", BOOLEAN, False),
)

_REFUSED_DYNAMIC: Final[tuple[Row, ...]] = (
    ("config.providers", LIST, ""),
    ("principal.builder.class", CLASS, "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
    ("remote.fetch.max.wait.ms", INT, 500),
    ("remote.list.offsets.request.timeout.ms", LONG, 30_000),
    ("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824),
    ("remote.log.manager.copier.thread.pool.size", INT, 10),
    ("remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX),
    ("remote.log.manager.expiration.thread.pool.size", INT, 10),
    ("remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX),
    ("remote.log.manager.follower.thread.pool.size", INT, 2),
    ("remote.log.reader.threads", INT, 10),
    ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit"),
    ("sasl.kerberos.min.time.before.relogin", LONG, 60_000),
    ("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT"),
    ("sasl.kerberos.service.name", STRING, None),
    ("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05),
    ("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8),
    ("ssl.engine.factory.class", CLASS, None),
    ("ssl.keymanager.algorithm", STRING, "SunX509"),
    ("ssl.protocol", STRING, "TLSv1.3"),
    ("ssl.provider", STRING, None),
    ("ssl.secure.random.implementation", STRING, None),
    ("ssl.trustmanager.algorithm", STRING, "PKIX"),
)
"""Refused options that are dynamic in Kafka."""


def refusal(name: str) -> str | None:
    """Return why an option must not be set; None if it may be set."""
    if name in FIXED or own_option(name) is not None:
        return None
    reason, family = REASONS.get(name), name
    while reason is None and family:
        family = family.rpartition(".")[0]
        reason = REASONS.get(f"{family}.")
    return reason


def _unserved(rows: tuple[Row, ...], support: Support, doc: str, *, dynamic: bool = False) -> Iterator[Option]:
    for name, kind, default in rows:
        reason = (refusal(name) or "") if support is REFUSED else ""
        yield Option(name, kind, default, doc, dynamic=dynamic, support=support, reason=reason)


_IGNORED: Final = "taken, without any effect"
_NOT_SUPPORTED: Final = "not supported by the embedded broker"

BROKER_OPTIONS: Final[dict[str, Option]] = table_of(
    *sorted(
        (
            *_SERVED,
            *SECURITY_OPTIONS,
            *_topic_defaults(),
            *_unserved(_WITHOUT_EFFECT, WITHOUT_EFFECT, _IGNORED),
            *_unserved(_WITHOUT_EFFECT_DYNAMIC, WITHOUT_EFFECT, _IGNORED, dynamic=True),
            *_unserved(_OF_OLDER_RELEASES, WITHOUT_EFFECT, _IGNORED),
            *_unserved(_REFUSED, REFUSED, _NOT_SUPPORTED),
            *_unserved(_REFUSED_DYNAMIC, REFUSED, _NOT_SUPPORTED, dynamic=True),
        ),
        key=lambda option: option.name,
    )
)
"""All broker options by name, in alphabetical order."""

SERVED_OPTIONS: Final = {name: option for name, option in BROKER_OPTIONS.items() if option.support is SERVED}

SET_DYNAMICALLY: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Options that Kafka has at run time only (DynamicConfig): DescribeConfigs lists them once they are set."""

OF_OLDER_RELEASES: Final = frozenset(name for name, _kind, _default in _OF_OLDER_RELEASES)
"""Options without effect that DescribeConfigs does not list, and whose values are not checked at run time."""


def default_of(name: str) -> Any:
    """Return the default of a broker option."""
    return BROKER_OPTIONS[name].default


_ALWAYS: Final = {
    "node.id": "1",
    "offsets.topic.replication.factor": "1",  # a cluster of one broker could not create it otherwise
    "socket.listen.backlog.size": "1024",
    "socket.receive.buffer.bytes": "-1",  # the system's own sizes grow with the traffic
    "socket.send.buffer.bytes": "-1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}

PROFILES: Final[dict[str, dict[str, str]]] = {
    "kafka": _ALWAYS,
    "test": {
        **_ALWAYS,
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "1000",
        "controller.quorum.election.backoff.max.ms": "100",
        "controller.quorum.election.timeout.ms": "200",
        "controller.quorum.fetch.timeout.ms": "1500",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.min.session.timeout.ms": "100",
        "group.consumer.session.timeout.ms": "10000",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "internal.broker.closed.connection.grace.ms": "60",
        "internal.group.session.cap.ms": "10000",
        "internal.partial.frame.timeout.ms": "5000",
        "offsets.topic.num.partitions": "4",
        "replica.fetch.backoff.ms": "100",
        "replica.lag.time.max.ms": "3000",
        "log.retention.check.interval.ms": "86400000",  # records of tests often have times of long ago
        "log.segment.delete.delay.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        "transaction.state.log.num.partitions": "4",
    },
}
"""Options that a profile sets before the user's. `kafka` is Kafka's defaults as far as one node can have them."""
