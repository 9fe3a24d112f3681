"""What the group coordinator asks of the node it runs in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    from pyclient.broker_embedded.groups.config import GroupConfig
    from pyclient.broker_embedded.groups.consumer.topics import Topics
    from pyclient.clock import Clock


class TimerHandle(Protocol):
    """A timer that can be taken back."""

    def cancel(self) -> None:
        """Make sure that the callback does not run."""


class GroupSeams(Protocol):
    """The clock, the random numbers, the timers and the log partitions of `__consumer_offsets`."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""

    @property
    def rng(self) -> Random:
        """Where member ids come from."""

    @property
    def group_config(self) -> GroupConfig:
        """The options in force now."""

    @property
    def topics(self) -> Topics:
        """The topics of the cluster as they are now."""

    def group_options(self, group_id: str) -> Mapping[str, str]:
        """The options that are set on the group itself, under their own names (`consumer.session.timeout.ms`)."""

    def schedule(self, delay: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the node's loop in `delay` seconds."""

    def partition_count(self) -> int:
        """Return the number of partitions of `__consumer_offsets`, 0 if the topic does not exist."""

    def append(self, partition: int, batch: bytes) -> None:
        """Write a record batch into a partition of `__consumer_offsets`; a `BrokerError` means it was not written."""

    def read_partition(self, partition: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Every (key, value) of a partition of `__consumer_offsets`, in order, without control records."""
