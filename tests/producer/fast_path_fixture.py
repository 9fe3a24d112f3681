"""A compiled fast path over a pair of sockets, with fakes for the objects that it uses."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from pyclient.clock import SYSTEM_CLOCK
from pyclient.net.in_flight_requests import InFlightRequests
from pyclient.producer.callbacks import CallbackThread
from pyclient.producer.delivery import DeliveryContext
from pyclient.producer.fast_path import FastPathKinds, FastPathLimits
from pyclient.producer.futures import DeliveryFuture
from pyclient.producer.implementation import OpenBatches, RecordSender, compiled_only
from pyclient.producer.metrics import LATENCY_BOUNDS_MS
from pyclient.producer.produce_template import ProduceTemplate
from pyclient.protocol.framing import encode_response
from pyclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.waiting import PATIENCE, until

FAR = 1e18


class Sender(RecordSender[DeliveryFuture]):
    """Return the fast path's future, None if it refuses the record."""

    def _send(self, topic: str, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any) -> Any:
        return None


class FastPathFixture:
    """A fast path for a partition of `topic`; `far` is the broker's end, `events` are the calls that were made."""

    def __init__(self, version: int = 9, *, idempotent: bool = True, partition: int = 2, largest: int = 4096) -> None:
        self.near, self.far = socket.socketpair()
        self.far.settimeout(30)
        self.events: list[Any] = []
        callbacks = CallbackThread("test")
        self.context = DeliveryContext(callbacks, None, SYSTEM_CLOCK)
        limits = FastPathLimits(
            idempotent=idempotent, delivery_timeout=120.0, request_timeout=30.0, largest=largest, depth=3
        )
        self.fast_path = compiled_only("FastPath")(self, self.context, FastPathKinds(), limits, LATENCY_BOUNDS_MS)
        open_batches = OpenBatches()
        open_batches.resize(5)
        open_batches.stick_to(partition)
        self.template = ProduceTemplate("topic", partition, version, client_id="me", acks=-1, timeout_ms=30_000)
        self.sequence = SimpleNamespace(producer_id=2**40 + 7, epoch=3, next=2**31 - 1)
        topic = SimpleNamespace(name="topic", open_batches=open_batches)
        self.queue = SimpleNamespace(topic=topic, partition=partition, sequence=self.sequence, records=5)
        self.requests = InFlightRequests()
        self.requests.timer_at, self.requests.correlation_id = 0.0, 2**31 - 1
        self.connection: Any = SimpleNamespace(in_flight_requests=self.requests)
        self.frames: Any = SimpleNamespace(paused=False, tail=b"", large_frame=None)
        self.stream: Any = SimpleNamespace(
            frames=self.frames, queue=[], is_writing=False, is_corked=False, closed=False,
            left_here=self.events.append, lost_here=self.events.append,
        )  # fmt: skip
        self.replace_gate()
        self.usual: Callable[[], object] = partial(self.events.append, "usual")
        self.reader = compiled_only("FastPathReader")(
            self.fast_path, lambda: self.usual(), self.hand_over, self.near.fileno()
        )
        self.sender = Sender()
        self.sender._fast_path, self.sender._direct = self.fast_path, True
        self.start()

    def start(self, **changed: Any) -> None:
        limits = {"until": FAR, "next_round": 0.0, "bytes_left": 2**40} | changed
        self.fast_path.start(
            self.queue, self.connection, self.stream, self.reader, ProduceRequest, self.template, **limits
        )

    @property
    def waiting(self) -> deque[Any]:
        """The connection's requests without a response."""
        return self.requests.queue

    @property
    def correlation_id(self) -> int:
        """The connection's last correlation id."""
        return self.requests.correlation_id

    def change(self, part: str, **state: object) -> None:
        """Set attributes of the connection's `requests` or of the fake `stream`."""
        for name, value in state.items():
            setattr(getattr(self, part), name, value)

    def replace_gate(self) -> None:
        """Give the fake stream another gate."""
        self.stream.gate = threading.RLock()
        self.stream.has_gate = partial(is_owned, self.stream.gate)

    def close(self) -> None:
        self.near.close()
        self.far.close()

    def __enter__(self) -> FastPathFixture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take_over(self, record: Any) -> None:
        self.events.append(("take_over", record))
        self.fast_path.records = self.fast_path.records[1:]

    def hand_over(self, reader: Any, data: bytes, on_loop: bool) -> None:
        self.events.append(data)
        if on_loop:
            reader.taken()

    def count_delivered(self, *notes: Any) -> None:
        self.events.append(("count_delivered", *notes))

    def schedule_reopen(self) -> None:
        self.events.append("schedule_reopen")

    def answer(self, **fields: Any) -> bytes:
        answer = PartitionProduceResponse(**{"index": self.queue.partition, "error_code": 0, "base_offset": 7} | fields)
        message = ProduceResponse(responses=[TopicProduceResponse(name="topic", partition_responses=[answer])])
        frame = encode_response(message, self.template.version, self.waiting[0].correlation_id)
        return b"".join(bytes(part) for part in frame)  # type: ignore[arg-type]


def is_owned(gate: Any) -> bool:
    """Return True if this thread has a reentrant lock."""
    owned: bool = gate._is_owned()
    return owned


@contextmanager
def at_the_socket(fixture: FastPathFixture, work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run `work` in a thread that waits at the socket during the block; wake and join it at the end."""
    thread = threading.Thread(target=work, name="watcher")
    thread.start()
    try:
        until(lambda: fixture.fast_path.waiter.active)
        yield thread
    finally:
        fixture.fast_path.waiter.wake()
        thread.join(PATIENCE)
    assert not thread.is_alive()
