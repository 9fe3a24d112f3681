"""Invalid responses end their connection with a clear error."""

import asyncio
import struct

import pytest

from pyclient.errors import ConnectionFailed, MalformedMessage, TruncatedMessage
from pyclient.protocol import codec
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.net.connections import ALL_TOPICS, HEARTBEAT, METADATA, connect
from tests.net.scripted import CLOSE, ScriptedBroker


def hostile(make):
    """Return a broker whose response to Metadata is the bytes of `make(correlation_id)`."""
    return ScriptedBroker({MetadataRequest: lambda message, version, cid: make(cid)})


def framed(body):
    return struct.pack(">i", len(body)) + body


GOOD_BODY = b"\0" + codec.encode(METADATA, 13)


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (lambda cid: b"\xff\xff\xff\xff", ConnectionFailed, "a frame of -1 bytes was announced"),
        (lambda cid: b"\x7f\xff\xff\xff", ConnectionFailed, "more than the 100000000 bytes allowed"),
        (lambda cid: b"\x15\x03\x03\x00\x02\x02\x28", ConnectionFailed, "set security_protocol='SSL'"),
        (lambda cid: b"HTTP/1.1 400 Bad Request\r\n", ConnectionFailed, "the port speaks HTTP"),
        (lambda cid: framed(b""), ConnectionFailed, "response header ends early"),
        (lambda cid: framed(b"abc"), ConnectionFailed, "response header ends early"),
        (lambda cid: framed(struct.pack(">i", cid + 1) + GOOD_BODY), ConnectionFailed, "the next one is 2"),
        (lambda cid: framed(struct.pack(">i", -1) + GOOD_BODY), ConnectionFailed, "correlation id -1"),
        (lambda cid: framed(struct.pack(">i", cid) + GOOD_BODY[:-3]), TruncatedMessage, "MetadataResponse v13"),
        (lambda cid: framed(struct.pack(">i", cid) + GOOD_BODY + b"!"), MalformedMessage, "MetadataResponse v13"),
        (lambda cid: framed(struct.pack(">i", cid) + b"\xff" * 20), MalformedMessage, "invalid Metadata v13 response"),
    ],
)
def test_invalid_response_ends_connection_with_clear_error(run, make, kind, says):
    async def scenario():
        broker = hostile(make)
        connection = await connect(broker)
        other = await connect(broker)
        also_waiting = connection.submit(ALL_TOPICS)
        also_waiting_too = connection.submit(HEARTBEAT)
        with pytest.raises(kind, match=says) as error:
            await also_waiting
        assert str(error.value).startswith(f"{broker.address} (node 7): ")
        with pytest.raises(ConnectionFailed, match=says):
            await also_waiting_too
        assert connection.closed
        assert not other.closed
        await other.close()
        broker.stop()

    run(scenario())


def test_truncated_response_ends_connection_at_every_length(run):
    whole = framed(struct.pack(">i", 2) + GOOD_BODY)

    async def scenario():
        for end in range(len(whole)):
            broker = ScriptedBroker()

            def cut(message, version, cid, broker=broker, end=end):
                broker.streams[0].send([whole[:end]])
                return CLOSE

            broker.answers[MetadataRequest] = cut
            connection = await connect(broker)
            with pytest.raises(ConnectionFailed):
                await connection.request(ALL_TOPICS)
            broker.stop()

    run(scenario())


def test_unsolicited_response_ends_connection(run):
    async def scenario():
        broker = hostile(lambda cid: framed(struct.pack(">i", cid) + GOOD_BODY) * 2)
        connection = await connect(broker)
        ended = asyncio.get_running_loop().create_future()
        connection.on_closed.append(ended.set_result)
        assert (await connection.request(ALL_TOPICS)).cluster_id == "c"
        await ended
        assert "no request waits for one" in str(connection.cause)
        broker.stop()

    run(scenario())
