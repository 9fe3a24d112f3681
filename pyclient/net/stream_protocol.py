"""What every kind of stream has in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pyclient.protocol.fields import Part


class Stream(Protocol):
    """What a connection stands on: a TCP socket, TLS over one, or one end of a memory pipe."""

    on_frame: Callable[[memoryview], None]
    on_closed: Callable[[BaseException | None], None]
    peername: str
    pending: int
    closed: bool

    def send(self, parts: Sequence[Part]) -> None:
        """Sends one message; never blocks."""
        ...

    def cork(self) -> None:
        """What is sent from now on may wait for `uncork`, to leave together."""
        ...

    def uncork(self) -> None:
        """Sends what waits since `cork`."""
        ...

    async def drain(self, below: int = 0) -> None:
        """Waits until no more than `below` bytes wait to be sent."""
        ...

    def pause_reading(self) -> None:
        """Hands out no frame until `resume_reading`."""
        ...

    def resume_reading(self) -> None:
        """Hands out frames again, beginning with those that were received before the pause."""
        ...

    def close(self, error: BaseException | None = None) -> None:
        """Ends the stream; `on_closed(error)` follows, once."""
        ...
