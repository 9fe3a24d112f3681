"""Requests that threads other than the loop's write to the socket."""

import asyncio
import socket
import threading

import pytest

from pyclient.errors import ConnectionFailed, KafkaTimeout
from pyclient.net.connection import Connection
from pyclient.net.in_flight import ResponseCallback
from pyclient.net.stream import FrameStream
from pyclient.protocol.framing import encode_request
from pyclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.net.connections import ALL_TOPICS, HEARTBEAT, METADATA, connect
from tests.net.scripted import CLOSE, SILENCE, ScriptedBroker


class HeartbeatSender:
    """Sends heartbeats from any thread, and keeps their responses."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.version = connection.version_for(HeartbeatRequest)
        self.responses: list[tuple[object, BaseException | None]] = []
        self.changed = asyncio.Event()

    def send(self) -> bool:
        return self.send_with(ResponseCallback(asyncio.get_running_loop(), self.on_response))

    def send_with(self, callback: ResponseCallback) -> bool:
        request = (HeartbeatRequest, self.version, self._make, lambda frame: None)
        return self.connection.send_from_thread(*request, callback)

    def _make(self, correlation_id: int):
        return encode_request(HEARTBEAT, self.version, correlation_id, "c")

    def on_response(self, response: object, error: BaseException | None) -> None:
        self.responses.append((response, error))
        self.changed.set()

    async def until(self, count: int) -> list[tuple[object, BaseException | None]]:
        while len(self.responses) < count:
            self.changed.clear()
            await self.changed.wait()
        return self.responses


def test_threads_and_loop_send_concurrently_and_get_their_responses(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: METADATA, HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker)
        sender, loop = HeartbeatSender(connection), asyncio.get_running_loop()
        wrote = [0, 0, 0]

        def write(number: int) -> None:
            while wrote[number] < 300:
                wrote[number] += sender.send_with(ResponseCallback(loop, sender.on_response))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert (await connection.request(ALL_TOPICS)).cluster_id == "c"
        responses = await sender.until(900)
        assert all(type(response) is HeartbeatResponse and error is None for response, error in responses)
        await connection.close()
        broker.stop()

    run(scenario())


def test_loop_writes_rest_that_kernel_did_not_accept(run):
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


def test_stream_lost_during_write_of_thread_is_closed_by_loop(run):
    async def scenario():
        near, far = socket.socketpair()
        ended = asyncio.get_running_loop().create_future()
        stream = FrameStream(
            asyncio.get_running_loop(), near, max_frame=100, on_frame=print, on_closed=ended.set_result
        )
        far.close()
        await asyncio.to_thread(stream.write_here, [b"to a closed peer"])
        assert type(await ended) in (ConnectionFailed, type(None))  # None: the end was read before the write's error
        assert not stream.free

    run(scenario())


def test_thread_does_not_send_while_broker_throttles(run):
    async def scenario():
        slow = MetadataResponse(brokers=[], topics=[], throttle_time_ms=60_000)
        broker = ScriptedBroker({MetadataRequest: slow, HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker)
        sender = HeartbeatSender(connection)
        assert sender.send()
        await sender.until(1)
        await connection.request(ALL_TOPICS)
        assert not sender.send() and connection.in_flight == 0
        await connection.close()
        assert not sender.send()
        broker.stop()

    run(scenario())


def test_thread_does_not_send_while_corked(run):
    async def scenario():
        broker = ScriptedBroker({HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker)
        sender = HeartbeatSender(connection)
        connection.cork()
        connection.submit(HEARTBEAT)
        assert not sender.send() and connection.in_flight == 1
        connection.uncork()
        assert sender.send() and connection.in_flight == 2
        await sender.until(1)
        await connection.close()
        broker.stop()

    run(scenario())


def test_timeout_of_request_from_thread_ends_connection(run):
    async def scenario():
        broker = ScriptedBroker({HeartbeatRequest: SILENCE})
        connection = await connect(broker, request_timeout_ms=100, socket_connection_setup_timeout_ms=100)
        sender = HeartbeatSender(connection)
        assert sender.send()
        (_, error), *_ = await sender.until(1)
        assert type(error) is KafkaTimeout and "Heartbeat" in str(error)
        assert connection.closed
        broker.stop()

    run(scenario())


@pytest.mark.parametrize("answer", [SILENCE, CLOSE])
def test_interrupted_send_fails_once_and_ends_connection_if_written(run, answer):
    async def scenario():
        broker = ScriptedBroker({HeartbeatRequest: answer})
        connection = await connect(broker)
        sender = HeartbeatSender(connection)
        never_written = ResponseCallback(asyncio.get_running_loop(), sender.on_response)
        connection.interrupted(never_written, KeyboardInterrupt())
        assert not connection.closed
        ((_, error),) = await sender.until(1)
        assert type(error) is KeyboardInterrupt
        written = ResponseCallback(asyncio.get_running_loop(), sender.on_response)
        assert sender.send_with(written)
        connection.interrupted(written, KeyboardInterrupt())
        assert connection.closed
        connection.interrupted(written, KeyboardInterrupt())
        _, (_, error) = await sender.until(2)
        assert type(error) is ConnectionFailed and "interrupted" in str(error)
        broker.stop()
        await asyncio.sleep(0)
        assert len(sender.responses) == 2

    run(scenario())
