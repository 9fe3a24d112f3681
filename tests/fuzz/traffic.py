"""Connections that send bursts of inputs and read the answers, all in one thread."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from pyclient.broker_embedded.served_apis import SERVED
from pyclient.errors import ProtocolError, UnsupportedVersion
from pyclient.protocol import framing
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.versions import API_KEYS, request_class
from tests.fuzz.messages import MessageGenerator
from tests.fuzz.mutators import mutate
from tests.fuzz.state import Member, State
from tests.fuzz.tally import Tally

CONNECTIONS: Final = 24
PATIENCE: Final = 10.0
"""Seconds in which a request that waits for nothing is answered."""
WAITS: Final = 0.5
"""Seconds that a request may wait for others before its connection is closed."""
_MAY_WAIT: Final = frozenset({"JoinGroup", "SyncGroup", "Fetch"})
_NAMES: Final = {API_KEYS[name]: name for name in SERVED}
_HEAD: Final = struct.Struct(">ihhi")
_HISTORY: Final = 150_000
_HISTORY_BYTES: Final = 128 << 20
_LARGEST_CORPUS_FRAME: Final = 8192
_CORPUS: Final = 800


@dataclass(slots=True)
class Sent:
    """An input: the bytes, the connection they went out on, and the ids that the broker's answer gave."""

    frame: bytes
    wire: int
    learned: list[str | bytes] = field(default_factory=list)
    member: Member | None = None
    regular: bool = True
    """False if its length or its correlation id need not be what the broker answers to."""


class History:
    """The requests sent since the broker's last start; the oldest are dropped first, those of the set-up never."""

    def __init__(self) -> None:
        self.setup: list[Sent] = []
        self.recent: deque[Sent] = deque()
        self._bytes = 0

    def add(self, sent: Sent) -> None:
        """Keep an input."""
        self.recent.append(sent)
        self._bytes += len(sent.frame)
        while len(self.recent) > _HISTORY or self._bytes > _HISTORY_BYTES:
            self._bytes -= len(self.recent.popleft().frame)

    def clear(self) -> None:
        """Drop the recent inputs: the broker was started again."""
        self.recent.clear()
        self._bytes = 0

    def all(self) -> list[Sent]:
        """Return all inputs in the order in which they were sent."""
        return [*self.setup, *self.recent]


class Wire:
    """One connection."""

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        self.sock = sock
        self.inflight: deque[Sent] = deque()
        self.received = bytearray()
        self.outgoing = memoryview(b"")
        self.since = time.monotonic()
        self.throttled = False
        self.regular = True


Complain = Callable[[str, str, "Sent | None"], None]
"""Records a finding: its kind, its text and the input that is to blame."""


