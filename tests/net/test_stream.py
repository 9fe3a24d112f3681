import asyncio
import os
import socket
import struct
import threading

import pytest
import uvloop

from pyclient.errors import ConnectionFailed, MalformedMessage
from pyclient.net.memory import memory_pipe
from pyclient.net.stream import FileRegion, FrameStream


def framed(*bodies):
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    def run(scenario):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(scenario, 20))

    return run


class End:
    """One end of a connection and what it saw."""

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


def test_messages_of_many_parts_arrive_whole_and_in_order(run):
    async def scenario():
        a, b = pair()
        a.stream.send([framed(b"one")])
        a.stream.send([struct.pack(">i", 6), b"", b"tw", bytearray(b"o!"), memoryview(b"!!")])
        a.stream.send([framed(b"")])
        b.stream.send([framed(b"back")])
        assert await b.until(3) == [b"one", b"two!!!", b""]
        assert await a.until(1) == [b"back"]
        a.stream.close()
        assert await b.ended is None
        assert await a.ended is None
        b.stream.close()

    run(scenario())


def test_small_messages_of_many_parts_arrive_whole_behind_and_between_large_ones(run):
    async def scenario():
        a, b = pair()
        bodies = [bytes([n % 251]) * size for n, size in enumerate((2_000, 2_044, 2_045, 3, 3_000_000, 7, 0, 5))]
        b.stream.pause_reading()
        for body in bodies:
            half = len(body) // 2
            a.stream.send([struct.pack(">i", len(body)), bytearray(body[:half]), memoryview(body)[half:]])
        assert a.stream.pending
        b.stream.resume_reading()
        assert await b.until(len(bodies)) == bodies
        assert a.stream.pending == 0
        a.stream.close()
        b.stream.close()

    run(scenario())


