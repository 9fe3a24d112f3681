"""A broker with scripted responses, over loopback, with real frames."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

from pyclient.net.stream import FrameStream
from pyclient.protocol import codec, framing
from pyclient.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pyclient.protocol.versions import API_KEYS, request_class

CLOSE = object()  # an answer: the connection ends
SILENCE = None  # an answer: none
Answer = Any  # a response, raw bytes, CLOSE, SILENCE, or a function (message, version, correlation_id) -> one of them

RANGES = {API_KEYS[name]: (0, 100) for name in API_KEYS}


class ScriptedBroker:
    """Listens on 127.0.0.1; `answers` maps a request class to its `Answer`, `ranges` are its API versions."""

    def __init__(
        self,
        answers: Mapping[type, Answer] | None = None,
        *,
        ranges: Mapping[int, tuple[int, int]] = RANGES,
        make_stream: Callable[..., FrameStream] = FrameStream,
    ) -> None:
        self.answers: dict[type, Answer] = {ApiVersionsRequest: self._api_versions, **(answers or {})}
        self.ranges = ranges
        self.make_stream = make_stream
        self.requests: list[Any] = []
        self.versions: list[tuple[str, int]] = []
        self.client_ids: set[str | None] = set()
        self.streams: list[FrameStream] = []
        self.accepted = self.ended = 0
        self._changed = asyncio.Event()
        self._listen(0)

    def _listen(self, port: int) -> None:
        self._sock = socket.create_server(("127.0.0.1", port))
        self._sock.setblocking(False)
        self.port = self._sock.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._sock.fileno(), self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Close the listener and every connection."""
        asyncio.get_running_loop().remove_reader(self._sock.fileno())
        self._sock.close()
        self.drop()

    def restart(self) -> None:
        """Listen on the same port again."""
        self._listen(self.port)

    def drop(self) -> None:
        """Close every connection."""
        for stream in self.streams:
            stream.close()
        self.streams.clear()

    def count(self, request: type) -> int:
        return sum(type(message) is request for message in self.requests)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds; it is checked after every request and connection."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _accept(self) -> None:
        sock, _ = self._sock.accept()
        self.accepted += 1
        stream = self.make_stream(
            asyncio.get_running_loop(),
            sock,
            max_frame=100_000_000,
            on_frame=lambda frame: self._on_frame(stream, frame),
            on_closed=lambda error: self._on_closed(),
        )
        self.streams.append(stream)
        self._changed.set()

    def _on_closed(self) -> None:
        self.ended += 1
        self._changed.set()

    def _on_frame(self, stream: FrameStream, frame: memoryview) -> None:
        header = framing.decode_request_header(frame)
        cls = request_class(header.api_key)
        message = codec.decode(cls, header.api_version, frame, header.body_offset)
        self.requests.append(message)
        self.versions.append((cls.name, header.api_version))
        self.client_ids.add(header.client_id)
        answer = self.answers.get(cls, SILENCE)
        if callable(answer):
            answer = answer(message, header.api_version, header.correlation_id)
        if answer is CLOSE:
            stream.close()
        elif isinstance(answer, bytes):
            stream.send([answer])
        elif answer is not SILENCE:
            stream.send(framing.encode_response(answer, header.api_version, header.correlation_id))
        self._changed.set()

    def _api_versions(self, message: Any, version: int, correlation_id: int) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.ranges.items()
            ],
        )