class Traffic:
    """Sends inputs over several connections and judges the answers."""

    def __init__(self, port: int, rng: Random, state: State, complain: Complain) -> None:
        self.port = port
        self.tally = Tally()
        self.history = History()
        self.generator = MessageGenerator(state, rng)
        self._state = state
        self._rng = rng
        self._complain = complain
        self._selector = selectors.DefaultSelector()
        self._wires: dict[int, Wire] = {}
        self._opened = 0
        self._correlation = 0
        self._corpus: list[bytes] = []

    # -- life

    def run(self, until: float, mixture: Mixture) -> None:
        """Send inputs until a time of the monotonic clock."""
        next_look = 0.0
        while (now := time.monotonic()) < until:
            for key, events in self._selector.select(0.02):
                wire: Wire = key.data
                if events & selectors.EVENT_WRITE:
                    self._flush(wire)
                if events & selectors.EVENT_READ:
                    self._read(wire)
            while len(self._wires) < CONNECTIONS:
                self._open()
            for wire in list(self._wires.values()):
                if not wire.inflight and not wire.outgoing and wire.number in self._wires:
                    self._send(wire, self.burst(wire.number, mixture))
            if now > next_look:
                next_look = now + 0.1
                self._give_up(now)

    def close(self) -> None:
        """Close all connections."""
        for wire in list(self._wires.values()):
            self._drop(wire)

    def _open(self) -> None:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        sock.setblocking(False)
        self._opened += 1
        wire = self._wires[self._opened] = Wire(self._opened, sock)
        self._selector.register(sock, selectors.EVENT_READ, wire)

    def _drop(self, wire: Wire) -> None:
        if self._wires.pop(wire.number, None) is not None:
            self._selector.unregister(wire.sock)
            wire.sock.close()

    # -- inputs

    def frame_of(self, name: str, version: int, message: Any, client_id: str | None = "fuzz") -> bytes:
        """Return a request as a frame with a correlation id of its own."""
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        return b"".join(framing.encode_request(message, version, self._correlation, client_id))

    def burst(self, wire: int, mixture: Mixture) -> list[Sent]:
        """Return some inputs for one connection; those that are likely to end it come last."""
        rng = self._rng
        client_id = rng.choice(("fuzz",) * 20 + ("fuzz-user", "", None))
        made: list[Sent] = []
        for _ in range(rng.choice((1, 4, 8, 16, 32))):
            name, version = self.generator.draw()
            hostile = rng.choice((0.02, 0.1, 0.1, 0.4)) if rng.random() < mixture.hostile else 0.0
            message = self.generator.make(name, version, hostile)
            frame = self.frame_of(name, version, message, client_id)
            made.append(Sent(frame, wire, member=self.generator.member))
            self._keep(frame, hostile)
            if rng.random() < mixture.repeated:
                made += [made[-1]] * rng.choice((1, 1, 4))
        if rng.random() < mixture.reordered:
            rng.shuffle(made)
        for _ in range(rng.choice((0, 1, 1, 2, 3)) if rng.random() < mixture.mutated and self._corpus else 0):
            frame = mutate(rng.choice(self._corpus), rng, rng.choice(self._corpus))
            regular = len(frame) >= _HEAD.size and _HEAD.unpack_from(frame)[0] == len(frame) - 4
            made.append(Sent(frame, wire, regular=regular))
        if rng.random() < mixture.noise:
            made.append(Sent(rng.randbytes(rng.choice((1, 4, 5, 20, 200))), wire, regular=False))
        return made

    def _keep(self, frame: bytes, hostile: float) -> None:
        if len(frame) > _LARGEST_CORPUS_FRAME or (hostile and self._rng.random() < 0.7):
            return
        if len(self._corpus) < _CORPUS:
            self._corpus.append(frame)
        else:
            self._corpus[self._rng.randrange(_CORPUS)] = frame

    # -- sending and receiving

    def _send(self, wire: Wire, burst: Sequence[Sent]) -> None:
        for each in burst:
            wire.inflight.append(each)
            wire.regular = wire.regular and each.regular
            self.history.add(each)
        wire.outgoing = memoryview(b"".join(each.frame for each in burst))
        wire.since = time.monotonic()
        self._selector.modify(wire.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, wire)
        self._flush(wire)

    def _flush(self, wire: Wire) -> None:
        try:
            while wire.outgoing:
                wire.outgoing = wire.outgoing[wire.sock.send(wire.outgoing) :]
        except BlockingIOError:
            return
        except OSError:
            wire.outgoing = memoryview(b"")  # what was answered before is still read
        if wire.number in self._wires:
            self._selector.modify(wire.sock, selectors.EVENT_READ, wire)

    def _read(self, wire: Wire) -> None:
        if wire.number not in self._wires:
            return
        try:
            data = wire.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        wire.received += data
        self._take_answers(wire)
        if not data:
            self._ended(wire)

    def _take_answers(self, wire: Wire) -> None:
        buffer, at = wire.received, 0
        while len(buffer) - at >= 8:
            size = int.from_bytes(buffer[at : at + 4], "big")
            if len(buffer) - at - 4 < size:
                break
            frame = bytes(buffer[at + 4 : at + 4 + size])
            at += 4 + size
            self._take_answer(wire, frame)
        del buffer[:at]

    def _take_answer(self, wire: Wire, frame: bytes) -> None:
        wire.since = time.monotonic()
        given = int.from_bytes(frame[:4], "big", signed=True)
        while wire.inflight:
            sent = wire.inflight.popleft()
            if len(sent.frame) < _HEAD.size:
                continue
            _size, key, version, correlation = _HEAD.unpack_from(sent.frame)
            if correlation == given:
                self._judge(wire, sent, _NAMES.get(key, f"API {key}"), key, version, frame)
                return
            if key == 0:  # acks=0: there is no answer
                self.tally.inputs += 1
        if wire.regular:
            self._complain("wrong answer", f"an answer has the correlation id {given}, which no request had", None)

    def _judge(self, wire: Wire, sent: Sent, name: str, key: int, version: int, frame: bytes) -> None:
        try:
            response = request_class(key).response
            _, answer = framing.decode_response(response, version, frame)
        except (ProtocolError, UnsupportedVersion, LookupError) as error:
            if wire.regular:
                self._complain("wrong answer", f"{name} version {version}: the answer cannot be read: {error}", sent)
            return
        if getattr(answer, "throttle_time_ms", 0):
            wire.throttled = True
        if -1 in self.tally.answered(name, answer):
            self._complain("unknown error", f"{name} version {version}: UNKNOWN_SERVER_ERROR", sent)
        sent.learned = self._state.learn(name, answer, sent.member)

    def _ended(self, wire: Wire) -> None:
        self._drop(wire)
        while wire.inflight:
            sent = wire.inflight.popleft()
            if len(sent.frame) >= _HEAD.size:
                key = _key_of(sent)
                if key == 0 and wire.inflight:  # perhaps one without an answer, perhaps the one that was refused
                    continue
                self.tally.ended(_NAMES.get(key, "unknown API"))
            return

    def _give_up(self, now: float) -> None:
        for wire in list(self._wires.values()):
            waited = now - wire.since
            if not wire.inflight or waited < WAITS:
                continue
            sent = next((each for each in wire.inflight if _key_of(each) != 0), None)  # Produce may want no answer
            name = "Produce" if sent is None else _NAMES.get(_key_of(sent), "unknown API")
            waits = sent is None or name in _MAY_WAIT or not wire.regular or wire.throttled
            if not waits and waited < PATIENCE:
                continue
            if not waits:
                self._answer_on_another_connection()
                self._read(wire)
                if wire.since > now - waited or wire.number not in self._wires:
                    continue  # the broker was slow as a whole, as on a machine under load
                self._complain("no answer", f"{name} was not answered within {PATIENCE:g} s", sent)
            self.tally.abandoned(name)
            self._drop(wire)

    def _answer_on_another_connection(self) -> None:
        """Return when a request on a new connection is answered; OSError if that takes a minute."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as sock:
            sock.sendall(self.frame_of("ApiVersions", 0, ApiVersionsRequest()))
            sock.recv(4)


def _key_of(sent: Sent) -> int:
    key: int = _HEAD.unpack_from(sent.frame)[1] if len(sent.frame) >= _HEAD.size else -1
    return key


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of the kinds of inputs."""

    hostile: float = 0.4
    """Requests that have hostile fields."""
    repeated: float = 0.02
    """Requests that are sent again at once."""
    reordered: float = 0.1
    """Bursts in another order."""
    mutated: float = 0.7
    """Bursts that end with frames whose bytes are changed."""
    noise: float = 0.01
    """Bursts that end with bytes that are no frame."""
