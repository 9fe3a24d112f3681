"""One connection: pipelining, versions, timeouts, throttling, and who is told of its end."""

import asyncio
import struct
import weakref

import pytest

from pyclient.errors import ConnectionFailed, KafkaTimeout, MalformedMessage, UnsupportedVersion
from pyclient.protocol import framing
from pyclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pyclient.protocol.messages.produce import ProduceRequest
from tests.net.connections import ALL_TOPICS, HEARTBEAT, METADATA, connect
from tests.net.scripted import CLOSE, SILENCE, ScriptedBroker


def test_requests_are_pipelined_and_answers_find_their_requests(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: METADATA, HeartbeatRequest: HeartbeatResponse(error_code=27)})
        connection = await connect(broker, client_id="tester")
        first = connection.submit(ALL_TOPICS)
        second = connection.submit(HEARTBEAT)
        third = connection.submit(ALL_TOPICS, version=1)
        assert connection.in_flight == 3
        assert repr(connection) == f"<Connection {broker.address} (node 7) ready in_flight=3>"
        assert (await first).cluster_id == "c"
        assert (await second).error_code == 27
        assert (await third).cluster_id is None
        assert broker.versions == [("ApiVersions", 4), ("Metadata", 13), ("Heartbeat", 4), ("Metadata", 1)]
        assert broker.client_ids == {"tester"}
        assert broker.accepted == 1
        await connection.close()
        broker.stop()

    run(scenario())


def test_an_answer_can_be_told_in_the_turn_in_which_it_comes(run, caplog):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: METADATA, HeartbeatRequest: CLOSE})
        connection = await connect(broker)
        told, failed = asyncio.Event(), asyncio.Event()
        seen = []

        def answered(response, error):
            seen.append((response, error))
            (failed if error else told).set()
            if response is not None:
                raise ArithmeticError("in the caller's own code")

        connection.send(ALL_TOPICS, answered)
        await told.wait()
        assert seen[0][0].cluster_id == "c" and seen[0][1] is None
        assert not connection.closed and "in the caller's own code" in caplog.text
        connection.send(HEARTBEAT, answered)
        await failed.wait()
        failed.clear()
        connection.send(HEARTBEAT, answered)  # on the closed connection
        assert len(seen) == 2
        await failed.wait()
        assert [type(error) for _, error in seen[1:]] == [ConnectionFailed, ConnectionFailed]
        broker.stop()

    run(scenario())


def test_a_bad_answer_that_somebody_keeps_does_not_keep_who_was_told(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: SILENCE})
        connection = await connect(broker)
        told = asyncio.Event()

        def answered(response, error):
            told.set()

        forgotten = weakref.ref(answered)
        connection.send(ALL_TOPICS, answered)
        del answered
        with pytest.raises(MalformedMessage, match="the next one is 2") as kept:
            connection._on_frame(memoryview(struct.pack(">i", 3)))
        connection._on_closed(kept.value)
        await told.wait()
        await asyncio.sleep(0)  # the loop lets go of the call
        assert forgotten() is None and connection.cause is kept.value
        broker.stop()

    run(scenario())


def test_the_version_is_what_both_sides_know(run):
    async def scenario():
        broker = ScriptedBroker(ranges={18: (0, 4), 3: (0, 5), 12: (5, 3), 0: (3, 13), 10: (50, 60)})
        connection = await connect(broker)
        assert connection.version_for(MetadataRequest) == 5
        assert connection.version_for(MetadataRequest, maximum=4) == 4
        assert connection.version_for(ProduceRequest) == 11  # 12 and 13 mean what this client does not do
        assert connection.version_for(ProduceRequest, maximum=13) == 13
        with pytest.raises(UnsupportedVersion, match=f"{broker.address}.*FindCoordinator.*50 to 60"):
            connection.version_for(FindCoordinatorRequest)
        with pytest.raises(UnsupportedVersion, match="does not offer Heartbeat"):  # its range was nonsense
            await connection.request(HEARTBEAT)
        assert not connection.closed
        await connection.close()
        broker.stop()

    run(scenario())


def test_the_features_a_cluster_has_settled_on_are_told(run):
    async def scenario():
        feature = FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1)
        versions = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features=[feature])
        broker = ScriptedBroker({ApiVersionsRequest: versions})
        connection = await connect(broker)
        assert connection.finalized_features == {"group.version": 1}
        await connection.close()
        broker.stop()

    run(scenario())


def test_a_broker_that_knows_only_an_older_api_versions_is_asked_again(run):
    def only_up_to_2(message, version, correlation_id):
        if version <= 2:
            return ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=3, min_version=0, max_version=1)])
        return refusal(correlation_id, [ApiVersion(api_key=18, min_version=0, max_version=2)])

    def only_0(message, version, correlation_id):
        return ApiVersionsResponse(error_code=0, api_keys=[]) if version == 0 else refusal(correlation_id, [])

    async def scenario():
        for answer, last in ((only_up_to_2, 2), (only_0, 0)):
            broker = ScriptedBroker({ApiVersionsRequest: answer})
            connection = await connect(broker)
            assert broker.versions == [("ApiVersions", 4), ("ApiVersions", last)]
            await connection.close()
            broker.stop()

    run(scenario())


def refusal(correlation_id, apis):
    return b"".join(framing.encode_response(ApiVersionsResponse(error_code=35, api_keys=apis), 0, correlation_id))


