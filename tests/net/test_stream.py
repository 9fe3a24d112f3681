"""Streams deliver messages whole and in order, and report the end of the connection once."""

import asyncio
import socket
import struct

import pytest

from pyclient.errors import ConnectionFailed, MalformedMessage
from tests.net.ends import End, framed, pair, tcp_pair


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


def test_small_messages_arrive_whole_between_large_ones(run):
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


def test_bytes_beyond_kernel_buffer_are_queued_and_drained(run):
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


def test_responses_to_frames_of_one_read_leave_in_one_write(run):
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


def test_end_inside_frame_is_reported(run):
    async def scenario():
        near, far = socket.socketpair()
        b = End(far)
        near.sendall(framed(b"0123456789")[:9])
        near.close()
        error = await b.ended
        assert isinstance(error, ConnectionFailed)
        assert "inside a frame (5 of 10 bytes received)" in str(error)

    run(scenario())


def test_invalid_bytes_close_only_their_connection(run):
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


def test_reset_is_reported_with_address(run):
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


def test_error_of_receiver_closes_stream(run):
    async def scenario():
        a, b = pair()

        def refuse(frame):
            raise MalformedMessage("no such api")

        b.stream.on_frame = refuse
        a.stream.send([framed(b"?", b"?")])
        assert str(await b.ended) == "no such api"
        assert await a.ended is None

    run(scenario())


def test_on_closed_is_called_once_after_close_returns(run):
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


def test_drain_fails_when_stream_closes(run):
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
