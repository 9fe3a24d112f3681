"""Writes transaction markers to partitions that this node leads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyclient.broker_embedded.controller.coordinator_topic import CoordinatorServices
from pyclient.broker_embedded.controller.topics import OFFSETS_TOPIC
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.log.end_transaction_marker import EndTransactionMarker, build_marker
from pyclient.errors import KafkaStorageError, NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.groups.coordinator import GroupCoordinator
    from pyclient.broker_embedded.log.manager import LogManager
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.transactions.runtime import Marker
    from pyclient.types import TopicPartition


class MarkerServices(CoordinatorServices, Protocol):
    """The services of a node that a transaction marker takes."""

    @property
    def logs(self) -> LogManager:
        """The logs of the node."""

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator, whose offsets a transaction decides."""


def write_marker(
    services: MarkerServices, partition: TopicPartition, marker: Marker, done: Callable[[int], None]
) -> None:
    """Append a marker. `done` gets 0 when it is committed, else the error code; perhaps before this returns.

    Offsets that the transaction committed are visible then, or dropped.
    """
    try:
        if partition in services.logs.unopened and not services.logs.recovery_queue.request(partition):
            raise NotLeaderOrFollower(f"{partition} is being opened")
        log, leader_epoch = services.partitions.leader(*partition)
        hosted = services.partitions.hosted(*partition)
        if hosted is not None:
            hosted.partition.check_min_isr()
        now_ms = services.clock.time_ms()
        batch = build_marker(
            marker.producer_id,
            marker.producer_epoch,
            EndTransactionMarker(marker.commit, marker.coordinator_epoch),
            timestamp_ms=now_ms,
        )
        info = log.append(
            batch,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin="coordinator",
            transaction_version=marker.transaction_version,
        )
    except Exception as error:  # every failure is answered with its error code
        done(code_of(error, f"a transaction marker for {partition}"))
        return
    when_committed(log, info.last_offset, partial(_committed, services, partition, marker, done))


def _committed(
    services: MarkerServices, partition: TopicPartition, marker: Marker, done: Callable[[int], None], code: int
) -> None:
    if not code and partition.topic == OFFSETS_TOPIC:
        services.groups.transaction_ended(partition.partition, marker.producer_id, commit=marker.commit)
    done(code)


def when_committed(log: UnifiedLog, offset: int, done: Callable[[int], None]) -> None:
    """Call `done` with 0 when `offset` is committed, at once if it is; with an error code if it never will be."""
    if log.high_watermark > offset:
        done(0)
        return

    def over() -> None:
        done(0 if log.high_watermark > offset else KafkaStorageError.code)

    log.when_committed(offset, over)
