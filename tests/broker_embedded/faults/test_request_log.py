"""The request log has the API, client, topics, duration and error of each request; it is off by default."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import ClientError, ConfigError, KafkaTimeout
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.nodes import node_of

ASK = MetadataRequest(topics=[])


@pytest.fixture(autouse=True)
def quiet(broker: EmbeddedCluster) -> Iterator[None]:
    yield
    broker.requests.stop()
    broker.faults.clear()


def test_a_request_is_logged_with_what_became_of_it(
    broker: Any, client: Any, topic: str, produce: Any, batch: Any
) -> None:
    client.call(FindCoordinatorRequest(key="g"), 1)  # without it a Heartbeat is answered with NOT_COORDINATOR
    with broker.requests.start() as requests:
        broker.faults.fail("Produce", errors.NotLeaderOrFollower)
        produce(client, topic, batch(b"a"), partition=1)
        produce(client, topic, batch(b"a"))
        client.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
        first, second, beat = requests
    assert (first.api, first.version, first.client_id, first.client_host) == ("Produce", 9, "raw", "127.0.0.1")
    assert (first.topics, first.errors, first.answered) == ({topic: [1]}, ["NotLeaderOrFollower"], True)
    assert (second.topics, second.errors) == ({topic: [0]}, [])
    assert (beat.api, beat.groups, beat.errors, beat.topics) == ("Heartbeat", ["g"], ["UnknownMemberId"], {})
    assert [each.correlation_id for each in (first, second, beat)] == list(
        range(client.correlation_id - 2, client.correlation_id + 1)
    )
    assert all(each.duration_ms >= 0 and each.time_ms > 1_700_000_000_000 for each in (first, second, beat))
    with pytest.raises(ClientError, match="the request log is off"):
        broker.requests.query()
    assert node_of(broker).interceptor is None


def test_the_log_is_searched(broker: Any, client: Any, topic: str, produce: Any, batch: Any) -> None:
    requests = broker.requests.start()
    produce(client, topic, batch(b"a"), partition=1)
    produce(client, topic, batch(b"a"), acks=0)
    client.call(ASK, 1)
    assert len(requests.query()) == 3
    assert [each.api for each in requests.query("Metadata")] == ["Metadata"]
    assert [each.api for each in requests.query(3)] == ["Metadata"]
    assert [each.topics for each in requests.query("Produce", partition=1)] == [{topic: [1]}]
    assert len(requests.query(topic=f"{topic[:5]}*", client="ra*")) == 2
    assert requests.query(topic="another", client="raw") == []
    assert requests.query(error=errors.NotLeaderOrFollower) == []
    assert len(requests.query(answered=True)) == 3
    requests.clear()
    assert requests.query() == []
    with pytest.raises(ConfigError, match="did you mean topic"):
        requests.query(topics="x")
    with pytest.raises(ConfigError, match="did you mean Metadata"):
        requests.query("Metadat")


def test_the_log_forgets_the_oldest(broker: Any, client: Any) -> None:
    requests = broker.requests.start(limit=3)
    for _ in range(5):
        client.call(ASK, 1)
    assert [each.number for each in requests] == [3, 4, 5]


def test_a_request_is_waited_for(broker: Any, client: Any) -> None:
    requests = broker.requests.start()
    client.call(ASK, 1)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(requests.wait_request("Metadata", count=2)))
    waiting.start()
    sent = client.send(ASK, 1)
    waiting.join(30)
    assert [each.correlation_id for each in found] == [sent]
    with pytest.raises(KafkaTimeout, match=r"1 requests \(api=Produce\) are waited for, 0 came"):
        requests.wait_request("Produce", timeout=0.05)


def test_a_request_that_waits_is_there_and_not_answered(
    broker: Any, client: Any, topic: str, fetch_request: Any, connect: Any, produce: Any, batch: Any
) -> None:
    requests = broker.requests.start()
    client.send(fetch_request(topic, {0: 0}, max_wait_ms=60_000), 11)
    waiting = requests.wait_request("Fetch", answered=False)
    assert (waiting.duration_ms, waiting.answered, waiting.topics) == (None, False, {topic: [0]})
    produce(connect(broker), topic, batch(b"a"))
    assert requests.wait_request("Fetch", answered=True).duration_ms >= 0


def test_a_request_whose_answer_was_lost_is_not_answered(broker: Any, connect: Any) -> None:
    requests = broker.requests.start()
    broker.faults.disconnect("Metadata")
    client = connect(broker)
    client.send(ASK, 1)
    assert client.is_closed()
    [lost] = requests.query("Metadata", answered=False)
    assert lost.duration_ms is not None


def test_the_log_goes_on_when_the_broker_is_started_again(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        requests = cluster.requests.start()
        cluster.brokers[0].kill()
        cluster.brokers[0].start()
        connect(cluster).call(ASK, 1)
        assert [each.api for each in requests] == ["Metadata"]
