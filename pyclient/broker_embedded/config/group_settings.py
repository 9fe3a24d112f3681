"""The options of groups and client metrics, with the broker options that they override."""

from __future__ import annotations

from typing import Final

from pyclient.broker_embedded.config.broker_settings import BROKER_SETTINGS
from pyclient.broker_embedded.config.settings_without_effect import WITHOUT_EFFECT
from pyclient.config.options import BOOLEAN, INT, LIST, STRING, Option

_OF_CONSUMER_GROUPS: Final = ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
_OF_SHARE_GROUPS: Final = (
    *_OF_CONSUMER_GROUPS,
    "delivery.count.limit",
    "partition.max.record.locks",
    "record.lock.duration.ms",
)
_OF_STREAMS_GROUPS: Final = (*_OF_CONSUMER_GROUPS, "initial.rebalance.delay.ms", "num.standby.replicas")

GROUP_OPTIONS: Final = {
    f"{kind}.{name}": f"group.{kind}.{name}"
    for kind, names in (("consumer", _OF_CONSUMER_GROUPS), ("share", _OF_SHARE_GROUPS), ("streams", _OF_STREAMS_GROUPS))
    for name in names
}
"""Group options and the broker options that they override. Those of share and streams groups have no effect here."""

_NOTHING: Final = "taken, without any effect: there are no share groups here"
_RESETS: Final = r"earliest|latest|by_duration:P.+"

OWN_OPTIONS: Final[dict[str, Option]] = {
    setting.name: setting
    for setting in (
        Option("share.auto.offset.reset", STRING, "latest", _NOTHING, shape=_RESETS),
        Option(
            "share.isolation.level",
            STRING,
            "read_uncommitted",
            _NOTHING,
            choices=("read_committed", "read_uncommitted"),
        ),
        Option("share.renew.acknowledge.enable", BOOLEAN, True, _NOTHING),
    )
}
"""Group options without a broker option."""

_NO_TELEMETRY: Final = "kept, without any effect: clients are not asked for metrics"
_SELECTORS: Final = (
    "client_instance_id|client_id|client_software_name|client_software_version|client_source_(address|port)"
)

METRICS_OPTIONS: Final[dict[str, Option]] = {
    setting.name: setting
    for setting in (
        Option("interval.ms", INT, 300_000, _NO_TELEMETRY, 100, 3_600_000),
        Option("match", LIST, "", _NO_TELEMETRY, shape=rf"(({_SELECTORS})=[^,]+(,|$))*"),
        Option("metrics", LIST, "", _NO_TELEMETRY),
    )
}
"""Options of client metrics (KIP-714)."""


def group_setting(name: str) -> Option | None:
    """Return the setting of a group option; None if there is no such option."""
    broker_name = GROUP_OPTIONS.get(name)
    return OWN_OPTIONS.get(name) if broker_name is None else broker_setting(broker_name)


def broker_setting(name: str) -> Option:
    """Return the setting of a broker option that a group option overrides, or that limits it."""
    return BROKER_SETTINGS.get(name) or WITHOUT_EFFECT[name]


def limits_of(name: str) -> tuple[str | None, str | None]:
    """Return the broker options with the minimum and maximum of a group option; None for a missing one."""
    kind, _, rest = GROUP_OPTIONS[name].removeprefix("group.").partition(".")
    found = (f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}")
    low, high = (each if each in BROKER_SETTINGS or each in WITHOUT_EFFECT else None for each in found)
    return low, high
