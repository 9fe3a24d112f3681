"""Both ends of a connection, for tests of streams."""

import asyncio
import socket
import struct

from pyclient.net.stream import FrameStream


def framed(*bodies):
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class End:
    """One end of a connection, and the frames and errors that it received."""

    def __init__(self, sock, **options):
        self.frames = []
        self.ended = asyncio.get_running_loop().create_future()
        self.arrived = asyncio.Event()
        self.closings = 0
        self.stream = FrameStream(
            asyncio.get_running_loop(),
            sock,
            **{"max_frame": 50_000_000, "on_frame": self.on_frame, "on_closed": self.on_closed, **options},
        )

    def on_frame(self, frame):
        self.frames.append(frame)
        self.arrived.set()

    def on_closed(self, error):
        self.closings += 1
        self.ended.set_result(error)

    async def until(self, count):
        while len(self.frames) < count:
            self.arrived.clear()
            await self.arrived.wait()
        return [bytes(frame) for frame in self.frames]


def pair(**options):
    near, far = socket.socketpair()
    return End(near, **options), End(far)


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    return near, far
