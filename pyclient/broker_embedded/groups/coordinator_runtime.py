"""The services that the group coordinator needs from its broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    from pyclient.broker_embedded.groups.config import GroupConfig
    from pyclient.broker_embedded.groups.consumer.topics import Topics
    from pyclient.clock import Clock


class StoredRecord(NamedTuple):
    """A record of `__consumer_offsets`; `producer_id` is -1 unless a transaction wrote it."""

    key: bytes | None
    value: bytes | None
    producer_id: int = -1


class TransactionEnd(NamedTuple):
    """The marker that ends a producer's transaction in a partition of `__consumer_offsets`."""

    producer_id: int
    commit: bool


class TimerHandle(Protocol):
    """A scheduled callback that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the callback."""


class CoordinatorRuntime(Protocol):
    """Clock, random numbers, timers, cluster metadata and the partitions of `__consumer_offsets`."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""

    @property
    def rng(self) -> Random:
        """The source of random member ids."""

    @property
    def group_config(self) -> GroupConfig:
        """The coordinator options currently in force."""

    @property
    def topics(self) -> Topics:
        """The current topics of the cluster."""

    def group_options(self, group_id: str) -> Mapping[str, str]:
        """Return the options set on the group itself, by their names (`consumer.session.timeout.ms`)."""

    def schedule(self, delay: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the event loop in `delay` seconds."""

    def partition_count(self) -> int:
        """Return the number of partitions of `__consumer_offsets`, 0 if the topic does not exist."""

    def append(self, partition: int, batch: bytes) -> None:
        """Append a record batch to a partition of `__consumer_offsets`; raise `BrokerError` if it was not written."""

    def read_partition(self, partition: int) -> Iterator[StoredRecord | TransactionEnd]:
        """Yield every record and every end of a transaction of a partition of `__consumer_offsets` in order."""
