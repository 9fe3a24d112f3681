"""Kafka's options that have no effect here, with Kafka's types and defaults.

Threads, buffers, replication between brokers, coordinators of transactions, share and streams groups: one node has no
use for them, but a `server.properties` may name them.
"""

from __future__ import annotations

from typing import Final

from pyclient.config.options import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    SHORT,
    STRING,
    ConfigType,
    Option,
    Value,
)

Row = tuple[str, ConfigType, Value]
"""Name, type and default of an option."""

_FIXED: Final[tuple[Row, ...]] = (
    ("add.partitions.to.txn.retry.backoff.max.ms", INT, 100),
    ("add.partitions.to.txn.retry.backoff.ms", INT, 20),
    ("alter.log.dirs.replication.quota.window.num", INT, 11),
    ("alter.log.dirs.replication.quota.window.size.seconds", INT, 1),
    ("auto.leader.rebalance.enable", BOOLEAN, True),
    ("broker.heartbeat.interval.ms", INT, 2000),
    ("broker.id", INT, -1),
    ("broker.session.timeout.ms", INT, 9000),
    ("connection.failed.authentication.delay.ms", INT, 100),
    ("connections.max.reauth.ms", LONG, 0),
    ("controlled.shutdown.enable", BOOLEAN, True),
    ("controller.socket.timeout.ms", INT, 30_000),
    ("delegation.token.expiry.check.interval.ms", LONG, 3_600_000),
    ("delegation.token.expiry.time.ms", LONG, 86_400_000),
    ("delegation.token.max.lifetime.ms", LONG, 604_800_000),
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
    ("initial.broker.registration.timeout.ms", INT, 60_000),
    ("kafka.metrics.polling.interval.secs", INT, 10),
    ("kafka.metrics.reporters", LIST, ""),
    ("leader.imbalance.check.interval.seconds", LONG, 300),
    ("log.dir.failure.timeout.ms", LONG, 30_000),
    ("log.flush.scheduler.interval.ms", LONG, LONG_MAX),
    ("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000),
    ("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520),
    ("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000),
    ("metadata.log.segment.bytes", INT, 1_073_741_824),
    ("metadata.log.segment.ms", LONG, 604_800_000),
    ("metadata.max.idle.interval.ms", INT, 500),
    ("metadata.max.retention.bytes", LONG, 104_857_600),
    ("metadata.max.retention.ms", LONG, 604_800_000),
    ("metrics.num.samples", INT, 2),
    ("metrics.recording.level", STRING, "INFO"),
    ("metrics.sample.window.ms", LONG, 30_000),
    ("num.replica.alter.log.dirs.threads", INT, None),
    ("offsets.commit.timeout.ms", INT, 5000),
    ("offsets.load.buffer.size", INT, 5_242_880),
    ("offsets.topic.compression.codec", INT, 0),
    ("producer.purgatory.purge.interval.requests", INT, 1000),
    ("queued.max.request.bytes", LONG, -1),
    ("queued.max.requests", INT, 500),
    ("replica.fetch.backoff.ms", INT, 1000),
    ("replica.fetch.max.bytes", INT, 1_048_576),
    ("replica.fetch.min.bytes", INT, 1),
    ("replica.fetch.response.max.bytes", INT, 10_485_760),
    ("replica.fetch.wait.max.ms", INT, 500),
    ("replica.high.watermark.checkpoint.interval.ms", LONG, 5000),
    ("replica.lag.time.max.ms", LONG, 30_000),
    ("replica.socket.receive.buffer.bytes", INT, 65_536),
    ("replica.socket.timeout.ms", INT, 30_000),
    ("replication.quota.window.num", INT, 11),
    ("replication.quota.window.size.seconds", INT, 1),
    ("request.timeout.ms", INT, 30_000),
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
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000),
    ("transaction.max.timeout.ms", INT, 900_000),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000),
    ("transaction.state.log.load.buffer.size", INT, 5_242_880),
    ("transaction.state.log.min.isr", INT, 2),
    ("transaction.state.log.num.partitions", INT, 50),
    ("transaction.state.log.replication.factor", SHORT, 3),
    ("transaction.state.log.segment.bytes", INT, 104_857_600),
    ("transaction.two.phase.commit.enable", BOOLEAN, False),
    ("transactional.id.expiration.ms", INT, 604_800_000),
)

_DYNAMIC: Final[tuple[Row, ...]] = (
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
    ("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588),
    ("transaction.partition.verification.enable", BOOLEAN, True),
)
"""Options that are dynamic in Kafka."""

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


def settings_of(rows: tuple[Row, ...], doc: str, *, dynamic: bool = False) -> dict[str, Option]:
    """Return settings by name; `dynamic` ones may be changed while the broker runs."""
    return {name: Option(name, kind, default, doc, dynamic=dynamic) for name, kind, default in rows}


_DOC: Final = "taken, without any effect"

OF_OLDER_RELEASES: Final = settings_of(_OF_OLDER_RELEASES, _DOC)
"""Options without effect by name, which DescribeConfigs does not list."""

WITHOUT_EFFECT: Final[dict[str, Option]] = {
    **settings_of(_FIXED, _DOC),
    **settings_of(_DYNAMIC, _DOC, dynamic=True),
    **OF_OLDER_RELEASES,
}
"""Options without effect by name. Their values are checked for their type, and DescribeConfigs lists them."""
