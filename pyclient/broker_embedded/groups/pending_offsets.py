"""Offsets that open transactions have committed for one group: visible when the transaction commits. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyclient.broker_embedded.groups.log_records import CommittedOffset
    from pyclient.types import TopicPartition


class PendingOffsets:
    """The undecided offsets of a group, by producer id.

    Of several commits for a partition the one that is last in the log counts, in whatever order they are decided.
    """

    __slots__ = ("_by_producer", "_decided", "_written")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[TopicPartition, tuple[int, CommittedOffset]]] = {}
        self._decided: dict[TopicPartition, int] = {}  # number of the write that the visible offset comes from
        self._written = 0  # number of writes while there are undecided offsets

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, partition: object) -> bool:
        return any(partition in offsets for offsets in self._by_producer.values())

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_producer)

    @property
    def partitions(self) -> set[TopicPartition]:
        """Return the partitions with undecided offsets."""
        return set().union(*self._by_producer.values())

    def add(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Note offsets that a producer's transaction wrote to the log."""
        self._written += 1
        known = self._by_producer.setdefault(producer_id, {})
        known.update((partition, (self._written, offset)) for partition, offset in offsets.items())

    def overwritten(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a commit outside a transaction, or a deletion, came after the undecided offsets."""
        if self._by_producer:
            self._written += 1
            self._decided.update(dict.fromkeys(partitions, self._written))

    def end(self, producer_id: int, *, commit: bool) -> dict[TopicPartition, CommittedOffset]:
        """End a producer's transaction. Return the offsets that become visible."""
        ended = self._by_producer.pop(producer_id, {})
        visible = {}
        for partition, (number, offset) in ended.items() if commit else ():
            if number > self._decided.get(partition, 0):
                self._decided[partition] = number
                visible[partition] = offset
        if not self._by_producer:
            self._decided.clear()
        return visible
