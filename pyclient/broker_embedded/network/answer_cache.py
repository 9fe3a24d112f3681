"""Cache of encoded Metadata responses, valid until the metadata or the controller change.

Everything else in an answer is from the image (brokers, racks, leaders, ISR, offline replicas), or the same as long as
the listener is open (its own address, the cluster id). Listeners whose answers depend on the client have no cache.

A cached response costs a third of decoding, answering and encoding: docs/measurements.md, "Metadata answers".
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.protocol.fields import Part, Response
    from pyclient.protocol.messages.metadata import MetadataResponseTopic

_MOST_BYTES: Final = 4 << 20
_LARGEST: Final = 1 << 20
_ENTRY: Final = 200  # bytes of a dictionary entry, with the object headers of its key and value

_RESPONSE: Final = Struct(">i4s")  # length of the frame, correlation id
METADATA: Final = 3
_HEADER: Final = 10  # bytes of a request before its client id
_NO_CLIENT_ID: Final = 0xFFFF


class AnswerCache:
    """Response bodies by version and request body, whatever the client; at most 4 MiB of requests and bodies."""

    __slots__ = ("_answers", "_image", "_size", "_version")

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._version = image.version
        self._answers: dict[bytes, bytes] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._answers)

    def answer(self, frame: memoryview) -> bytes | None:
        """Return the encoded response to a request, or None if none is cached or the metadata has changed."""
        if len(frame) < _HEADER or frame[0] or frame[1] != METADATA:
            return None
        data = frame.tobytes()  # slices of bytes are quicker than those of a view
        body = self._answers.get(_question(data))
        if body is None:
            return None
        if self._version != self._image.version:
            self._clear()
            return None
        return _RESPONSE.pack(len(body) + 4, data[4:8]) + body

    def keep(self, frame: memoryview, response: Response, parts: list[Part]) -> None:
        """Cache a response. One with an error is not cached: the same request may create the topic the next time."""
        topics: list[MetadataResponseTopic] = response.topics  # type: ignore[attr-defined]  # a MetadataResponse
        if any(topic.error_code for topic in topics):
            return
        if self._version != self._image.version:
            self._clear()
        size = len(frame) + sum(map(len, parts))
        if size > _LARGEST:
            return
        body = b"".join(parts)[_RESPONSE.size :]  # type: ignore[arg-type]  # there are no records in it
        question = question_in(frame)
        if question in self._answers:
            return
        if self._size + size > _MOST_BYTES:
            self._clear()
        self._answers[question] = body
        self._size += size + _ENTRY

    def _clear(self) -> None:
        self._answers.clear()
        self._size = 0
        self._version = self._image.version


def question_in(frame: memoryview) -> bytes:
    """Return the cache key of a request: its version and body, without correlation id and client id."""
    return _question(frame.tobytes())


def _question(data: bytes) -> bytes:
    length = data[8] << 8 | data[9]
    return data[2:4] + data[_HEADER + (0 if length == _NO_CLIENT_ID else length) :]
