"""Writes to a socket by a thread other than the loop's, which leaves the rest to the loop."""

import asyncio
import socket

from pyclient.errors import ConnectionFailed
from pyclient.net.stream import FrameStream


def test_loop_writes_rest_that_kernel_did_not_accept(run):
    async def scenario():
        near, far = socket.socketpair()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        stream = FrameStream(loop, near, max_frame=100, on_frame=print, on_closed=lambda error: ended.set())
        message = bytes(range(256)) * 1000
        far.setblocking(False)
        with stream.gate:
            await asyncio.to_thread(lambda: stream.left_here(memoryview(message)))
            assert 0 < stream.pending <= len(message)
        got = bytearray()
        while len(got) < len(message):
            got += await loop.sock_recv(far, 65536)
        assert bytes(got) == message and not stream.pending
        far.close()
        await ended.wait()

    run(scenario())


def test_stream_lost_during_write_of_thread_is_closed_by_loop(run):
    async def scenario():
        near, far = socket.socketpair()
        ended = asyncio.get_running_loop().create_future()
        stream = FrameStream(
            asyncio.get_running_loop(), near, max_frame=100, on_frame=print, on_closed=ended.set_result
        )
        await asyncio.to_thread(stream.lost_here, BrokenPipeError(32, "Broken pipe"))
        error = await ended
        assert type(error) is ConnectionFailed and "Broken pipe" in str(error)
        assert stream.closed
        far.close()

    run(scenario())
