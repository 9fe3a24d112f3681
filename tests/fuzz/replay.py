"""Replay recorded inputs on a new broker to reproduce a finding, and drop inputs that it does not need."""

from __future__ import annotations

import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pyclient.broker_embedded.served_apis import SERVED
from pyclient.errors import ProtocolError, UnsupportedVersion
from pyclient.protocol import framing
from pyclient.protocol.versions import API_KEYS, request_class
from tests.fuzz.broker_process import BrokerProcess
from tests.fuzz.findings import Finding
from tests.fuzz.state import Member, State
from tests.fuzz.tally import collector
from tests.fuzz.traffic import Sent

_NAMES: Final = {API_KEYS[name]: name for name in SERVED}
_ANSWER_SECONDS: Final = 0.3
_LEAST_SECONDS: Final = 2.0
_HEAD: Final = struct.Struct(">ihhi")


class Replayer:
    """Sends inputs one at a time and waits briefly for each answer; ids in later inputs are replaced."""

    def __init__(self, port: int, rng: Any) -> None:
        self._port = port
        self._state = State(rng)
        self._sockets: dict[int, socket.socket] = {}
        self._new: dict[bytes, bytes] = {}
        self.seconds: list[float] = []
        self.codes: set[int] = set()
        self.unreadable: list[str] = []

    def replay(self, inputs: Sequence[Sent], until: float) -> None:
        """Send all inputs in order until the deadline `until`."""
        for each in inputs:
            if time.monotonic() > until:
                break
            frame = each.frame
            for old, new in self._new.items():
                frame = frame.replace(old, new)
            began = time.monotonic()
            answer = self._exchange(each.wire, frame)
            self.seconds.append(time.monotonic() - began)
            if answer is not None:
                self._learn(each, frame, answer)

    def close(self) -> None:
        """Close all connections."""
        for sock in self._sockets.values():
            sock.close()

    def _exchange(self, wire: int, frame: bytes) -> bytes | None:
        sock = self._sockets.get(wire)
        if sock is None:
            sock = self._sockets[wire] = socket.create_connection(("127.0.0.1", self._port), timeout=10)
        sock.settimeout(_ANSWER_SECONDS)
        try:
            sock.sendall(frame)
            head = self._receive(sock, 4)
            return self._receive(sock, int.from_bytes(head, "big"))
        except TimeoutError:
            if not (len(frame) > 6 and _HEAD.unpack_from(frame.ljust(12, b"\0"))[1] == 0):
                self._sockets.pop(wire).close()
            return None
        except OSError:
            self._sockets.pop(wire).close()
            return None

    @staticmethod
    def _receive(sock: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = sock.recv(size - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return bytes(data)

    def _learn(self, sent: Sent, frame: bytes, answer: bytes) -> None:
        _size, key, version, _correlation = _HEAD.unpack_from(frame.ljust(12, b"\0"))
        name = _NAMES.get(key)
        if name is None:
            return
        try:
            _, decoded = framing.decode_response(request_class(key).response, version, answer)
        except (ProtocolError, UnsupportedVersion) as error:
            self.unreadable.append(f"{name} version {version}: {error}")
            return
        collector(type(decoded))(decoded, self.codes)
        new = self._state.learn(name, decoded, sent.member or Member("", "", 0, None))
        for old, fresh in zip(sent.learned, new, strict=False):
            self._new[_bytes(old)] = _bytes(fresh)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


class Reproducer:
    """Tries sequences of inputs against fresh brokers, within a time."""

    def __init__(self, directory: Path, rng: Any, seconds: float, defect: str = "none") -> None:
        self._directory = directory
        self._rng = rng
        self._defect = defect
        self._until = time.monotonic() + seconds
        self.trials = 0

    def shows(self, finding: Finding, inputs: Sequence[Sent]) -> bool:
        """Return True if a fresh broker shows the finding after these inputs."""
        self.trials += 1
        self._directory.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix="trial-", dir=self._directory))
        broker = BrokerProcess(directory, self._defect)
        try:
            broker.start()
            replayer = Replayer(broker.port, self._rng)
            try:
                replayer.replay(inputs, max(self._until, time.monotonic() + _LEAST_SECONDS))
            finally:
                replayer.close()
            alive = broker.alive
            if alive:
                broker.call("GET", "/broker")  # the loop has come round since
            events = broker.events()
            if finding.kind == "unknown error":
                return -1 in replayer.codes
            if finding.kind == "wrong answer":
                return bool(replayer.unreadable)
            if finding.kind == "no answer":
                return bool(inputs) and replayer.seconds[-1] >= _ANSWER_SECONDS
            if finding.kind == "ended":
                return not alive
            if finding.kind == "restart":
                broker.kill()
                broker.start()
                events = broker.events()
            return any((each["kind"], key_of(each)) == (finding.kind, finding.key) for each in events)
        except (RuntimeError, OSError):
            return finding.kind in ("restart", "ended")
        finally:
            broker.kill()
            shutil.rmtree(directory, ignore_errors=True)

    def shrink(self, finding: Finding) -> None:
        """Find a short sequence that shows the finding; `reproduced` stays False if none does."""
        suspect, history = finding.suspect, finding.history
        candidates: list[list[Sent]] = []
        if suspect is not None:
            candidates.append([suspect])
            candidates.append([each for each in history if each.wire == suspect.wire])
            if suspect in history:
                history = history[: len(history) - history[::-1].index(suspect)]
        candidates += [history[-size:] for size in (50, 500, 5_000, 50_000)] + [history]
        for inputs in candidates:
            if time.monotonic() > self._until:
                break
            if inputs and self.shows(finding, inputs):
                finding.reproduced = True
                finding.frames = minimal(inputs, lambda some: self.shows(finding, some), self._until)
                return
        finding.frames = [suspect] if suspect is not None else history[-500:]


def key_of(event: dict[str, Any]) -> str:
    """Return the key that two events of the broker share if they are the same finding."""
    if event["kind"] == "error" or event["place"] != "a request":
        return str(event["place"])
    frame = bytes.fromhex(event.get("frame", ""))
    key = int.from_bytes(frame[:2], "big", signed=True) if len(frame) >= 2 else -1
    return _NAMES.get(key, "no request")


def minimal(inputs: list[Sent], shows: Callable[[list[Sent]], bool], until: float) -> list[Sent]:
    """Leave out ever smaller pieces (delta debugging) as long as the rest still shows it. Return the rest."""
    size = len(inputs) // 2
    while size and time.monotonic() < until:
        at = 0
        while at < len(inputs) and time.monotonic() < until:
            rest = inputs[:at] + inputs[at + size :]
            if rest and shows(rest):
                inputs = rest
            else:
                at += size
        size //= 2
    return inputs
