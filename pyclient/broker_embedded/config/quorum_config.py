"""A node's part in the metadata quorum: its roles, and the voters with their addresses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pyclient.config.addresses import format_address, parse_address
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIRST_UNKNOWN: Final = -2
"""The id of the first address without one, as in Kafka; -1 means no node."""

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The roles of a node, and the address of each voter's CONTROLLER listener by node id.

    Without `voters` the node is alone: it is the only voter and has no CONTROLLER listener. With `dynamic` the metadata
    log has the voters, which can change (KIP-853); `voters` are then the addresses to begin with, those of unknown
    nodes with negative ids, as in Kafka.
    """

    roles: frozenset[str] = frozenset({BROKER, CONTROLLER})
    voters: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    listener_name: str = "CONTROLLER"
    dynamic: bool = False

    @classmethod
    def of(
        cls,
        node_id: int | None,
        roles: str | None,
        voters: str | None,
        listener_name: str | None,
        bootstrap: str | None = None,
    ) -> QuorumConfig:
        """Check the texts of `process.roles`, `controller.quorum.voters`, `controller.listener.names` and
        `controller.quorum.bootstrap.servers`.

        Raise `ConfigError` naming the option and what is allowed.
        """
        if bootstrap:
            if voters:
                raise ConfigError(f"{VOTERS} and {BOOTSTRAP} are both set: static voters have no bootstrap servers")
            config = cls(_roles(roles), _bootstrap(bootstrap), _listener(listener_name), dynamic=True)
            if config.is_controller and node_id not in config.voters:
                raise ConfigError(
                    f"{BOOTSTRAP} is {bootstrap!r}: a controller's own entry must have its node.id, as in "
                    f"{node_id}@host:port, which is where it listens"
                )
            return config
        config = cls(_roles(roles), _voters(voters), _listener(listener_name))
        if not config.voters:
            if config.roles != {BROKER, CONTROLLER}:
                raise ConfigError(
                    f"process.roles is {roles!r}: a node with one role belongs to a cluster, whose {VOTERS} must be set"
                )
            return config
        if len(config.voters) % 2 == 0:
            raise ConfigError(
                f"{VOTERS} names {len(config.voters)} voters: an even number survives no more failures than one voter "
                "less, so that it must be odd"
            )
        is_voter = node_id in config.voters
        if config.is_controller and not is_voter:
            raise ConfigError(
                f"{VOTERS} is {voters!r}: node.id {node_id} has the role controller and must be one of the voters"
            )
        if not config.is_controller and is_voter:
            raise ConfigError(f"{VOTERS} names node.id {node_id}: process.roles must then have the role controller")
        return config

    @property
    def is_broker(self) -> bool:
        """True if the node serves clients."""
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        """True if the node is a voter of the metadata quorum."""
        return CONTROLLER in self.roles

    @property
    def cluster_id(self) -> str | None:
        """The cluster id that follows from the voters, for nodes that are given none; None for a node alone.

        All nodes of a cluster have the same voters, so that they agree on the id without a word.
        """
        if not self.voters:
            return None
        import hashlib  # imported on first use to keep the broker's start fast

        from pyclient.broker_embedded.log.checkpoints import uuid_text

        text = ",".join(f"{node}@{format_address(*address)}" for node, address in sorted(self.voters.items()))
        seed = hashlib.sha256(text.encode()).digest()
        return uuid_text(UUID(bytes=bytes([seed[0] & 0x7F, *seed[1:16]]), version=4))


def _listener(text: str | None) -> str:
    name = (text or CONTROLLER.upper()).strip()
    if "," in name:
        raise ConfigError(f"controller.listener.names is {text!r}: the embedded broker has one such listener")
    return name


def _roles(text: str | None) -> frozenset[str]:
    if text is None or not text.strip():
        return frozenset({BROKER, CONTROLLER})
    roles = [each.strip() for each in text.split(",")]
    if len(set(roles)) != len(roles) or not {BROKER, CONTROLLER}.issuperset(roles):
        raise ConfigError(f"process.roles is {text!r}: it must be broker, controller, or both with a comma")
    return frozenset(roles)


def _bootstrap(text: str) -> dict[int, tuple[str, int]]:
    """Return the addresses of controllers, with or without their node ids."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    known = _voters(",".join(entry for entry in entries if "@" in entry))
    for number, entry in enumerate(entry for entry in entries if "@" not in entry):
        try:
            known[_FIRST_UNKNOWN - number] = parse_address(entry)
        except ValueError as error:
            raise ConfigError(f"{BOOTSTRAP}: {error}") from None
    return known


def _voters(text: str | None) -> dict[int, tuple[str, int]]:
    voters: dict[int, tuple[str, int]] = {}
    for entry in (text or "").split(","):
        if not entry.strip():
            continue
        node, separator, address = entry.strip().partition("@")
        if not separator or not (node.isascii() and node.isdigit() and int(node) < 2**31):
            raise ConfigError(f"{VOTERS}: {entry!r} must look like 1@host:port, with the node id before the @")
        try:
            at = parse_address(address)
        except ValueError as error:
            raise ConfigError(f"{VOTERS}: {error}") from None
        if int(node) in voters:
            raise ConfigError(f"{VOTERS} names node {int(node)} twice")
        if at in voters.values():
            raise ConfigError(f"{VOTERS} names the address {address} twice")
        voters[int(node)] = at
    return voters