def test_a_small_message_may_hold_a_file_region(run, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    released = []

    async def scenario():
        near, far = tcp_pair()
        a, b = End(near), End(far)
        fd = os.open(path, os.O_RDONLY)
        a.stream.send([struct.pack(">i", 6), b"a", FileRegion(fd, 3, 4, lambda: released.append(1)), b"z"])
        assert await b.until(1) == [b"a3456z"]
        assert released == [1]
        a.stream.close()
        b.stream.close()
        os.close(fd)

    run(scenario())


def test_more_than_the_kernel_takes_is_queued_and_drained(run):
    async def scenario():
        a, b = pair()
        bodies = [bytes([n]) * 1_000_000 for n in range(8)]
        b.stream.pause_reading()
        for body in bodies:
            a.stream.send([struct.pack(">i", len(body)), body])
        assert a.stream.pending > 4_000_000
        b.stream.resume_reading()
        await a.stream.drain(below=1_000_000)
        assert a.stream.pending <= 1_000_000
        await a.stream.drain()
        assert a.stream.pending == 0
        assert await b.until(8) == bodies
        a.stream.close()
        b.stream.close()

    run(scenario())


def test_file_regions_travel_between_bytes_and_are_released_once(run, tmp_path):
    path = tmp_path / "log"
    content = os.urandom(3_000_000)
    path.write_bytes(content)
    released = []

    async def scenario():
        near, far = tcp_pair()
        a, b = End(near), End(far)
        fd = os.open(path, os.O_RDONLY)
        regions = [
            FileRegion(fd, 0, 2_500_000, lambda: released.append("big")),
            FileRegion(fd, 0, 0, lambda: released.append("empty")),
            FileRegion(fd, 2_999_000, 1_000, lambda: released.append("small")),
        ]
        size = 5 + sum(map(len, regions)) + 3
        a.stream.send([struct.pack(">i", size), b"begin", *regions, b"end"])
        a.stream.send([framed(b"next")])
        got = await b.until(2)
        assert got[0] == b"begin" + content[:2_500_000] + content[2_999_000:] + b"end"
        assert got[1] == b"next"
        assert released == ["big", "empty", "small"]
        a.stream.close()
        b.stream.close()
        os.close(fd)

    run(scenario())


def test_regions_that_are_never_sent_are_released_by_closing(run, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(bytes(20_000_000))
    released = []

    async def scenario():
        a, b = pair()
        b.stream.pause_reading()
        fd = os.open(path, os.O_RDONLY)
        a.stream.send([FileRegion(fd, 0, 20_000_000, lambda: released.append(1)), b"x"])
        assert a.stream.pending > 0
        a.stream.close()
        a.stream.send([FileRegion(fd, 0, 10, lambda: released.append(2))])
        assert released == [1, 2]
        b.stream.close()
        os.close(fd)

    run(scenario())


def test_a_file_shorter_than_its_region_ends_the_connection(run, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"short")

    async def scenario():
        a, b = pair()
        fd = os.open(path, os.O_RDONLY)
        a.stream.send([FileRegion(fd, 0, 100)])
        error = await a.ended
        assert isinstance(error, ConnectionFailed)
        assert "ends after 5 bytes" in str(error)
        b.stream.close()
        with pytest.raises(ConnectionFailed, match="ends after 5 bytes"):
            FileRegion(fd, 0, 100).read()
        os.close(fd)

    run(scenario())


def test_answers_to_frames_that_came_together_leave_in_one_write(run):
    class Counting(socket.socket):
        writes = 0

        def send(self, *args):
            Counting.writes += 1
            return super().send(*args)

        def sendmsg(self, *args):
            Counting.writes += 1
            return super().sendmsg(*args)

    async def scenario():
        near, far = tcp_pair()
        b = End(Counting(fileno=far.detach()))
        b.stream.on_frame = lambda frame: b.stream.send([struct.pack(">i", len(frame)), frame])
        a = End(near)
        a.stream.send([framed(*[b"request"] * 50)])
        assert await a.until(50) == [b"request"] * 50
        assert Counting.writes < 5
        a.stream.close()
        b.stream.close()

    run(scenario())


def test_a_pause_inside_a_receiver_holds_the_frames_behind(run):
    async def scenario():
        a, b = pair()
        seen = []

        def one_at_a_time(frame):
            seen.append(bytes(frame))
            b.stream.pause_reading()
            asyncio.get_running_loop().call_soon(release)

        def release():
            counts.append(len(seen))
            b.stream.resume_reading()
            b.on_frame(b"")

        counts = []
        b.stream.on_frame = one_at_a_time
        a.stream.send([framed(*[b"%d" % n for n in range(5)])])
        await b.until(5)
        assert counts == [1, 2, 3, 4, 5]
        assert seen == [b"0", b"1", b"2", b"3", b"4"]
        a.stream.close()
        b.stream.close()

    run(scenario())


def test_a_pause_and_resume_inside_a_receiver_costs_nothing_but_order(run):
    async def scenario():
        a, b = pair()

        def receive(frame):
            b.stream.pause_reading()
            b.on_frame(frame)
            b.stream.resume_reading()

        b.stream.on_frame = receive
        a.stream.send([framed(*[b"%d" % n for n in range(100)])])
        assert await b.until(100) == [b"%d" % n for n in range(100)]
        a.stream.close()
        b.stream.close()

    run(scenario())


def test_a_peer_that_does_not_read_is_not_read_either(run):
    async def scenario():
        near, far = socket.socketpair()
        b = End(far, pause_above=1_000_000)
        b.stream.on_frame = lambda frame: (b.on_frame(frame), b.stream.send([framed(bytes(400_000))]))
        near.settimeout(10)
        requests = threading.Thread(target=near.sendall, args=(framed(*[b"?" * 1000] * 200),))
        requests.start()
        while b.stream.pending <= 1_000_000:
            await b.until(len(b.frames) + 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(b.frames) < 10
        assert b.stream.pending < 5_000_000

        def read_all():
            left = 200 * 400_004
            while left:
                left -= len(near.recv(min(left, 1 << 20)))

        await asyncio.to_thread(read_all)
        assert len(await b.until(200)) == 200
        requests.join()
        near.close()
        await b.ended

    run(scenario())


def test_a_frozen_stream_neither_reads_nor_writes_until_it_is_thawed(run):
    async def scenario():
        a, b = pair()
        large = os.urandom(3_000_000)
        a.stream.send([framed(large)])  # the kernel does not take all of it at once
        a.stream.freeze()
        a.stream.freeze()
        waiting = a.stream.pending
        assert waiting > 0
        a.stream.send([framed(b"sent meanwhile")])
        a.stream.cork()
        a.stream.uncork()
        b.stream.send([framed(b"unread")])
        for _ in range(20):
            await asyncio.sleep(0.002)  # turns in which a stream that is not frozen would go on
        assert (a.stream.pending, a.frames, b.frames) == (waiting + 18, [], [])
        a.stream.thaw()
        a.stream.thaw()
        assert await a.until(1) == [b"unread"]
        assert await b.until(2) == [large, b"sent meanwhile"]
        await a.stream.drain()
        a.stream.freeze()
        a.stream.close()
        a.stream.thaw()
        assert await a.ended is None

    run(scenario())


def test_an_unfinished_frame_is_counted_with_what_the_kernel_still_holds(run):
    async def scenario():
        near, far = tcp_pair()
        a = End(near)
        far.sendall(framed(b"whole") + struct.pack(">i", 1_000_000) + b"abc")
        await a.until(1)
        assert a.stream.unfinished() == 7
        far.sendall(b"defg")  # too little to be woken up for
        while a.stream.unfinished() == 7:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)
        assert a.stream.unfinished() == 11
        a.stream.pause_reading()
        assert a.stream.unfinished() is None
        a.stream.resume_reading()
        far.sendall(bytes(1_000_000 - 7))
        await a.until(2)
        assert a.stream.unfinished() is None
        a.stream.close()
        far.close()
        await a.ended

    run(scenario())


def test_an_end_inside_a_frame_is_told(run):
    async def scenario():
        near, far = socket.socketpair()
        b = End(far)
        near.sendall(framed(b"0123456789")[:9])
        near.close()
        error = await b.ended
        assert isinstance(error, ConnectionFailed)
        assert "inside a frame (5 of 10 bytes had come)" in str(error)

    run(scenario())


def test_nonsense_closes_the_connection_and_hurts_no_other(run):
    async def scenario():
        near, far = socket.socketpair()
        b = End(far)
        c, d = pair()
        near.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        error = await b.ended
        assert isinstance(error, MalformedMessage)
        assert "not a Kafka broker" in str(error)
        c.stream.send([framed(b"fine")])
        assert await d.until(1) == [b"fine"]
        near.close()
        c.stream.close()
        d.stream.close()

    run(scenario())


def test_a_reset_is_told_with_the_address(run):
    async def scenario():
        near, far = tcp_pair()
        b = End(far)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        near.close()
        error = await b.ended
        assert isinstance(error, ConnectionFailed)
        assert str(error) == f"{b.stream.peername}: Connection reset by peer"
        assert b.stream.peername.startswith("127.0.0.1:")

    run(scenario())


def test_what_a_receiver_raises_closes_the_stream_with_it(run):
    async def scenario():
        a, b = pair()

        def refuse(frame):
            raise MalformedMessage("no such api")

        b.stream.on_frame = refuse
        a.stream.send([framed(b"?", b"?")])
        assert str(await b.ended) == "no such api"
        assert await a.ended is None

    run(scenario())


def test_closing_is_told_once_and_not_from_inside_the_call(run):
    async def scenario():
        a, b = pair()
        a.stream.close(ConnectionFailed("first"))
        a.stream.close(ConnectionFailed("second"))
        assert a.closings == 0
        assert str(await a.ended) == "first"
        await b.ended
        assert (a.closings, b.closings) == (1, 1)
        with pytest.raises(ConnectionFailed):
            await a.stream.drain()
        assert repr(a.stream) == "<FrameStream a local socket closed pending=0>"

    run(scenario())


def test_draining_a_stream_that_closes_is_an_error(run):
    async def scenario():
        a, b = pair()
        b.stream.pause_reading()
        a.stream.send([bytes(10_000_000)])
        draining = asyncio.ensure_future(a.stream.drain())
        await asyncio.sleep(0)
        a.stream.close()
        with pytest.raises(ConnectionFailed):
            await draining
        b.stream.close()

    run(scenario())


def test_a_memory_pipe_behaves_like_a_socket(run, tmp_path):
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


def test_a_memory_pipe_ends_as_a_socket_does(run):
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
