"""The services that the transaction coordinator needs from its broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyclient.broker_embedded.transactions.config import TransactionConfig
    from pyclient.clock import Clock
    from pyclient.types import TopicPartition


class Marker(NamedTuple):
    """The end of a producer's transaction, as its coordinator sends it to partitions."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class TimerHandle(Protocol):
    """A scheduled callback that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the callback."""


class TransactionRuntime(Protocol):
    """Clock, timers, producer ids, the partitions of `__transaction_state`, and the leaders of all partitions."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""

    @property
    def config(self) -> TransactionConfig:
        """The coordinator options currently in force."""

    @property
    def transaction_version(self) -> int:
        """The finalised level of the feature transaction.version."""

    def schedule(self, delay: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the event loop in `delay` seconds."""

    def partition_count(self) -> int:
        """Return the number of partitions of `__transaction_state`, 0 if the topic does not exist."""

    def append(self, partition: int, epoch: int, batch: bytes, done: Callable[[int], None]) -> None:
        """Append a batch to a partition of `__transaction_state` as its leader in `epoch`.

        `done` gets 0 when it is committed, else the error code of the log; perhaps before this returns.
        """

    def read_partition(self, partition: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield every (key, value) of a partition of `__transaction_state` in order."""

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        """Call `done` with (0, a producer id that was never used), or (an error code, -1); perhaps at once."""

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the node that leads a partition, -1 if none does now; None if there is no such partition."""

    def write_markers(
        self,
        leader: int,
        marker: Marker,
        partitions: Iterable[TopicPartition],
        done: Callable[[TopicPartition, int], None],
    ) -> None:
        """Write a marker to partitions of a leader, which may be this node.

        `done` gets each partition with 0 when the marker is committed there, else with an error code.
        """
