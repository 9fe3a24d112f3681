"""Features with levels (KIP-584): those of this broker, those a new cluster begins with, how they may change. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA_VERSION: Final = "metadata.version"
GROUP_VERSION: Final = "group.version"


class Feature(NamedTuple):
    """The levels that are supported; a new cluster has the last one. Level 0 is "off"."""

    first: int
    last: int


FEATURES: Final[dict[str, Feature]] = {
    GROUP_VERSION: Feature(0, 1),  # 1: the consumer protocol of groups (KIP-848)
    METADATA_VERSION: Feature(7, 30),  # 3.3-IV3 to 4.3-IV0
}
"""Transactions, eligible leader replicas, share groups and streams groups have features of their own, which are not
here."""


class Upgrade:
    """What an update may do to a level; the numbers of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def initial_levels(most: Mapping[str, int] | None) -> dict[str, int]:
    """What a new log begins with, metadata.version first, as in Kafka.

    `most` are the levels of the release that the node looks like. One older than 3.3 has none: its metadata is that of
    3.3, the first release whose log is Kafka's own for good.
    """
    levels = {name: feature.last for name, feature in FEATURES.items()}
    if most is not None:
        levels = {name: min(level, most.get(name, FEATURES[name].first)) for name, level in levels.items()}
    return dict(sorted(levels.items(), key=lambda item: item[0] != METADATA_VERSION))


def supported(name: str, level: int) -> tuple[int, int]:
    """The levels of a feature; a later Kafka may have written the log at a higher `level`."""
    return FEATURES[name].first, max(FEATURES[name].last, level)


def check_update(
    name: str, level: int, upgrade_type: int, levels: Mapping[str, int], most: Mapping[str, int] | None = None
) -> None:
    """Raise `InvalidUpdateVersion` unless a feature may go to `level`.

    metadata.version never goes back: the log may have what an older one cannot say. `most` are the highest levels of
    the release that the node looks like, which knows no other features.
    """
    what = f"feature {name} cannot have level {level}"
    if name not in FEATURES or (most is not None and name not in most):
        raise errors.InvalidUpdateVersion(f"{what}: this broker has no such feature")
    current = levels.get(name, 0)
    first, last = supported(name, current)
    if most is not None:
        last = max(min(last, most[name]), current)
    if upgrade_type not in (Upgrade.UPGRADE, Upgrade.SAFE_DOWNGRADE, Upgrade.UNSAFE_DOWNGRADE):
        raise errors.InvalidUpdateVersion(f"{what}: there is no upgrade type {upgrade_type}")
    if not first <= level <= last:
        raise errors.InvalidUpdateVersion(f"{what}: levels {first} to {last} are supported")
    if level < current and upgrade_type == Upgrade.UPGRADE:
        raise errors.InvalidUpdateVersion(f"{what}: it is at {current}, and going back needs a type of downgrade")
    if level < current and name == METADATA_VERSION:
        raise errors.InvalidUpdateVersion(f"{what}: it is at {current}, and metadata does not go back here")
