"""A network that can be told to lose, hold or cut what passes: a connector around the real one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from pyclient.net.connect import TcpConnector

PRODUCE = 0
METADATA = 3
INIT_PRODUCER_ID = 22

PASS = "pass"
DROP = "drop"
HOLD = "hold"
CUT = "cut"


class FaultyNetwork:
    """Decides about every request and response by its API key; both ask `request` and `response` for a verdict.

    PASS; DROP (it never arrives); HOLD (until `release`); CUT (the connection ends instead; a request that is CUT has
    not arrived, the request of a response that is CUT has). `rewrite` may change a response's bytes in place.
    """

    def __init__(self) -> None:
        self.request: Callable[[int], str] = lambda api: PASS
        self.response: Callable[[int], str] = lambda api: PASS
        self.rewrite: Callable[[int, bytearray], None] = lambda api, frame: None
        self.requests: list[int] = []
        self.connects: Callable[[], bool] = lambda: True
        self.arrived = threading.Condition()
        self._held: list[tuple[Any, Callable[[], None]]] = []

    def connector(self, config: Any) -> Any:
        """In place of `TcpConnector(config)`."""
        tcp = TcpConnector(config)

        async def connect(host: str, port: int, on_frame: Any, on_closed: Any) -> Any:
            tap = Tap(self, on_frame)
            tap.stream = await tcp(host, port, tap.received, on_closed)
            return tap

        return connect

    def saw(self, api: int) -> None:
        with self.arrived:
            self.requests.append(api)
            self.arrived.notify_all()

    def wait_for(self, api: int, count: int = 1) -> None:
        """Until so many requests of an API have been sent since the beginning."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.requests.count(api) >= count, 20), self.requests

    def hold(self, loop: Any, action: Callable[[], None]) -> None:
        self._held.append((loop, action))

    def release(self) -> None:
        """Lets go of everything that is held, and of what comes."""
        self.request = self.response = lambda api: PASS
        held, self._held = self._held, []
        for loop, action in held:
            loop.call_soon_threadsafe(action)


class Tap:
    """A stream that asks the network before anything passes."""

    def __init__(self, network: FaultyNetwork, on_frame: Any) -> None:
        self._network = network
        self._on_frame = on_frame
        self._apis: deque[int] = deque()
        self.stream: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def send(self, parts: Any) -> None:
        api = int.from_bytes(bytes(parts[0])[4:6], "big")
        self._network.saw(api)
        verdict = self._network.request(api)
        if verdict == PASS:
            self._apis.append(api)
            self.stream.send(parts)
        elif verdict == HOLD:
            self._network.hold(
                self.stream._loop, lambda: self._send_late(api, parts)
            )  # by reference, as a socket's queue
        elif verdict == CUT:
            self.stream.close(None)

    def _send_late(self, api: int, parts: Any) -> None:
        if not self.stream.closed:
            self._apis.append(api)
            self.stream.send(parts)

    def received(self, frame: memoryview) -> None:
        api = self._apis.popleft() if self._apis else -1
        verdict = self._network.response(api)
        changed = bytearray(frame)
        self._network.rewrite(api, changed)
        frame = memoryview(changed)
        if verdict == PASS:
            self._on_frame(frame)
        elif verdict == HOLD:
            self._network.hold(self.stream._loop, lambda: self.stream.closed or self._on_frame(frame))
        elif verdict == CUT:
            self.stream.close(None)
