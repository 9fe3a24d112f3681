"""Paused streams: inside a receiver, because the peer does not read, or frozen."""

import asyncio
import os
import socket
import struct
import threading

from tests.net.ends import End, framed, pair, tcp_pair


def test_pause_inside_receiver_holds_later_frames(run):
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


def test_pause_and_resume_inside_receiver_keep_frames_in_order(run):
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


def test_reading_pauses_while_peer_does_not_read(run):
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


def test_frozen_stream_neither_reads_nor_writes_until_thawed(run):
    async def scenario():
        a, b = pair()
        large = os.urandom(3_000_000)
        a.stream.send([framed(large)])  # more than the kernel accepts at once
        a.stream.freeze()
        a.stream.freeze()
        waiting = a.stream.pending
        assert waiting > 0
        a.stream.send([framed(b"sent meanwhile")])
        a.stream.cork()
        a.stream.uncork()
        b.stream.send([framed(b"unread")])
        for _ in range(20):
            await asyncio.sleep(0.002)  # iterations in which a stream that is not frozen would continue
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


def test_unfinished_counts_bytes_in_kernel_buffer(run):
    async def scenario():
        near, far = tcp_pair()
        a = End(near)
        far.sendall(framed(b"whole") + struct.pack(">i", 1_000_000) + b"abc")
        await a.until(1)
        assert a.stream.unfinished() == 7
        far.sendall(b"defg")  # too few bytes to wake the loop
        while a.stream.unfinished() == 7:  # noqa: ASYNC110 - there is no event for it
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
