"""The interface that every kind of stream implements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pyclient.protocol.fields import Part


class Stream(Protocol):
    """The transport of a connection: a TCP socket, TLS over one, or one end of a memory pipe."""

    on_frame: Callable[[memoryview], None]
    on_closed: Callable[[BaseException | None], None]
    peername: str
    pending: int
    closed: bool

    def send(self, parts: Sequence[Part]) -> None:
        """Send one message; never blocks."""
        ...

    def cork(self) -> None:
        """Allow messages sent from now on to wait for `uncork`, to be written together."""
        ...

    def uncork(self) -> None:
        """Write the messages that wait since `cork`."""
        ...

    async def drain(self, below: int = 0) -> None:
        """Wait until at most `below` bytes are left to send."""
        ...

    def pause_reading(self) -> None:
        """Deliver no frame until `resume_reading`."""
        ...

    def resume_reading(self) -> None:
        """Deliver frames again, beginning with those that were received before the pause."""
        ...

    def close(self, error: BaseException | None = None) -> None:
        """Close the stream; `on_closed(error)` is called afterwards, once."""
        ...
