"""Ports that a cluster keeps for its nodes, also while a node is down."""

from __future__ import annotations

import socket
import sys

from pyclient.errors import ConfigError


class ReservedPort:
    """A port that no program is given by chance until `release`; a node, in any process, can listen on it.

    The socket that keeps it is bound and does not listen: on Linux another socket with SO_REUSEADDR may be bound to the
    port, too, and while none listens there connections are refused. Elsewhere the port is only looked up.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        """Reserve `port`, 0: any free one. Raises `ConfigError` if it is taken or the address is not this machine's."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            if port:
                _check_free(self._socket)
        except (OSError, OverflowError) as error:
            self._socket.close()
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"the broker cannot listen on {host}:{port}: {reason}") from error
        self.port: int = self._socket.getsockname()[1]
        if not sys.platform.startswith("linux"):
            self._socket.close()

    def __repr__(self) -> str:
        return f"<ReservedPort {self.port}>"

    def release(self) -> None:
        """Give the port back."""
        self._socket.close()


def _check_free(bound: socket.socket) -> None:
    """Raise `OSError` if another socket listens on the port: binding to it may succeed, listening does not."""
    with socket.socket(bound.family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(bound.getsockname())
        probe.listen(1)