def test_a_broker_that_refuses_every_api_versions_is_an_error_not_a_loop(run):
    async def scenario():
        broker = ScriptedBroker({ApiVersionsRequest: lambda message, version, cid: refusal(cid, [])})
        with pytest.raises(ConnectionFailed, match=r"ApiVersions was refused"):
            await connect(broker)
        assert broker.count(ApiVersionsRequest) == 2
        broker.stop()

    run(scenario())


def test_a_timeout_ends_the_connection_and_everybody_is_told_once(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: SILENCE})
        connection = await connect(broker)
        ended = []
        connection.on_closed.append(ended.append)
        patient = connection.submit(HEARTBEAT)
        with pytest.raises(KafkaTimeout) as timeout:
            await connection.request(ALL_TOPICS, timeout=0.05)
        assert str(timeout.value) == f"{broker.address} (node 7): no answer to Metadata v13 within 0.05 s"
        with pytest.raises(ConnectionFailed, match=r"no answer to Heartbeat v4: no answer to Metadata v13 within"):
            await patient
        with pytest.raises(ConnectionFailed):
            await connection.request(ALL_TOPICS)
        with pytest.raises(ConnectionFailed):
            connection.send_only(ALL_TOPICS)
        assert ended == [connection]
        assert connection.closed
        assert connection.in_flight == 0
        broker.stop()

    run(scenario())


def test_a_short_timeout_behind_a_long_one_is_kept(run):
    async def scenario():
        broker = ScriptedBroker()
        connection = await connect(broker)
        long = connection.submit(ALL_TOPICS, timeout=20)
        short = connection.submit(ALL_TOPICS, timeout=0.03)
        with pytest.raises(KafkaTimeout):
            await short
        with pytest.raises(ConnectionFailed):
            await long
        broker.stop()

    run(scenario())


def test_a_request_that_was_given_up_leaves_the_connection_in_order(run):
    async def scenario():
        held = []
        broker = ScriptedBroker({MetadataRequest: lambda message, version, cid: held.append(cid)})
        broker.answers[HeartbeatRequest] = HeartbeatResponse(error_code=0)
        connection = await connect(broker)
        given_up = connection.submit(ALL_TOPICS, version=12)
        await broker.until(lambda: held)
        given_up.cancel()
        after = connection.submit(HEARTBEAT)
        broker.streams[0].send(framing.encode_response(METADATA, 12, held[0]))
        assert (await after).error_code == 0
        await connection.close()
        broker.stop()

    run(scenario())


def test_a_connection_that_ends_tells_who_waits(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: CLOSE})
        connection = await connect(broker)
        with pytest.raises(ConnectionFailed) as error:
            await connection.request(ALL_TOPICS)
        assert (
            str(error.value)
            == f"{broker.address} (node 7): no answer to Metadata v13: the broker closed the connection"
        )
        broker.stop()

    run(scenario())


def test_closing_tells_who_waits(run):
    async def scenario():
        broker = ScriptedBroker()
        connection = await connect(broker)
        waiting = connection.submit(ALL_TOPICS)
        await connection.close()
        await connection.close()
        with pytest.raises(ConnectionFailed, match="closed by this client"):
            await waiting
        broker.stop()

    run(scenario())


@pytest.mark.parametrize("throttle_ms", [-1, 0, 600, 2**31 - 1])
def test_a_throttled_client_keeps_silent_as_long_as_it_was_asked_but_not_for_ever(run, throttle_ms):
    async def scenario():
        slow = MetadataResponse(brokers=[], topics=[], throttle_time_ms=throttle_ms)
        broker = ScriptedBroker({MetadataRequest: slow, HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker, request_timeout_ms=1000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await connection.request(ALL_TOPICS)
        held = [connection.submit(HEARTBEAT) for _ in range(3)]
        if throttle_ms > 0:
            assert 0 < connection.throttled_for < 1.01
            assert broker.count(HeartbeatRequest) == 0
        await asyncio.gather(*held)
        assert loop.time() - began >= min(max(throttle_ms, 0), 1000) / 1000 - 0.002
        await connection.close()
        broker.stop()

    run(scenario())


def test_who_asks_again_when_told_an_answer_keeps_the_silence_that_came_with_it(run):
    async def scenario():
        slow = MetadataResponse(brokers=[], topics=[], throttle_time_ms=60_000)
        broker = ScriptedBroker({MetadataRequest: slow, HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker)
        told = asyncio.get_running_loop().create_future()

        def answered(response, error):
            connection.send(HEARTBEAT, lambda *_: None)
            told.set_result(connection.throttled_for)

        connection.send(ALL_TOPICS, answered)
        assert await asyncio.wait_for(told, 20) > 10  # held back as long as an answer may take
        assert connection.in_flight == 1
        assert broker.count(HeartbeatRequest) == 0
        await connection.close()
        broker.stop()

    run(scenario())


def test_a_request_without_response_is_sent_and_does_not_disturb_the_order(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: METADATA})
        connection = await connect(broker)
        connection.send_only(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]))
        assert (await connection.request(ALL_TOPICS)).cluster_id == "c"
        assert broker.count(ProduceRequest) == 1
        await connection.close()
        broker.stop()

    run(scenario())


def test_what_was_sent_can_be_waited_for(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: MetadataResponse(brokers=[], topics=[], throttle_time_ms=30)})
        connection = await connect(broker)
        await connection.drain()
        await connection.request(ALL_TOPICS)
        connection.send_only(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]))
        assert broker.count(ProduceRequest) == 0
        await connection.drain()
        await broker.until(lambda: broker.count(ProduceRequest))
        await connection.close()
        with pytest.raises(ConnectionFailed):
            await connection.drain()
        broker.stop()

    run(scenario())
