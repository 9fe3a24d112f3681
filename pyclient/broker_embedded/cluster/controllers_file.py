"""Keeps the controllers of a dynamic quorum in a file of the cluster's directory, for the next cluster on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.config.addresses import parse_address
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "controllers.properties"
"""The file in a cluster's directory with the controllers and their addresses, `3000=127.0.0.1:40001`."""


def read_controllers(data_dir: str) -> dict[int, int]:
    """Return the ports of the controllers by node id; empty for a new cluster, and for one with static voters.

    Raise `ConfigError` for a file that is damaged.
    """
    path = os.path.join(data_dir, FILE)
    if not data_dir or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        lines = file.read().split()
    try:
        return {int(node): parse_address(address)[1] for node, _, address in (line.partition("=") for line in lines)}
    except ValueError as error:
        raise ConfigError(f"{path}: a line must be like 3000=127.0.0.1:40001: {error}") from None


def write_controllers(data_dir: str, addresses: Mapping[int, str]) -> None:
    """Write the addresses of the controllers, for the next cluster on the directory."""
    os.makedirs(data_dir, exist_ok=True)
    text = "".join(f"{node}={address}\n" for node, address in sorted(addresses.items()))
    RealFileSystem(durable=False).replace(os.path.join(data_dir, FILE), text.encode())
