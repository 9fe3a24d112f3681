"""Channels from an `EmbeddedCluster` to a node's controls: by the loop of its thread, or by HTTP on a Unix socket."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import tempfile
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode

from pyclient import errors
from pyclient.broker_embedded.controls.endpoint import MethodNotAllowed, NotNow, NotThere
from pyclient.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyclient.broker_embedded.controls.controls import Controls
    from pyclient.net.loop_thread import LoopThread

_MARGIN: Final = 15.0  # seconds in addition to the wait in the node
_LONGEST_PATH: Final = 100  # bytes of a Unix socket's name; the system's limit is 107 (Linux) or 103 (macOS)
_KINDS: Final[dict[str, type[ClientError]]] = {
    cls.__name__: cls for cls in (NotThere, NotNow, MethodNotAllowed, errors.ConfigError, errors.KafkaTimeout)
}


class Channel(Protocol):
    """A channel to a node's controls."""

    def call(self, method: str, path: str, values: Mapping[str, Any], timeout: float) -> Any:
        """Return the node's answer, which may take `timeout` seconds. Names in `path` are percent-encoded.

        Raises the errors of the controls, and `ClientError` if the node cannot be reached.
        """


class ThreadChannel:
    """The channel to a node on a loop in this process."""

    def __init__(self, thread: LoopThread, controls: Controls) -> None:
        self._thread = thread
        self._controls = controls

    def call(self, method: str, path: str, values: Mapping[str, Any], timeout: float) -> Any:
        """Call the controls on the node's loop."""
        return self._thread.run(self._controls.handle, method, path, values, timeout=timeout + _MARGIN)


class SocketChannel:
    """The channel to a node in another process, which inherits a listening Unix socket from this one."""

    def __init__(self) -> None:
        self._directory = _directory()
        self._path = os.path.join(self._directory, "control")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self._path)
        self.listener.listen(128)

    def close(self) -> None:
        """Close the socket and remove its directory."""
        self.listener.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def call(self, method: str, path: str, values: Mapping[str, Any], timeout: float) -> Any:
        """Call the controls by HTTP, on a new connection."""
        connection = _UnixConnection(self._path, timeout + _MARGIN)
        try:
            if method == "POST":
                connection.request(method, path, json.dumps(values), {"Connection": "close"})
            else:
                query = urlencode({name: value for name, value in values.items() if value is not None})
                connection.request(method, f"{path}?{query}", headers={"Connection": "close"})
            response = connection.getresponse()
            status, answer = response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ClientError(f"{method} {path}: the broker's process did not answer: {error!r}") from error
        finally:
            connection.close()
        if status == http.client.OK:
            return answer
        problem = answer["error"]
        raise _KINDS.get(problem["type"], ClientError)(problem["message"])


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _directory() -> str:
    """Create a directory that only this user can access, with a path short enough for a socket in it."""
    made = tempfile.mkdtemp(prefix="pyclient-control-")
    if len(os.fsencode(made)) < _LONGEST_PATH - len("/control"):
        return made
    os.rmdir(made)
    return tempfile.mkdtemp(prefix="pyclient-control-", dir="/tmp")
