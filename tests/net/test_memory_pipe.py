"""A memory pipe behaves like a socket."""

import asyncio
import os
import struct

from pyclient.errors import ConnectionFailed, MalformedMessage
from pyclient.net.file_region import FileRegion
from pyclient.net.memory import memory_pipe
from tests.net.ends import framed


def test_memory_pipe_behaves_like_socket(run, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")

    async def scenario():
        near, far = memory_pipe(asyncio.get_running_loop(), max_frame=1000)
        got, ended = [], asyncio.get_running_loop().create_future()
        far.on_closed = ended.set_result
        near.send([framed(b"before anybody listens")])
        far.on_frame = lambda frame: got.append(bytes(frame))
        fd = os.open(path, os.O_RDONLY)
        near.send([struct.pack(">i", 6), b"ab", FileRegion(fd, 2, 4)])
        await near.drain()
        far.pause_reading()
        near.send([framed(b"held", b"back")])
        for _ in range(5):
            await asyncio.sleep(0)
        assert got == [b"before anybody listens", b"ab2345"]
        assert near.pending == 16
        far.resume_reading()
        await near.drain()
        near.close()
        assert await ended is None
        assert got[2:] == [b"held", b"back"]
        os.close(fd)

    run(scenario())


def test_memory_pipe_closes_like_socket(run):
    async def scenario():
        for data, kind in ((b"\xff\xff\xff\xff", MalformedMessage), (framed(b"abc")[:5], ConnectionFailed)):
            near, far = memory_pipe(asyncio.get_running_loop())
            ended = asyncio.get_running_loop().create_future()
            far.on_closed = ended.set_result
            far.on_frame = print
            near.send([data])
            await near.drain()
            near.close()
            assert type(await ended) is kind

    run(scenario())
