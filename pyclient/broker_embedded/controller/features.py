"""Feature levels (KIP-584): supported levels, levels of a new cluster, and allowed updates. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
_ELR_IN_NEW_CLUSTERS_SINCE: Final = 26  # metadata.version 4.1-IV0


class Feature(NamedTuple):
    """The supported levels; a new cluster has the last one. Level 0 is "off"."""

    first: int
    last: int


FEATURES: Final[dict[str, Feature]] = {
    GROUP_VERSION: Feature(0, 1),  # 1: the consumer protocol of groups (KIP-848)
    METADATA_VERSION: Feature(7, 30),  # 3.3-IV3 to 4.3-IV0
    "transaction.version": Feature(0, 2),  # 1: new fields in its records, 2: an epoch for each transaction (KIP-890)
    "share.version": Feature(0, 0),
    "streams.version": Feature(0, 0),
    ELR_VERSION: Feature(0, 1),  # 1: eligible leader replicas (KIP-966)
    KRAFT_VERSION: Feature(0, 0),  # 1 where the metadata log has the voters since the cluster was formatted
}
"""All features of Kafka 4.3; those that are not implemented have level 0 only."""

_CHANGED_METADATA: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""The levels of metadata.version that added records, or fields of records."""


class Upgrade:
    """The upgrade types of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def initial_levels(most: Mapping[str, int] | None) -> dict[str, int]:
    """Return the levels of a new log, metadata.version first, as in Kafka.

    `most` are the levels of the release that the broker emulates. A release before 3.3 has none and gets the metadata
    of 3.3, the first production release of KRaft.
    """
    levels = {name: feature.last for name, feature in FEATURES.items()}
    if most is not None:
        levels = {name: min(level, most.get(name, FEATURES[name].first)) for name, level in levels.items()}
    if levels[METADATA_VERSION] < _ELR_IN_NEW_CLUSTERS_SINCE:
        levels[ELR_VERSION] = 0
    return dict(sorted(levels.items(), key=lambda item: item[0] != METADATA_VERSION))


def supported(name: str, level: int) -> tuple[int, int]:
    """Return the first and last level of a feature, extended to `level`: a later Kafka may have written the log."""
    return FEATURES[name].first, max(FEATURES[name].last, level)


def supported_ranges(levels: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Yield name, first and last level of the features with which a node registers; `levels` are those in force."""
    for name in FEATURES:
        yield name, *supported(name, levels.get(name, 0))


OtherNode: TypeAlias = "tuple[str, Iterable[tuple[str, int, int]]]"
"""A registered node like "Broker 1", and name, first and last level of its features."""


def check_update(
    name: str,
    level: int,
    upgrade_type: int,
    levels: Mapping[str, int],
    node_id: int,
    most: Mapping[str, int] | None = None,
    others: Iterable[OtherNode] = (),
) -> None:
    """Raise `InvalidUpdateVersion`, with Kafka's message, unless a feature may change to `level`.

    metadata.version may be lowered only across levels that did not add records. `most` are the highest levels of the
    release that the broker emulates, which has no other features. All `others` have to support the level.
    """
    reason = _refusal(name, level, upgrade_type, levels, node_id, most, others)
    if reason is not None:
        raise errors.InvalidUpdateVersion(
            f"The update failed for all features since the following feature had an error: {reason}"
        )


def _refusal(
    name: str,
    level: int,
    upgrade_type: int,
    levels: Mapping[str, int],
    node_id: int,
    most: Mapping[str, int] | None,
    others: Iterable[OtherNode],
) -> str | None:
    invalid = f"Invalid update version {level} for feature {name}."
    current = levels.get(name, 0)
    if upgrade_type not in (Upgrade.UPGRADE, Upgrade.SAFE_DOWNGRADE, Upgrade.UNSAFE_DOWNGRADE):
        return f"{invalid} The controller does not support the given upgrade type."
    if level < 0:
        return f"{invalid} A feature version cannot be less than 0."
    if name not in FEATURES or (most is not None and name not in most):
        unknown = f"Local controller {node_id} does not support this feature."
        return f"{invalid} {unknown if level else f'Feature {name} not found.'}"
    first, last = supported(name, current)
    if most is not None:
        last = max(min(last, most[name]), current)
    if not first <= level <= last:
        return f"{invalid} Local controller {node_id} only supports versions {first}-{last}"
    for node, features in others:
        first, last = next(((low, high) for each, low, high in features if each == name), (0, 0))
        if not first <= level <= last:
            return f"{invalid} {node} " + (
                f"only supports versions {first}-{last}" if last else "does not support this feature."
            )
    if level < current and upgrade_type == Upgrade.UPGRADE:
        return (
            f"{invalid} Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level > current and upgrade_type != Upgrade.UPGRADE:
        return f"{invalid} Can't downgrade to a newer version."
    if level < current and name == KRAFT_VERSION:
        return f"{invalid} The voters are in the metadata log: {name} cannot be lowered."
    if level < current and name == METADATA_VERSION and any(level < each <= current for each in _CHANGED_METADATA):
        reason = (
            "Refusing to perform the requested downgrade because it might delete metadata information."
            if upgrade_type == Upgrade.SAFE_DOWNGRADE
            else "Unsafe metadata downgrade is not supported in this version."
        )
        return f"Unsupported metadata.version downgrade from {current} to {level}. {reason}"
    return None
