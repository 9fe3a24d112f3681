"""A connector around the real one that can drop, hold or cut requests and responses."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from pyclient.config import parse_address
from pyclient.net.connect import TcpConnector
from pyclient.protocol.codec import decode
from pyclient.protocol.framing import RequestHeader, decode_request_header, decode_response, encode_response
from pyclient.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from pyclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

PRODUCE = 0
METADATA = 3
INIT_PRODUCER_ID = 22

PASS = "pass"
DROP = "drop"
HOLD = "hold"
CUT = "cut"


class FaultyNetwork:
    """Applies the outcomes of `request` and `response` to every request and response, by its API key.

    PASS; DROP (it never arrives); HOLD (until `release`, and what follows on its connection with it); CUT (the
    connection ends instead; a request that is CUT has not arrived, the request of a response that is CUT has).
    `rewrite` may change a response's bytes in place.
    `refuse` may give an error code with which the network itself answers a Produce request, for each of its partitions;
    no broker sees it. `metadata` may change what Metadata responses say, and `ports` maps the ports of brokers that do
    not exist to one that does, so that one broker looks like several.
    `connects` counts connections, `taps` are those that are open, and `asking` is that whose request is decided about.
    """

    def __init__(self) -> None:
        self.request: Callable[[int], str] = lambda api: PASS
        self.response: Callable[[int], str] = lambda api: PASS
        self.rewrite: Callable[[int, bytearray], None] = lambda api, frame: None
        self.refuse: Callable[[Any], int] = lambda request: 0
        self.metadata: Callable[[MetadataResponse], None] | None = None
        self.ports: dict[int, int] = {}
        self.taps: list[Tap] = []
        self.connects = 0
        self.asking: Tap | None = None
        self.requests: list[int] = []
        self.arrived = threading.Condition()
        self.generation = 0
        self._releasing = threading.Lock()
        self._held: list[tuple[Any, Callable[[], None]]] = []

    def connector(self, config: Any) -> Any:
        """Return a connector through a `Tap`, for use in place of `TcpConnector(config)`."""
        tcp = TcpConnector(config)

        async def connect(host: str, port: int, on_frame: Any, on_closed: Any) -> Any:
            tap = Tap(self, on_frame)
            self.taps = [each for each in self.taps if each.stream is None or not each.stream.closed] + [tap]
            self.connects += 1
            tap.stream = await tcp(host, self.ports.get(port, port), tap.received, on_closed)
            return tap

        return connect

    def look_like_two_brokers(self, servers: str, led_by_second: Callable[[str, int], bool]) -> None:
        """Present the one broker as two, each with its own connection; the second leads the given partitions."""
        host, port = parse_address(servers)
        self.ports[1] = port

        def change(metadata: MetadataResponse) -> None:
            first = metadata.brokers[0].node_id
            metadata.brokers.append(MetadataResponseBroker(node_id=first + 1, host=host, port=1))
            for topic in metadata.topics:
                for partition in topic.partitions:
                    if led_by_second(topic.name or "", partition.partition_index):
                        partition.leader_id = first + 1

        self.metadata = change

    def saw(self, api: int) -> None:
        with self.arrived:
            self.requests.append(api)
            self.arrived.notify_all()

    def wait_for(self, api: int, count: int = 1) -> None:
        """Wait until so many requests of an API have been sent since the beginning."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.requests.count(api) >= count, 60), self.requests

    def hold(self, loop: Any, action: Callable[[], None], generation: int) -> None:
        """Wait until the next `release`; return at once for a `generation` before the last one."""
        with self._releasing:
            if generation == self.generation:
                self._held.append((loop, action))
                return
        loop.call_soon(action)

    def release(self) -> None:
        """Release everything that is held, and hold nothing more."""
        with self._releasing:
            self.request = self.response = lambda api: PASS
            self.generation += 1
            held, self._held = self._held, []
        for loop, action in held:
            loop.call_soon_threadsafe(action)


class _Pending(NamedTuple):
    """A request without a response yet; `answer` is the network's own response, if there is one."""

    api: int
    version: int
    answer: bytes | None = None


class _Passing:
    """A message in transit, which passes once `may` allows it and all earlier ones have passed."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        self.may = False


class Tap:
    """A stream that applies the network's outcomes."""

    def __init__(self, network: FaultyNetwork, on_frame: Any) -> None:
        self._network = network
        self._on_frame = on_frame
        self._pending: deque[_Pending] = deque()
        self._lines: dict[str, deque[_Passing]] = {"requests": deque(), "responses": deque()}
        self.stream: Any = None
        self.loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def send(self, parts: Any) -> None:
        header = decode_request_header(b"".join(parts)[4:])
        api = header.api_key
        self._network.saw(api)
        refusal = self._refusal(header, parts) if api == PRODUCE else None
        if refusal is not None:
            self._pending.append(_Pending(api, header.api_version, refusal))
            self.loop.call_soon(self._give_own_answers)
            return
        generation = self._network.generation
        self._network.asking = self
        outcome = self._network.request(api)
        self._treat(outcome, generation, "requests", lambda: self._pass_on(header, parts))  # by reference

    def _treat(self, outcome: str, generation: int, which: str, action: Callable[[], object]) -> None:
        """Keep the order of the connection: messages after a held one wait with it."""
        if outcome == CUT:
            self.stream.close(None)
        elif outcome != DROP:
            passing = _Passing(action)
            self._lines[which].append(passing)
            if outcome == HOLD:
                self._network.hold(self.loop, lambda: self._let_pass(which, passing), generation)
            else:
                self._let_pass(which, passing)

    def _let_pass(self, which: str, passing: _Passing) -> None:
        passing.may = True
        line = self._lines[which]
        while line and line[0].may:
            action = line.popleft().action
            if not self.stream.closed:
                action()

    def _pass_on(self, header: RequestHeader, parts: Any) -> None:
        self._pending.append(_Pending(header.api_key, header.api_version))
        self.stream.send(parts)

    def _refusal(self, header: RequestHeader, parts: Any) -> bytes | None:
        frame = b"".join(parts)[4:]
        request = decode(ProduceRequest, header.api_version, frame, header.body_offset)
        code = self._network.refuse(request)
        if not code:
            return None
        topics = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        answer = encode_response(ProduceResponse(responses=topics), header.api_version, header.correlation_id)
        return b"".join(answer)[4:]

    def _give_own_answers(self) -> None:
        while self._pending and self._pending[0].answer is not None and not self.stream.closed:
            self._on_frame(memoryview(self._pending.popleft().answer))

    def received(self, frame: memoryview) -> None:
        api, version, _ = self._pending.popleft() if self._pending else _Pending(-1, 0)
        generation = self._network.generation
        outcome = self._network.response(api)
        changed = bytearray(frame)
        self._network.rewrite(api, changed)
        if api == METADATA and self._network.metadata is not None:
            correlation_id, metadata = decode_response(MetadataResponse, version, bytes(changed))
            self._network.metadata(metadata)
            changed[:] = b"".join(encode_response(metadata, version, correlation_id))[4:]
        self._treat(outcome, generation, "responses", lambda: self._on_frame(memoryview(changed)))
        self._give_own_answers()
