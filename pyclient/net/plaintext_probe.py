"""Find out that a port whose TLS handshake ended in silence speaks Kafka's protocol without TLS."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pyclient.errors import ProtocolError
from pyclient.net.stream import FrameStream
from pyclient.protocol.framing import decode_response, encode_request
from pyclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    import socket

_SECONDS: Final = 2.0
_LONGEST_ANSWER: Final = 64 * 1024
_NUMBER: Final = 1


async def answers_without_tls(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bool:
    """Return True if a broker answers ApiVersions 0 on this connected socket within two seconds. Close the socket.

    The request has no client id: nothing of the client's is sent without encryption.
    """
    answer: asyncio.Future[bytes] = loop.create_future()

    def on_frame(frame: memoryview) -> None:
        if not answer.done():
            answer.set_result(bytes(frame))

    def on_closed(_error: BaseException | None) -> None:
        if not answer.done():
            answer.set_result(b"")

    stream = FrameStream(loop, sock, max_frame=_LONGEST_ANSWER, on_frame=on_frame, on_closed=on_closed)
    try:
        stream.send(encode_request(ApiVersionsRequest(), 0, _NUMBER, None))
        async with asyncio.timeout(_SECONDS):
            number, response = decode_response(ApiVersionsResponse, 0, await answer)
    except (TimeoutError, ProtocolError):
        return False
    finally:
        stream.close()
    return number == _NUMBER and bool(response.api_keys)
