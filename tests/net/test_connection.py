"""One connection: pipelining, versions, timeouts, throttling, and its end."""

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


def test_pipelined_requests_get_their_own_responses(run):
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


def test_callback_runs_in_iteration_that_received_the_response(run, caplog):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: METADATA, HeartbeatRequest: CLOSE})
        connection = await connect(broker)
        succeeded, failed = asyncio.Event(), asyncio.Event()
        seen = []

        def on_response(response, error):
            seen.append((response, error))
            (failed if error else succeeded).set()
            if response is not None:
                raise ArithmeticError("in the caller's own code")

        connection.send(ALL_TOPICS, on_response)
        await succeeded.wait()
        assert seen[0][0].cluster_id == "c" and seen[0][1] is None
        assert not connection.closed and "in the caller's own code" in caplog.text
        connection.send(HEARTBEAT, on_response)
        await failed.wait()
        failed.clear()
        connection.send(HEARTBEAT, on_response)  # on the closed connection
        assert len(seen) == 2
        await failed.wait()
        assert [type(error) for _, error in seen[1:]] == [ConnectionFailed, ConnectionFailed]
        broker.stop()

    run(scenario())


def test_error_of_invalid_response_keeps_no_reference_to_callback(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: SILENCE})
        connection = await connect(broker)
        succeeded = asyncio.Event()

        def on_response(response, error):
            succeeded.set()

        reference = weakref.ref(on_response)
        connection.send(ALL_TOPICS, on_response)
        del on_response
        with pytest.raises(MalformedMessage, match="the next one is 2") as kept:
            connection._on_frame(memoryview(struct.pack(">i", 3)))
        connection._on_closed(kept.value)
        await succeeded.wait()
        await asyncio.sleep(0)  # the loop releases the callback
        assert reference() is None and connection.cause is kept.value
        broker.stop()

    run(scenario())


def test_version_is_highest_that_both_sides_support(run):
    async def scenario():
        broker = ScriptedBroker(ranges={18: (0, 4), 3: (0, 5), 12: (5, 3), 0: (3, 13), 10: (50, 60)})
        connection = await connect(broker)
        assert connection.version_for(MetadataRequest) == 5
        assert connection.version_for(MetadataRequest, maximum=4) == 4
        assert connection.version_for(ProduceRequest) == 11  # 12 and 13 need features that this client does not have
        assert connection.version_for(ProduceRequest, maximum=13) == 13
        with pytest.raises(UnsupportedVersion, match=f"{broker.address}.*FindCoordinator.*50 to 60"):
            connection.version_for(FindCoordinatorRequest)
        with pytest.raises(UnsupportedVersion, match="does not offer Heartbeat"):  # its range was invalid
            await connection.request(HEARTBEAT)
        assert not connection.closed
        await connection.close()
        broker.stop()

    run(scenario())


def test_finalized_features_are_available_after_connecting(run):
    async def scenario():
        feature = FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1)
        versions = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features=[feature])
        broker = ScriptedBroker({ApiVersionsRequest: versions})
        connection = await connect(broker)
        assert connection.finalized_features == {"group.version": 1}
        await connection.close()
        broker.stop()

    run(scenario())


def test_api_versions_falls_back_to_version_of_older_broker(run):
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


def test_api_versions_rejected_in_every_version_is_an_error(run):
    async def scenario():
        broker = ScriptedBroker({ApiVersionsRequest: lambda message, version, cid: refusal(cid, [])})
        with pytest.raises(ConnectionFailed, match=r"ApiVersions was refused"):
            await connect(broker)
        assert broker.count(ApiVersionsRequest) == 2
        broker.stop()

    run(scenario())


def test_timeout_ends_connection_and_fails_each_request_once(run):
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


def test_short_timeout_after_longer_one_is_kept(run):
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


def test_cancelled_request_leaves_response_order_intact(run):
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


def test_lost_connection_fails_requests_in_flight(run):
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


def test_closing_fails_requests_in_flight(run):
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


@pytest.mark.parametrize("throttle_ms", [-1, 0, 2_500, 2**31 - 1])
def test_throttled_requests_are_held_at_most_for_request_timeout(run, throttle_ms):
    async def scenario():
        slow = MetadataResponse(brokers=[], topics=[], throttle_time_ms=throttle_ms)
        broker = ScriptedBroker({MetadataRequest: slow, HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker, request_timeout_ms=3000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await connection.request(ALL_TOPICS)
        held = [connection.submit(HEARTBEAT) for _ in range(3)]
        if throttle_ms > 0:
            assert 0 < connection.throttled_for < 3.01
            assert broker.count(HeartbeatRequest) == 0
        await asyncio.gather(*held)
        assert loop.time() - began >= min(max(throttle_ms, 0), 3000) / 1000 - 0.002
        await connection.close()
        broker.stop()

    run(scenario())


def test_request_from_callback_is_held_by_throttle_of_its_response(run):
    async def scenario():
        slow = MetadataResponse(brokers=[], topics=[], throttle_time_ms=60_000)
        broker = ScriptedBroker({MetadataRequest: slow, HeartbeatRequest: HeartbeatResponse(error_code=0)})
        connection = await connect(broker)
        succeeded = asyncio.get_running_loop().create_future()

        def on_response(response, error):
            connection.send(HEARTBEAT, lambda *_: None)
            succeeded.set_result(connection.throttled_for)

        connection.send(ALL_TOPICS, on_response)
        assert await asyncio.wait_for(succeeded, 20) > 10  # at most the request timeout
        assert connection.in_flight == 1
        assert broker.count(HeartbeatRequest) == 0
        await connection.close()
        broker.stop()

    run(scenario())


def test_request_without_response_leaves_response_order_intact(run):
    async def scenario():
        broker = ScriptedBroker({MetadataRequest: METADATA})
        connection = await connect(broker)
        connection.send_only(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]))
        assert (await connection.request(ALL_TOPICS)).cluster_id == "c"
        assert broker.count(ProduceRequest) == 1
        await connection.close()
        broker.stop()

    run(scenario())


def test_drain_waits_until_everything_is_written(run):
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
