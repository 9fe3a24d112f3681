"""Partition reassignments (KIP-455): plan one, complete it when the new replicas are in sync, or cancel it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyclient.broker_embedded.controller.image import PartitionImage


class Reassignment(NamedTuple):
    """The replicas of a partition while it is reassigned: the target first, then the replicas to remove."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Completed(NamedTuple):
    """The replicas and ISR of a partition whose reassignment is complete."""

    replicas: list[int]
    isr: list[int]


class Reverted(NamedTuple):
    """The replicas and ISR of a partition whose reassignment is cancelled.

    `unclean` if only added replicas are in sync: the first original one then becomes the ISR, without their records.
    """

    replicas: list[int]
    isr: list[int]
    unclean: bool


def plan(current: Sequence[int], target: Sequence[int]) -> Reassignment:
    """Return the replicas during a reassignment from `current` to `target`."""
    removing = sorted(set(current) - set(target))
    return Reassignment([*target, *removing], sorted(set(target) - set(current)), removing)


def completed(
    replicas: Sequence[int], adding: Collection[int], removing: Collection[int], isr: Sequence[int]
) -> Completed | None:
    """Return the partition after its reassignment, None if it has none or a replica of the target is not in sync."""
    if not adding and not removing:
        return None
    kept = [replica for replica in replicas if replica not in removing]
    in_sync = [replica for replica in isr if replica not in removing]
    if not kept or not set(kept) <= set(in_sync):
        return None
    return Completed(kept, in_sync)


def reverted(partition: PartitionImage) -> Reverted:
    """Return the partition without its reassignment: no added replicas, and those that were to be removed stay.

    Raise `InvalidReplicaAssignment` if nothing would remain.
    """
    replicas = [replica for replica in partition.replicas if replica not in partition.adding]
    isr = [replica for replica in partition.isr if replica not in partition.adding]
    if not replicas:
        raise errors.InvalidReplicaAssignment(
            f"the reassignment of partition {partition.partition} cannot be cancelled: it adds all of its replicas "
            f"{partition.replicas}"
        )
    return Reverted(replicas, isr, False) if isr else Reverted(replicas, [replicas[0]], True)
