"""Connections reset by the peer: earlier frames are delivered, and the end is reported, on every loop."""

import asyncio
import select
import socket
import struct

import pytest

from pyclient.errors import ConnectionFailed
from tests.net.ends import End, framed, tcp_pair
from tests.waiting import until


def reset(near, far, data):
    """Send as much of the data as the kernel accepts, then reset; both happen before the loop reads."""
    far.setblocking(False)
    taken = 0
    poll = select.poll()
    poll.register(near, 0)  # errors only
    while taken < len(data):
        try:
            taken += far.send(data[taken:])
        except BlockingIOError:
            break
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    until(lambda: poll.poll(0))


@pytest.mark.parametrize(
    "data",
    [framed(b"one", b"two"), framed(b"one", b"two")[:-1], framed(*[b"%d" % n * 1000 for n in range(1000)])],
    ids=["frames", "a frame cut", "more than is received at a time"],
)
def test_frames_before_reset_are_delivered_and_end_is_reported(run, data):
    async def scenario():
        near, far = tcp_pair()
        end = End(near)
        await asyncio.sleep(0)
        reset(near, far, data)
        error = await end.ended
        assert error is None or isinstance(error, ConnectionFailed)
        assert end.frames and framed(*map(bytes, end.frames)) == data[: sum(4 + len(frame) for frame in end.frames)]

    run(scenario())


def test_reset_during_pause_is_reported_on_resume(run):
    async def scenario():
        near, far = tcp_pair()
        end = End(near)
        end.stream.pause_reading()
        await asyncio.sleep(0)
        reset(near, far, framed(b"one", b"two"))
        for _ in range(5):
            await asyncio.sleep(0.001)  # iterations of the loop
        assert end.frames == [] and not end.ended.done()
        end.stream.resume_reading()
        await end.ended
        assert end.frames == [b"one", b"two"]

    run(scenario())


def test_reset_during_pause_by_receiver_is_reported_on_resume(run):
    async def scenario():
        near, far = tcp_pair()
        end = End(near, on_frame=lambda frame: (end.on_frame(frame), end.stream.pause_reading()))
        await asyncio.sleep(0)
        reset(near, far, framed(b"one", b"two"))
        await end.until(1)
        for _ in range(5):
            await asyncio.sleep(0.001)  # iterations of the loop
        assert end.frames == [b"one"] and not end.ended.done()
        end.stream.resume_reading()
        await end.until(2)
        end.stream.resume_reading()
        await end.ended
        assert end.frames == [b"one", b"two"]

    run(scenario())
