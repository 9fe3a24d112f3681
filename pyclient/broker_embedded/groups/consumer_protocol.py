"""The check that consumer groups (KIP-848) are enabled, by a cluster feature and a broker option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.features import GROUP_VERSION
from pyclient.errors import UnsupportedVersion

if TYPE_CHECKING:
    from pyclient.broker_embedded.services import BrokerServices

_OPTION: Final = "group.coordinator.rebalance.protocols"
_CONSUMER: Final = "consumer"


def check_consumer_protocol(services: BrokerServices) -> None:
    """Raise `UnsupportedVersion` if consumer groups are off. Handlers answer it without a message, as Kafka does.

    group.version has to be 1 and the option has to name them. Releases before 4.0 have no such feature: there the
    option alone decides, and is off unless it was set.
    """
    protocols = {name.strip() for name in (services.configs.current.text(_OPTION) or "").split(",")}
    if services.release is not None and GROUP_VERSION not in services.release.features:
        if _OPTION not in services.configs.current.explicit or _CONSUMER not in protocols:
            raise UnsupportedVersion(f"consumer groups are off: {_OPTION} does not name them, nor does this release")
        return
    if _CONSUMER not in protocols:
        raise UnsupportedVersion(f"consumer groups are off: {_OPTION} does not name {_CONSUMER}")
    if services.image.features.get(GROUP_VERSION, 0) < 1:
        raise UnsupportedVersion(f"consumer groups are off: the feature {GROUP_VERSION} is at 0")
