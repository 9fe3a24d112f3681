"""The tables of group options, with the broker options that they override, and of options of client metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyclient.config.broker import BROKER_OPTIONS
from pyclient.config.options import BOOLEAN, INT, LIST, STRING, WITHOUT_EFFECT, Option, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_EVERY_KIND: Final = ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
_OVERRIDING: Final = {
    "consumer": _OF_EVERY_KIND,
    "share": (*_OF_EVERY_KIND, "delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"),
    "streams": (*_OF_EVERY_KIND, "initial.rebalance.delay.ms", "num.standby.replicas"),
}
"""By kind of group, the options that override a broker option, whose name begins with `group.`."""


def _overriding() -> Iterator[Option]:
    for kind, names in _OVERRIDING.items():
        for name in names:
            option = BROKER_OPTIONS[f"group.{kind}.{name}"]
            yield replace(option, name=f"{kind}.{name}", synonyms=((option.name, 1),))


_NO_SHARE_GROUPS: Final = "taken, without any effect: there are no share groups here"
_RESETS: Final = r"earliest|latest|by_duration:P.+"
_ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")

GROUP_OPTIONS: Final[dict[str, Option]] = table_of(
    *_overriding(),
    Option("share.auto.offset.reset", STRING, "latest", _NO_SHARE_GROUPS, shape=_RESETS, support=WITHOUT_EFFECT),
    Option(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        _NO_SHARE_GROUPS,
        choices=_ISOLATION_LEVELS,
        support=WITHOUT_EFFECT,
    ),
    Option("share.renew.acknowledge.enable", BOOLEAN, True, _NO_SHARE_GROUPS, support=WITHOUT_EFFECT),
)
"""The group options by name; those with a broker option have it as their synonym."""

_NO_TELEMETRY: Final = "kept, without any effect: clients are not asked for metrics"
_SELECTORS: Final = (
    "client_instance_id|client_id|client_software_name|client_software_version|client_source_(address|port)"
)

METRICS_OPTIONS: Final[dict[str, Option]] = table_of(
    Option("interval.ms", INT, 300_000, _NO_TELEMETRY, 100, 3_600_000, support=WITHOUT_EFFECT),
    Option("match", LIST, "", _NO_TELEMETRY, shape=rf"(({_SELECTORS})=[^,]+(,|$))*", support=WITHOUT_EFFECT),
    Option("metrics", LIST, "", _NO_TELEMETRY, support=WITHOUT_EFFECT),
)
"""The options of client metrics (KIP-714) by name."""


def limits_of(option: Option) -> tuple[Option | None, Option | None]:
    """Return the broker options with the minimum and maximum of a group option; None for a missing one."""
    if not option.synonyms:
        return None, None
    kind, _, rest = option.name.partition(".")
    names = (f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}")
    low, high = (BROKER_OPTIONS.get(name) for name in names)
    return low, high
