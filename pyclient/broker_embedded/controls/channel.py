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
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyclient import errors
from pyclient.broker_embedded.controls.endpoint import MethodNotAllowed, NoAnswer, NotFound, WrongState
from pyclient.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyclient.broker_embedded.controls.controls import Controls
    from pyclient.net.loop_thread import LoopThread

log = logging.getLogger("pyclient.broker_embedded")

ANSWER_SECONDS: Final = 15.0
"""Seconds for an answer, in addition to the wait in the node."""
_LOOK_SECONDS: Final = 0.5  # between two checks that the process still runs
_PIECE: Final = 64 << 10
_MAX_CALL: Final = 16 << 20  # bytes
_LONGEST_PATH: Final = 100  # bytes of a Unix socket's name; the system's limit is 107 (Linux) or 103 (macOS)
_KINDS: Final[dict[str, type[ClientError]]] = {
    cls.__name__: cls for cls in (NotFound, WrongState, MethodNotAllowed, errors.ConfigError, errors.KafkaTimeout)
}


class Channel(Protocol):
    """A channel to a node's controls."""

    def call(self, method: str, path: str, values: Mapping[str, Any], timeout: float) -> Any:
        """Return the node's answer, which may take `timeout` seconds. Names in `path` are percent-encoded.

        Raise the errors of the controls, and `ClientError` if the node cannot be reached.
        """


class ThreadChannel:
    """The channel to a node on a loop in this process."""

    def __init__(self, thread: LoopThread, controls: Controls) -> None:
        self._thread = thread
        self._controls = controls

    def call(self, method: str, path: str, values: Mapping[str, Any], timeout: float) -> Any:
        """Call the controls on the node's loop."""
        return self._thread.run(self._controls.handle, method, path, values, timeout=timeout + ANSWER_SECONDS)


class ProcessEnded(NoAnswer):
    """The node's process has ended before it answered."""


class SocketChannel:
    """The channel to a node in another process, which inherits a listening Unix socket from this one.

    The socket stays open here when that process ends, so that a call would wait for a response that never comes:
    `is_alive` is asked meanwhile.
    """

    def __init__(self, is_alive: Callable[[], bool]) -> None:
        self._is_alive = is_alive
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
        """Call the controls on a new connection. Raise `ProcessEnded` if the process has ended."""
        end = time.monotonic() + timeout + ANSWER_SECONDS
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_LOOK_SECONDS)
                connection.connect(self._path)
                connection.sendall(json.dumps([method, path, values]).encode() + b"\n")
                received = self._receive(connection, end)
            if not received:
                raise ProcessEnded(f"{method} {path}: the broker's process has ended")
            answer = json.loads(received)
        except (OSError, ValueError) as error:
            raise NoAnswer(f"{method} {path}: the broker's process did not answer: {error!r}") from error
        if "error" not in answer:
            return answer["answer"]
        problem = answer["error"]
        raise _KINDS.get(problem["type"], ClientError)(problem["message"])

    def _receive(self, connection: socket.socket, end: float) -> bytes:
        """Return all bytes until the other end closes the connection; none if its process has ended."""
        received = bytearray()
        while True:
            try:
                piece = connection.recv(_PIECE)
            except TimeoutError:
                if not self._is_alive():
                    return b""
                if time.monotonic() >= end:
                    raise
                continue
            if not piece:
                return bytes(received)
            received += piece


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
