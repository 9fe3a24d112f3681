"""Produce requests that are like one before them but for the batch: answered as all others, and only where they are."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.network.produce_template import ProduceTemplate, ProduceTemplates
from pyclient.protocol import framing
from pyclient.protocol.codec import decode
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import decode_key_values, iter_batches
from tests.broker_embedded.nodes import node_of

VERSIONS = range(3, 14)


def request_of(topic: str, *batches: bytes | None, topic_id: uuid.UUID | None = None, **options: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
    named = TopicProduceData(name=topic, partition_data=data)
    if topic_id is not None:
        named = TopicProduceData(topic_id=topic_id, partition_data=data)
    return ProduceRequest(**{"acks": -1, "timeout_ms": 1000, "topic_data": [named], **options})


def kept(broker: Any) -> int:
    """Return the number of request templates that the broker has kept for the youngest connection."""
    return max(node_of(broker).connections.items())[1].produce_templates


def partition_of(response: Any) -> Any:
    [topic] = response.responses
    [partition] = topic.partition_responses
    return partition


def values_of(client: Any, fetch_request: Any, topic: str) -> list[bytes | None]:
    [found] = client.call(fetch_request(topic, {0: 0}), 11).responses
    records = found.partitions[0].records
    return [
        value
        for position, header in iter_batches(records)
        for _, _, _, value in decode_key_values(records, position, header)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_fifth_answer_is_like_the_first_in_every_version(
    broker: Any, client: Any, topic: str, batch: Any, fetch_request: Any, version: int
) -> None:
    topic_id = None
    if version >= 13:
        described = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        topic_id = described.topics[0].topic_id
    answers = []
    for number in range(5):
        request = request_of(topic, batch(b"%d" % number, b"x" * 300 * number), topic_id=topic_id)
        answers.append(client.call(request, version))
    assert kept(broker) == (1 if version >= 7 else 0)
    for number, answer in enumerate(answers):
        assert partition_of(answer).base_offset == 2 * number
        partition_of(answer).base_offset = 0
        assert answer == answers[0]
    assert values_of(client, fetch_request, topic)[::2] == [b"%d" % number for number in range(5)]


def test_a_connection_that_sends_one_request_keeps_nothing(broker: Any, client: Any, topic: str, batch: Any) -> None:
    assert partition_of(client.call(request_of(topic, batch(b"a")), 9)).error_code == 0
    assert kept(broker) == 0


@pytest.mark.parametrize("version", [8, 11])
def test_invalid_batch_gets_the_same_error_as_a_first_one(
    connect: Any, broker: Any, client: Any, topic: str, batch: Any, version: int
) -> None:
    good = batch(b"value")
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    wrong = [
        flipped, good[:40], good + good, b"x", batch(b"x" * 1_048_588), batch(b"value", control=True), None, b"",
        batch(b"value", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
    ]  # fmt: skip
    for _ in range(3):
        assert partition_of(client.call(request_of(topic, good), version)).error_code == 0
    assert kept(broker) == 1
    for records in wrong:
        request = request_of(topic, records)
        answer = client.call(request, version)
        assert partition_of(answer).error_code != 0
        assert answer == connect(broker).call(request, version)
    assert partition_of(client.call(request_of(topic, good), version)).base_offset == 3


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_that_cannot_be_are_refused_again_and_again(client: Any, topic: str, batch: Any, acks: int) -> None:
    for _ in range(4):
        answer = partition_of(client.call(request_of(topic, batch(b"a"), acks=acks), 9))
        assert answer.error_code == errors.InvalidRequiredAcks.code


def test_requests_of_other_kinds_in_between_are_served_as_ever(
    broker: Any, client: Any, topic: str, batch: Any, fetch_request: Any
) -> None:
    expected = 0
    for number in range(4):
        assert partition_of(client.call(request_of(topic, batch(b"a")), 9)).base_offset == expected
        client.send(request_of(topic, batch(b"unanswered"), acks=0), 9)
        [both] = client.call(request_of(topic, batch(b"b"), batch(b"b")), 9).responses
        assert [one.base_offset for one in both.partition_responses] == [expected + 2, number]
        assert partition_of(client.call(request_of(topic, batch(b"c"), timeout_ms=5), 9)).base_offset == expected + 3
        described = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)]
        )
        assert client.call(described, 4).results[0].error_code == 0
        expected += 4
    assert values_of(client, fetch_request, topic) == [b"a", b"unanswered", b"b", b"c"] * 4
    assert kept(broker) == 2


def test_recreated_topic_is_another_topic(client: Any, topic: str, batch: Any) -> None:
    made = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    for _ in range(3):
        client.call(request_of(topic, batch(b"a")), 9)
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic, topic_id=ZERO_UUID)], timeout_ms=1000)
    assert client.call(gone, 6).responses[0].error_code == 0
    answer = partition_of(client.call(request_of(topic, batch(b"a")), 9))
    assert answer.error_code == errors.UnknownTopicOrPartition.code
    assert client.call(made, 9).topics[0].error_code == 0
    assert partition_of(client.call(request_of(topic, batch(b"a")), 9)).base_offset == 0


def test_a_fault_meets_requests_that_are_kept(broker: Any, client: Any, topic: str, batch: Any) -> None:
    for _ in range(3):
        assert partition_of(client.call(request_of(topic, batch(b"a")), 9)).error_code == 0
    broker.faults.fail("Produce", errors.NotEnoughReplicas, topic=topic)
    answer = partition_of(client.call(request_of(topic, batch(b"a")), 9))
    assert answer.error_code == errors.NotEnoughReplicas.code
    assert partition_of(client.call(request_of(topic, batch(b"a")), 9)).base_offset == 3


def frame_of(request: ProduceRequest, version: int, correlation_id: int = 7) -> memoryview:
    return memoryview(b"".join(framing.encode_request(request, version, correlation_id, "client")))[4:]  # type: ignore[arg-type]


def read(frame: memoryview) -> tuple[framing.RequestHeader, ProduceRequest]:
    header = framing.decode_request_header(frame)
    return header, decode(ProduceRequest, header.api_version, frame, header.body_offset)


def template_of(frame: memoryview) -> ProduceTemplate:
    return ProduceTemplate(frame, *read(frame))


@pytest.mark.parametrize("version", [5, 8, 9, 13])
@pytest.mark.parametrize("size", [1, 126, 127, 128, 16_382, 16_383, 70_000])
def test_the_batch_is_found_whatever_its_size(version: int, size: int) -> None:
    template = template_of(frame_of(request_of("t" if version < 13 else "", b"the first"), version))
    found = template.records(frame_of(request_of("t" if version < 13 else "", b"x" * size), version, 9))
    assert found is not None
    assert bytes(found) == b"x" * size


@pytest.mark.parametrize("version", [8, 11])
def test_cut_or_overlong_request_is_not_taken_for_a_whole_one(version: int) -> None:
    frame = frame_of(request_of("t", b"some records"), version)
    template = template_of(frame)
    assert template.records(frame) == b"some records"
    for end in range(len(template.front), len(frame)):
        assert template.records(frame[:end]) is None
    for more in (b"\0", b"\0\0\0\0"):
        assert template.records(memoryview(bytes(frame) + more)) is None


@pytest.mark.parametrize(
    "length", [b"\xff\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\0", b"\x80\x80\x80\x80\x10"]
)
def test_impossible_length_is_left_to_the_general_path(length: bytes) -> None:
    frame = frame_of(request_of("t", b"some records"), 9)
    template = template_of(frame)
    assert template.records(memoryview(template.front + length + b"some records\0\0\0")) is None


def test_tagged_fields_that_are_unknown_keep_a_request_from_being_kept() -> None:
    frame = frame_of(request_of("t", b"some records"), 9)
    tagged = memoryview(bytes(frame[:-1]) + b"\x01\x63\x01x")
    header, request = read(tagged)
    templates = ProduceTemplates()
    for _ in range(3):
        templates.keep(tagged, header, request)
    assert len(templates) == 0
    templates.keep(frame, header, request)
    assert len(templates) == 1


def test_requests_of_many_topics_make_each_other_room_after_a_while() -> None:
    templates = ProduceTemplates()
    sizes = []
    for name in ("a", "b", "c", *["longer"] * 40, "d"):
        frame = frame_of(request_of(name, b"some records"), 9)
        templates.keep(frame, *read(frame))
        sizes.append(len(templates))
    assert sizes[:4] == [0, 1, 2, 2]
    assert sizes[-2:] == [1, 1]


def test_kept_template_does_not_hold_batches() -> None:
    data = bytearray(frame_of(request_of("t", b"some records"), 9))
    frame = memoryview(data)
    templates = ProduceTemplates()
    for _ in range(3):
        templates.keep(frame, *read(frame))
    assert len(templates) == 1
    frame.release()
    data.append(0)  # a BufferError as long as there is a view of it
