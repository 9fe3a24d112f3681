"""A client that behaves, next to the fuzzer: a producer, a consumer with a group, and a probe of the broker's latency.

    python -m tests.fuzz.good_client PORT

One command a line on stdin, one JSON object a line on stdout. `check`: wait until the consumer has all that was
acknowledged. `read`: read the topic from its beginning without a group. `record`: note latencies from now on, until
`pause`: what the fuzzer itself asks of the broker between rounds takes long and would be in them. The end of stdin ends
it.
"""

from __future__ import annotations

import json
import logging
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any, Final

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.errors import KafkaError

TOPIC: Final = "good-topic"
GROUP: Final = "good-group"
PARTITIONS: Final = 2
_OPTIONS: Final = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "segment.bytes": "1048576",
}
_PATIENCE: Final = 30.0
_PERIOD: Final = 0.02
_LATE: Final = 0.1


class GoodClient:
    """NumberedBatch records in, numbered records out."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.acknowledged: set[int] = set()
        self.seen: set[int] = set()
        self.failures: list[str] = []
        self.latencies: list[float] = []
        self._lock = threading.Lock()
        self._next = 0
        self.recording = False
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume, self._probe)]

    def start(self) -> None:
        """Make the topic and begin."""
        with Admin(bootstrap_servers=self.address) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, configs=_OPTIONS)])
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads."""
        self._closing.set()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _fail(self, what: str, error: BaseException) -> None:
        with self._lock:
            self.failures.append(f"{what}: {type(error).__name__}: {error}")

    def _produce(self) -> None:
        def on_delivery(number: int, error: BaseException | None) -> None:
            if error is not None:
                self._fail(f"record {number} was not delivered", error)
            else:
                with self._lock:
                    self.acknowledged.add(number)

        with Producer(bootstrap_servers=self.address, linger_ms=5) as producer:
            while not self._closing.wait(0.02):
                for _ in range(2):
                    number, self._next = self._next, self._next + 1
                    try:
                        future = producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                    except KafkaError as error:
                        self._fail("send", error)
                        continue
                    future.add_done_callback(lambda done, number=number: on_delivery(number, done.exception()))

    def _consume(self) -> None:
        options: dict[str, Any] = {"group_id": GROUP, "auto_offset_reset": "earliest", "session_timeout_ms": 60_000}
        with Consumer(TOPIC, bootstrap_servers=self.address, **options) as consumer:
            while not self._closing.is_set():
                try:
                    numbers = [int(record.value) for record in consumer.poll(timeout=0.1)]
                except Exception as error:
                    self._fail("poll", error)
                    continue
                with self._lock:
                    self.seen.update(numbers)

    def _probe(self) -> None:
        host, _, port = self.address.rpartition(":")
        request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
        sock: socket.socket | None = None
        while not self._closing.wait(_PERIOD):
            began = time.monotonic()
            try:
                if sock is None:
                    sock = socket.create_connection((host, int(port)), timeout=_PATIENCE)
                sock.sendall(request)
                head = _receive(sock, 4)
                _receive(sock, int.from_bytes(head, "big"))
            except OSError:
                if sock is not None:
                    sock.close()
                sock = None
                continue
            if self.recording:
                self.latencies.append(time.monotonic() - began)
        if sock is not None:
            sock.close()

    def check(self) -> dict[str, Any]:
        """Wait until the consumer has seen what is acknowledged by now; what it has not seen is `missing`."""
        with self._lock:
            wanted = set(self.acknowledged)
        deadline = time.monotonic() + _PATIENCE
        while wanted - self.seen and time.monotonic() < deadline:
            time.sleep(0.02)  # between two looks
        return self._result(wanted, wanted - self.seen)

    def read(self) -> dict[str, Any]:
        """Read everything from the beginning; what was acknowledged and is not there is `missing`."""
        with self._lock:
            wanted = set(self.acknowledged)
        found: set[int] = set()
        with Consumer(bootstrap_servers=self.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            deadline = time.monotonic() + _PATIENCE
            while wanted - found and time.monotonic() < deadline:
                found.update(int(record.value) for record in consumer.poll(timeout=0.5))
        return self._result(wanted, wanted - found)

    def _result(self, wanted: set[int], missing: set[int]) -> dict[str, Any]:
        with self._lock:
            failures, self.failures = self.failures, []
        latencies = sorted(self.latencies)
        return {
            "acknowledged": len(wanted),
            "missing": sorted(missing)[:20],
            "failures": failures[:20],
            "probes": len(latencies),
            "late": sum(each > _LATE for each in latencies),
            "p99": latencies[int(len(latencies) * 0.99)] if latencies else 0.0,
            "longest": latencies[-1] if latencies else 0.0,
        }


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise OSError("the broker closed the connection")
        data += more
    return data


class GoodClientProcess:
    """The same in a process of its own, which shares no interpreter with the fuzzer."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.fuzz.good_client", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._answer()

    def ask(self, command: str) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the good client ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(port: str) -> None:
    """Serve commands until stdin ends."""
    logging.basicConfig(level=logging.ERROR)
    client = GoodClient(f"127.0.0.1:{port}")
    client.start()
    _say({})
    for line in sys.stdin:
        command = line.strip()
        if command == "check":
            _say(client.check())
        elif command == "read":
            _say(client.read())
        else:
            client.recording = command == "record"
            _say({})
    client.close()


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
