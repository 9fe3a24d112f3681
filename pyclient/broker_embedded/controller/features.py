"""Features with levels (KIP-584): those of this broker, those a new cluster begins with, how they may change. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA_VERSION: Final = "metadata.version"
GROUP_VERSION: Final = "group.version"


class Feature(NamedTuple):
    """The levels that are supported, and the one that a new cluster has; level 0 is "off"."""

    first: int
    last: int
    initial: int


FEATURES: Final[dict[str, Feature]] = {
    GROUP_VERSION: Feature(0, 1, 1),  # 1: the consumer protocol of groups (KIP-848)
    METADATA_VERSION: Feature(7, 25, 25),  # 25: 4.0-IV3, the records that this broker writes
}
"""Transactions, share groups and streams groups have features of their own, which are not here."""


class Upgrade:
    """What an update may do to a level; the numbers of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def supported(name: str, level: int) -> tuple[int, int]:
    """The levels of a feature; a later Kafka may have written the log at a higher `level`."""
    return FEATURES[name].first, max(FEATURES[name].last, level)


def check_update(name: str, level: int, upgrade_type: int, levels: Mapping[str, int]) -> None:
    """Raise `InvalidUpdateVersion` unless a feature may go to `level`; levels never go back here."""
    what = f"feature {name} cannot have level {level}"
    feature = FEATURES.get(name)
    if feature is None:
        raise errors.InvalidUpdateVersion(f"{what}: this broker has no such feature")
    current = levels.get(name, 0)
    first, last = supported(name, current)
    if upgrade_type not in (Upgrade.UPGRADE, Upgrade.SAFE_DOWNGRADE, Upgrade.UNSAFE_DOWNGRADE):
        raise errors.InvalidUpdateVersion(f"{what}: there is no upgrade type {upgrade_type}")
    if not first <= level <= last:
        raise errors.InvalidUpdateVersion(f"{what}: levels {first} to {last} are supported")
    if level < current:
        raise errors.InvalidUpdateVersion(f"{what}: it is at {current}, and this broker does not go back")
