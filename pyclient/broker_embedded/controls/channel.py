"""Channels from an `EmbeddedCluster` to a node's controls: by the loop of its thread, or by a Unix socket.

A connection to the Unix socket carries one call as a line of JSON, `[method, path, values]`, and its answer,
`{"answer": ...}` or `{"error": {"type": ..., "message": ...}}`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import tempfile
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyclient import errors
from pyclient.broker_embedded.controls.endpoint import MethodNotAllowed, NotFound, WrongState
from pyclient.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyclient.broker_embedded.controls.controls import Controls
    from pyclient.net.loop_thread import LoopThread

log = logging.getLogger("pyclient.broker_embedded")

_MARGIN: Final = 15.0  # seconds in addition to the wait in the node
_MAX_CALL: Final = 16 << 20  # bytes
_LONGEST_PATH: Final = 100  # bytes of a Unix socket's name; the system's limit is 107 (Linux) or 103 (macOS)
_KINDS: Final[dict[str, type[ClientError]]] = {
    cls.__name__: cls for cls in (NotFound, WrongState, MethodNotAllowed, errors.ConfigError, errors.KafkaTimeout)
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
        """Call the controls on a new connection."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(timeout + _MARGIN)
                connection.connect(self._path)
                connection.sendall(json.dumps([method, path, values]).encode() + b"\n")
                with connection.makefile("rb") as stream:
                    answer = json.loads(stream.read())
        except (OSError, ValueError) as error:
            raise ClientError(f"{method} {path}: the broker's process did not answer: {error!r}") from error
        if "error" not in answer:
            return answer["answer"]
        problem = answer["error"]
        raise _KINDS.get(problem["type"], ClientError)(problem["message"])


class SocketServer:
    """The other end of a `SocketChannel`, on the loop of a node's process."""

    def __init__(self, controls: Controls, listener: socket.socket) -> None:
        self._controls = controls
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Serve until `close`."""
        self._server = await asyncio.start_unix_server(self._serve, sock=self._listener, limit=_MAX_CALL)

    async def close(self) -> None:
        """Stop serving and end the calls."""
        if self._server is not None:
            self._server.close()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            method, path, values = json.loads(await reader.readline())
            writer.write(json.dumps(await self._answer(method, path, values)).encode())
            await writer.drain()
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass  # the other process has ended, or this node ends
        finally:
            self._calls.discard(task)
            writer.close()

    async def _answer(self, method: str, path: str, values: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"answer": await self._controls.handle(method, path, values)}
        except Exception as error:  # every failure is reported to the caller
            if not isinstance(error, ClientError):
                log.exception("%s %.200r failed", method, path)
            return {"error": {"type": type(error).__name__, "message": str(error)}}


def _directory() -> str:
    """Create a directory that only this user can access, with a path short enough for a socket in it."""
    made = tempfile.mkdtemp(prefix="pyclient-control-")
    if len(os.fsencode(made)) < _LONGEST_PATH - len("/control"):
        return made
    os.rmdir(made)
    return tempfile.mkdtemp(prefix="pyclient-control-", dir="/tmp")
