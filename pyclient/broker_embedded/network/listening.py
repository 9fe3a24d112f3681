"""The sockets that a node listens on."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from pyclient import errors

if TYPE_CHECKING:
    from pyclient.broker_embedded.config.broker_config import BrokerConfig


def listen(config: BrokerConfig, host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raise `ConfigError` if the address cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=config.integer("socket.listen.backlog.size"))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise errors.ConfigError(f"the broker cannot listen on {host}:{port}: {reason}") from error
