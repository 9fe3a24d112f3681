"""The runners of the admin clients: `AsyncRunner` awaits on the caller's loop, `ThreadRunner` has a thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple

from pyclient.admin.client import AdminClient
from pyclient.cluster.client import ClusterHealth
from pyclient.errors import ClosedError, ForkError
from pyclient.net.loop_thread import LoopThread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CLOSING_SECONDS: Final = 5.0


class _Lifecycle:
    """The state of an admin client: in use or closed, and the process that created it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.started = False
        self.closed = False

    @property
    def in_use(self) -> bool:
        """True if the client was used by this process and not closed."""
        return self.started and not self.closed and self.pid == os.getpid()

    @property
    def state(self) -> str:
        """The state for `repr()`."""
        if self.pid != os.getpid():
            return "of another process"
        return "closed" if self.closed else "open"

    def check_open(self) -> None:
        """Raise `ClosedError` after `close`."""
        if self.closed:
            raise ClosedError("the admin client is closed")


class AsyncRunner(_Lifecycle):
    """Runs an admin client's coroutines on the caller's event loop."""

    def __init__(self, client: AdminClient) -> None:
        super().__init__()
        self._client = client

    async def run(self, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """Return the result of `function(*args)`."""
        if self.pid != os.getpid():
            raise ForkError(f"this admin client belongs to process {self.pid}: after fork() create a new one")
        self.check_open()
        self.started = True
        return await function(*args)

    def health(self) -> ClusterHealth:
        """Return the state of the cluster as the client knows it."""
        return self._client.health()

    async def close(self) -> None:
        """Close the connections."""
        if not self.closed and self.pid == os.getpid():
            self.closed = True
            await self._client.close()

    def abandon(self) -> None:
        """Close the connections without waiting; called by the garbage collector."""
        self._client.abandon()


class ThreadRunner(_Lifecycle):
    """Runs an admin client's coroutines on an event loop in a thread of its own, for any number of threads."""

    def __init__(self, client: AdminClient) -> None:
        super().__init__()
        self._client = client
        self._thread = LoopThread("pyclient-admin")
        self._lock = threading.Lock()

    def run(self, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """Return the result of `function(*args)`; start the thread before the first call."""
        self.check_open()
        if not self.started:
            with self._lock:
                if not self.started and not self.closed:
                    self._thread.start()
                    self._thread.keep()
                    self.started = True
        return self._thread.run(function, *args)

    def health(self) -> ClusterHealth:
        """Return the state of the cluster as the client knows it, read on the loop while there is one."""

        async def on_loop() -> ClusterHealth:
            return self._client.health()

        with self._lock:
            closed = self.closed
        return self._client.health() if closed else self.run(on_loop)

    def close(self) -> None:
        """Close the connections and end the thread."""
        with self._lock:
            if self.closed or self.pid != os.getpid():
                return
            self.closed = True
        if self.started:
            try:
                self._thread.run_last(self._client.close, _CLOSING_SECONDS)
            finally:
                self._thread.stop(_CLOSING_SECONDS)

    def abandon(self) -> None:
        """Close the connections and end the thread without waiting; called by the garbage collector."""
        self._thread.stop_after(self._client.close)
