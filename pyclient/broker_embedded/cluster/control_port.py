"""The port of the controls over HTTP, of a node or a cluster."""

from __future__ import annotations

import socket

from pyclient.errors import ConfigError


def listen_for_controls(host: str, port: int) -> socket.socket:
    """Return a listening socket for the controls over HTTP.

    Raise `ConfigError` if the address is not available or what serves HTTP is not installed.
    """
    try:
        import pyclient.broker_embedded.controls.http  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the controls over HTTP need Starlette and uvicorn ({error}): pip install 'pyclient-kafka[http]'"
        ) from error
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"the controls cannot be served on {host}:{port}: {error}") from error
