"""ProduceTemplate: its requests and responses equal those of the general codec, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.producer.produce_response import PartitionAnswer
from pyclient.producer.produce_template import ProduceTemplate
from pyclient.protocol.framing import decode_response, encode_request, encode_response
from pyclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = range(ProduceRequest.versions[0], 12)  # the producer asks for no higher one

names = st.text("abcXYZ019._-", min_size=1, max_size=249)
versions = st.sampled_from(VERSIONS)
partitions = st.integers(0, 2**31 - 1)
numbers = st.integers(-(2**63), 2**63 - 1)


def template(topic: str, partition: int, version: int, **given: Any) -> ProduceTemplate:
    return ProduceTemplate(topic, partition, version, **{"client_id": "c", "acks": -1, "timeout_ms": 30_000} | given)


def joined(parts: list[Any]) -> bytes:
    return b"".join(parts)


def response(topic: str, partition: int, **fields: Any) -> ProduceResponse:
    answer = PartitionProduceResponse(**{"index": partition, "error_code": 0, "base_offset": 7} | fields)
    return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[answer])])


def framed(message: ProduceResponse, version: int, correlation_id: int = 5) -> memoryview:
    return memoryview(joined(encode_response(message, version, correlation_id))[4:])


@given(
    topic=names,
    partition=partitions,
    version=versions,
    client_id=st.none() | st.text(max_size=40),
    acks=st.sampled_from([-1, 1]),
    timeout_ms=st.integers(1, 2**31 - 1),
    size=st.sampled_from([1, 61, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_151]) | st.integers(1, 5000),
    correlation_id=st.integers(0, 2**31 - 1),
)
def test_request_equals_that_of_the_codec(
    topic: str, partition: int, version: int, client_id: str | None, acks: int, timeout_ms: int, size: int,
    correlation_id: int,
) -> None:  # fmt: skip
    batch = memoryview(bytes(size))
    made = template(topic, partition, version, client_id=client_id, acks=acks, timeout_ms=timeout_ms)
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    expected = joined(encode_request(request, version, correlation_id, client_id))
    parts = made.request(batch, correlation_id)
    assert joined(parts) == expected
    assert any(part is batch for part in parts)  # by reference: a large batch is not copied


@given(
    topic=names, partition=partitions, version=versions, base=numbers, time=numbers, start=numbers,
    correlation_id=st.integers(0, 2**31 - 1),
)  # fmt: skip
def test_plain_response_is_decoded_as_by_the_codec(
    topic: str, partition: int, version: int, base: int, time: int, start: int, correlation_id: int
) -> None:
    plain = response(topic, partition, base_offset=base, log_append_time_ms=time, log_start_offset=start)
    frame = framed(plain, version, correlation_id)
    [read] = decode_response(ProduceResponse, version, frame)[1].responses[0].partition_responses
    answer = template(topic, partition, version).answer(frame)
    assert answer == PartitionAnswer(0, read.base_offset, read.log_append_time_ms)


def not_plain(version: int) -> dict[str, ProduceResponse]:
    """Return answers that say more than that the batch was written; each has the plain one's length or another."""
    cases = {
        "error": response("t", 3, error_code=7),
        "another partition": response("t", 4),
        "another topic": response("u", 3),
        "throttled": response("t", 3),
        "no topic": ProduceResponse(responses=[]),
    }
    cases["throttled"].throttle_time_ms = 250
    if version >= 8:
        cases["record errors"] = response(
            "t", 3, error_code=87, record_errors=[BatchIndexAndErrorMessage(batch_index=0)], error_message="no"
        )
    if version >= 10:
        cases["leader"] = response("t", 3, error_code=6, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=9))
        cases["endpoints"] = response("t", 3)
        cases["endpoints"].node_endpoints = [NodeEndpoint(node_id=2, host="h", port=9092)]
    return cases


@pytest.mark.parametrize("version", VERSIONS)
def test_other_responses_are_left_to_the_codec(version: int) -> None:
    made = template("t", 3, version)
    assert made.answer(framed(response("t", 3), version)) == PartitionAnswer(0, 7, -1)
    for name, message in not_plain(version).items():
        assert made.answer(framed(message, version)) is None, name


@pytest.mark.parametrize("version", VERSIONS)
def test_shortened_or_extended_responses_are_left_to_the_codec(version: int) -> None:
    made = template("t", 3, version)
    whole = framed(response("t", 3), version)
    for size in range(len(whole)):
        assert made.answer(whole[:size]) is None
    assert made.answer(memoryview(bytes(whole) + b"\0")) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_changed_byte_is_noticed_or_changes_a_number_only(version: int) -> None:
    made = template("t", 3, version)
    whole = bytes(framed(response("t", 3), version))
    for index in range(4, len(whole)):  # the connection has compared the correlation id
        changed = memoryview(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        answer = made.answer(changed)
        if answer is not None:
            [read] = decode_response(ProduceResponse, version, changed)[1].responses[0].partition_responses
            assert answer == PartitionAnswer(read.error_code, read.base_offset, read.log_append_time_ms)
