"""Requests that other threads than the loop's write themselves."""

import asyncio
import socket
import threading

import pytest

from pyclient.errors import ConnectionFailed, KafkaTimeout
from pyclient.net.connection import Connection
from pyclient.net.stream import FrameStream
from pyclient.net.waiting import Told
from pyclient.protocol.framing import encode_request
from pyclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.net.connections import ALL_TOPICS, HEARTBEAT, METADATA, connect
from tests.net.scripted import CLOSE, SILENCE, ScriptedBroker


class Teller:
    """Tells a connection of heartbeats from any thread, and keeps what it is told."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.version = connection.version_for(HeartbeatRequest)
        self.told: list[tuple[object, BaseException | None]] = []
        self.changed = asyncio.Event()

    def tell(self) -> bool:
        return self.tell_with(Told(asyncio.get_running_loop(), self.answered))

    def tell_with(self, told: Told) -> bool:
        return self.connection.tell_now(HeartbeatRequest, self.version, self._make, lambda frame: None, told)

    def _make(self, correlation_id: int):
        return encode_request(HEARTBEAT, self.version, correlation_id, "c")

    def answered(self, response: object, error: BaseException | None) -> None:
        self.told.append((response, error))
        self.changed.set()

    async def until(self, count: int) -> list[tuple[object, BaseException | None]]:
        while len(self.told) < count:
            self.changed.clear()
            await self.changed.wait()
        return self.told


def test_threads_and_the_loop_may_write_at_once_and_every_answer_finds_its_request(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: METADATA, HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker)
        teller, loop = Teller(connection), asyncio.get_running_loop()
        wrote = [0, 0, 0]

        def write(number: int) -> None:
            while wrote[number] < 300:
                wrote[number] += teller.tell_with(Told(loop, teller.answered))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert (await connection.request(ALL_TOPICS)).cluster_id == "c"
        told = await teller.until(900)
        assert all(type(response) is HeartbeatResponse and error is None for response, error in told)
        await connection.close()
        broker.stop()

    run(scenario())


def test_what_the_kernel_does_not_take_at_once_follows_from_the_loop(run):
    async def scenario():
        near, far = socket.socketpair()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        stream = FrameStream(loop, near, max_frame=100, on_frame=print, on_closed=lambda error: ended.set())
        message = bytes(range(256)) * 1000
        far.setblocking(False)
        with stream.gate:
            assert stream.free
            await asyncio.to_thread(lambda: stream.write_here([message[:9], memoryview(message)[9:]]))
            assert not stream.free and 0 < stream.pending < len(message)
        got = bytearray()
        while len(got) < len(message):
            got += await loop.sock_recv(far, 65536)
        assert bytes(got) == message and not stream.pending
        far.close()
        await ended.wait()

    run(scenario())


def test_a_stream_that_is_lost_while_a_thread_writes_tells_so_from_the_loop(run):
    async def scenario():
        near, far = socket.socketpair()
        ended = asyncio.get_running_loop().create_future()
        stream = FrameStream(
            asyncio.get_running_loop(), near, max_frame=100, on_frame=print, on_closed=ended.set_result
        )
        far.close()
        await asyncio.to_thread(stream.write_here, [b"nobody is there"])
        assert type(await ended) in (ConnectionFailed, type(None))  # None: the end was read before the write's error
        assert not stream.free

    run(scenario())


def test_while_the_broker_asks_for_silence_threads_do_not_write(run):
    async def scenario():
        slow = MetadataResponse(brokers=[], topics=[], throttle_time_ms=60_000)
        broker = ScriptedBroker({MetadataRequest: slow, HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker)
        teller = Teller(connection)
        assert teller.tell()
        await teller.until(1)
        await connection.request(ALL_TOPICS)
        assert not teller.tell() and connection.in_flight == 0
        await connection.close()
        assert not teller.tell()
        broker.stop()

    run(scenario())


def test_behind_what_waits_to_leave_together_threads_do_not_write(run):
    async def scenario():
        broker = ScriptedBroker({HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker)
        teller = Teller(connection)
        connection.cork()
        connection.submit(HEARTBEAT)
        assert not teller.tell() and connection.in_flight == 1
        connection.uncork()
        assert teller.tell() and connection.in_flight == 2
        await teller.until(1)
        await connection.close()
        broker.stop()

    run(scenario())


def test_a_late_answer_to_a_thread_ends_the_connection(run):
    async def scenario():
        broker = ScriptedBroker({HeartbeatRequest: SILENCE})
        connection = await connect(broker, request_timeout_ms=100, socket_connection_setup_timeout_ms=100)
        teller = Teller(connection)
        assert teller.tell()
        (_, error), *_ = await teller.until(1)
        assert type(error) is KafkaTimeout and "Heartbeat" in str(error)
        assert connection.closed
        broker.stop()

    run(scenario())


@pytest.mark.parametrize("answer", [SILENCE, CLOSE])
def test_an_interrupted_write_is_told_once_and_ends_the_connection_it_may_have_reached(run, answer):
    async def scenario():
        broker = ScriptedBroker({HeartbeatRequest: answer})
        connection = await connect(broker)
        teller = Teller(connection)
        never_written = Told(asyncio.get_running_loop(), teller.answered)
        connection.interrupted(never_written, KeyboardInterrupt())
        assert not connection.closed
        ((_, error),) = await teller.until(1)
        assert type(error) is KeyboardInterrupt
        written = Told(asyncio.get_running_loop(), teller.answered)
        assert teller.tell_with(written)
        connection.interrupted(written, KeyboardInterrupt())
        assert connection.closed
        connection.interrupted(written, KeyboardInterrupt())
        _, (_, error) = await teller.until(2)
        assert type(error) is ConnectionFailed and "interrupted" in str(error)
        broker.stop()
        await asyncio.sleep(0)
        assert len(teller.told) == 2

    run(scenario())
