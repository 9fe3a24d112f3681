"""The broker under attack, seen from outside: start, kill, restart, its controls and what it reports."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.fuzz.instrumented_broker import resident_bytes

_OPTIONS: Final = (
    "group.max.session.timeout.ms=60000",
    "producer.id.expiration.ms=60000",
    "log.segment.delete.delay.ms=1000",
    "offsets.topic.num.partitions=4",
    "num.partitions=1",
    "max.incremental.fetch.session.cache.slots=100",
)
_START_SECONDS: Final = 60.0


class BrokerProcess:
    """One data directory and the process that serves it, on one port for its whole life."""

    def __init__(self, directory: Path, defect: str = "none") -> None:
        self.directory = directory
        self.port = 0
        self.control_port = 0
        self.peak_bytes = 0
        self.cpu_seconds = 0.0
        self._defect = defect
        self._report = directory / "report.jsonl"
        self._read = 0
        self._rest = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: list[dict[str, Any]] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._report.touch()

    def start(self) -> None:
        """Start it, or start it again on its data and port; RuntimeError if it does not serve."""
        command = [sys.executable, "-m", "tests.fuzz.instrumented_broker", str(self._report), self._defect]
        command += ["--with-parent", "--port", str(self.port), "--control-port", str(self.control_port)]
        command += ["--data-dir", str(self.directory / "data"), "--profile", "test"]
        for option in _OPTIONS:
            command += ["--set", option]
        with (self.directory / "stderr.log").open("ab") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
            )
        lines = self._process.stdout
        assert lines is not None
        first, second = lines.readline().decode(), lines.readline().decode()
        if not second:
            self._process.wait(_START_SECONDS)
            raise RuntimeError(f"the broker did not start: {self.stderr_tail()}")
        self.port = int(first.strip().rpartition(":")[2])
        self.control_port = int(second.strip().rpartition(":")[2])

    @property
    def alive(self) -> bool:
        """Return True if the process runs."""
        return self._process is not None and self._process.poll() is None

    def ends(self) -> bool:
        """Return True if the process has ended, or does soon: its connections end first."""
        try:
            if self._process is not None:
                self._process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if the process does not end."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        self.watch_memory()
        if self.alive:
            self.cpu_seconds += _cpu_seconds(process.pid)
        process.send_signal(number)
        try:
            process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def stderr_tail(self) -> str:
        """Return the end of what the process wrote to stderr."""
        return (self.directory / "stderr.log").read_bytes()[-3000:].decode(errors="replace")

    def watch_memory(self) -> int:
        """Return the resident memory in bytes, 0 if the process has ended; keep the peak."""
        if not self.alive:
            return 0
        now = resident_bytes(self.pid)
        self.peak_bytes = max(self.peak_bytes, now)
        return now

    def events(self) -> list[dict[str, Any]]:
        """Return what the process has reported since the last call, without answers to `memory`."""
        found, self._kept = self._kept + self._new_events(), []
        return [each for each in found if each["kind"] != "memory"]

    def _new_events(self) -> list[dict[str, Any]]:
        with self._report.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def memory(self) -> dict[str, Any]:
        """Return the process's objects, their types and its resident memory, after a garbage collection."""
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            self.call("GET", "/broker")  # wakes its loop, so that Python runs the signal handler
            found = self._new_events()
            self._kept += found
            answers = [each for each in found if each["kind"] == "memory"]
            if answers:
                return answers[-1]
        raise RuntimeError("the broker did not report its memory")

    def call(self, method: str, path: str, **values: Any) -> dict[str, Any]:
        """Send a request to the broker's controls. Return the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.control_port, timeout=120)
        try:
            connection.request(method, path, json.dumps(values) if values else None)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{method} {path}: {answer.status} {body[:500]!r}")
            decoded: dict[str, Any] = json.loads(body)
            return decoded
        finally:
            connection.close()


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
