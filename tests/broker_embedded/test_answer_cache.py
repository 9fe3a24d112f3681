"""Cached Metadata responses equal fresh ones, for every client, and are dropped when the metadata change."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controller.image import MetadataImage
from pyclient.broker_embedded.network.answer_cache import AnswerCache, question_in
from pyclient.protocol import framing
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.nodes import node_of
from tests.waiting import until


def frame_of(request: Any, version: int, number: int, client_id: str | None) -> memoryview:
    return memoryview(b"".join(framing.encode_request(request, version, number, client_id)))[4:]


def wanted(topic: str, **options: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], **options)


def test_cached_question_depends_on_the_request_but_not_on_the_client() -> None:
    first = question_in(frame_of(wanted("t"), 9, 1, "a client"))
    assert first == question_in(frame_of(wanted("t"), 9, 2, "another"))
    assert first == question_in(frame_of(wanted("t"), 9, 3, None))
    assert first != question_in(frame_of(wanted("u"), 9, 1, "a client"))
    assert first != question_in(frame_of(wanted("t"), 10, 1, "a client"))
    assert first != question_in(frame_of(wanted("t", allow_auto_topic_creation=False), 9, 1, "a client"))


@pytest.mark.parametrize("version", range(14))
def test_a_kept_answer_is_the_fresh_one(client: Any, connect: Any, broker: Any, topic: str, version: int) -> None:
    answers = []
    for asking in (client, client, connect(broker)):
        sent = asking.send(wanted(topic), version)
        response, correlation_id = asking.receive(MetadataRequest, version)
        assert correlation_id == sent
        answers.append(response)
    assert answers[0] == answers[1] == answers[2]
    assert len(node_of(broker).listeners.clients[0].answer_cache) > 0


def test_an_answer_is_forgotten_when_the_metadata_changes(client: Any, topic: str) -> None:
    def partitions() -> int:
        return len(client.call(wanted(topic), 12).topics[0].partitions)

    assert [partitions(), partitions()] == [2, 2]
    more = CreatePartitionsTopic(name=topic, count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False)
    assert client.call(request, 3).results[0].error_code == 0
    assert [partitions(), partitions()] == [3, 3]
    gone = DeleteTopicState(name=topic, topic_id=ZERO_UUID)
    assert client.call(DeleteTopicsRequest(topics=[gone], timeout_ms=1000), 6).responses[0].error_code == 0
    response = client.call(wanted(topic, allow_auto_topic_creation=False), 12)
    assert response.topics[0].error_code == errors.UnknownTopicOrPartition.code


def test_an_answer_is_forgotten_when_the_controller_changes(request: pytest.FixtureRequest) -> None:
    """The paused controller stays an unfenced broker: no metadata record says that another node is active."""
    # on a busy machine, too, nothing but the pause makes another controller active
    config = {"broker.session.timeout.ms": 600_000, "controller.quorum.fetch.timeout.ms": 60_000}
    with EmbeddedCluster(3, config=config) as cluster:
        paused = until(lambda: cluster.controller_id, "no controller is active")
        assert paused is not None
        others = [broker for broker in cluster.brokers if broker.id != paused]
        other = others[0]
        until(lambda: other.call("GET", "/broker")["controller_id"] == paused, "the broker knows another controller")
        asking = RawClient(other.address)
        request.addfinalizer(asking.close)
        everything = MetadataRequest(topics=None)
        assert [asking.call(everything, 12).controller_id for _ in range(2)] == [paused, paused]
        cluster.pause(paused)
        for each in others:
            each.call("POST", "/time/advance", {"seconds": 61})  # longer than the fetch timeout
        until(
            lambda: other.call("GET", "/broker")["controller_id"] not in (None, paused),
            "the broker has heard of no other controller",
        )
        answer = asking.call(everything, 12)
        assert answer.controller_id in {1, 2, 3} - {paused}
        assert sorted(broker.node_id for broker in answer.brokers) == [1, 2, 3]


def test_a_request_that_makes_a_topic_is_never_answered_from_memory(client: Any) -> None:
    name = f"made-{uuid.uuid4().hex}"
    refused = wanted(name, allow_auto_topic_creation=False)
    for _ in range(2):
        assert client.call(refused, 12).topics[0].error_code == errors.UnknownTopicOrPartition.code
    for _ in range(2):
        assert client.call(wanted(name), 12).topics[0].error_code == 0
    gone = DeleteTopicState(name=name, topic_id=ZERO_UUID)
    assert client.call(DeleteTopicsRequest(topics=[gone], timeout_ms=1000), 6).responses[0].error_code == 0
    for _ in range(2):
        assert client.call(wanted(name), 12).topics[0].error_code == 0  # made again


def test_pipelined_requests_of_both_kinds_keep_their_order(client: Any, topic: str) -> None:
    requests = [wanted(topic), MetadataRequest(topics=[]), wanted("no-such-topic", allow_auto_topic_creation=False)]
    sent = [client.send(requests[number % 3], 9) for number in range(60)]
    assert [client.receive(MetadataRequest, 9)[1] for _ in sent] == sent


def test_the_memory_is_bounded() -> None:
    cache = AnswerCache(MetadataImage())
    response = MetadataResponse(brokers=[], topics=[])
    for number in range(100):
        cache.keep(frame_of(wanted(f"t{number}"), 9, 1, None), response, [bytes(100_000)])
    assert 0 < len(cache) <= 42
    before = len(cache)
    cache.keep(frame_of(wanted("huge"), 9, 1, None), response, [bytes(2 << 20)])
    assert len(cache) == before


def test_frames_that_end_early_are_not_looked_up() -> None:
    cache = AnswerCache(MetadataImage())
    whole = frame_of(wanted("t"), 9, 1, "client")
    for size in range(len(whole)):
        assert cache.answer(whole[:size]) is None


def test_answer_cache_counts_the_bytes_of_requests_too() -> None:
    """Answers of no topics to long requests would fill the memory with the requests."""
    cache = AnswerCache(MetadataImage())
    response = MetadataResponse(brokers=[], topics=[])
    parts = framing.encode_response(response, 9, 1)
    for number in range(300):
        long = MetadataRequest(topics=[MetadataRequestTopic(name=f"{number}".ljust(30_000)) for _ in range(10)])
        cache.keep(frame_of(long, 9, number, None), response, parts)
        assert len(cache) * 300_000 <= 4 << 20
    longest = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 30_000) for _ in range(40)])
    before = len(cache)
    cache.keep(frame_of(longest, 9, 1, None), response, parts)
    assert len(cache) == before
