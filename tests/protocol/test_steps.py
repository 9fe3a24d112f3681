"""Encoding and decoding in steps gives the same bytes and values, with pauses in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from protocol_samples import all_versions, filled, label, minimal

from pyclient.errors import MalformedMessage, ProtocolError, TruncatedMessage
from pyclient.protocol import codec, framing
from pyclient.protocol.encoding import compile_encoder
from pyclient.protocol.fields import Message
from pyclient.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pyclient.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

T = TypeVar("T")
EVERY_VERSION = [pytest.param(cls, version, id=label(cls, version)) for cls, version in all_versions()]


def finished(steps: Generator[None, None, T]) -> tuple[T, int]:
    """Run the steps to the end; return their result and the number of pauses."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_steps_give_same_result_as_one_call(cls: type[Message], version: int) -> None:
    for message in (filled(cls, version), minimal(cls, version)):
        encoded = codec.encode(message, version)
        parts, _ = finished(codec.encoder_in_steps(cls, version)(message))
        assert b"".join(parts) == encoded
        decoded, _ = finished(codec.decoder_in_steps(cls, version)(memoryview(b"front" + encoded), 5))
        assert decoded == message
        for size in range(len(encoded)):
            with pytest.raises((TruncatedMessage, MalformedMessage)):
                finished(codec.decoder_in_steps(cls, version)(encoded[:size]))


def offsets(count: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])


def test_steps_have_few_items_each() -> None:
    message = offsets(10_000)
    parts, pauses = finished(codec.encoder_in_steps(ListOffsetsRequest, 6)(message))
    assert pauses > 300
    assert max(map(len, parts)) < 100_000  # no last step that joins all parts
    decoded, pauses = finished(codec.decoder_in_steps(ListOffsetsRequest, 6)(b"".join(parts)))
    assert pauses > 300
    assert decoded == message


def test_items_of_inner_arrays_count_as_well() -> None:
    message = ListOffsetsRequest(replica_id=-1, topics=offsets(20).topics * 100)
    _, pauses = finished(codec.decoder_in_steps(ListOffsetsRequest, 6)(codec.encode(message, 6)))
    assert pauses >= 60


def test_long_arrays_of_numbers_are_read_in_steps() -> None:
    message = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=list(range(100_000)))])
    decoded, pauses = finished(codec.decoder_in_steps(ElectLeadersRequest, 2)(codec.encode(message, 2)))
    assert decoded == message
    assert pauses > 20


def test_malformed_message_raises_same_error_in_steps() -> None:
    encoded = codec.encode(offsets(1000), 6)
    for broken in (encoded[:-3], encoded + b"\0"):
        with pytest.raises(ProtocolError) as at_once:
            codec.decode(ListOffsetsRequest, 6, broken)
        with pytest.raises(ProtocolError) as in_steps:
            finished(codec.decoder_in_steps(ListOffsetsRequest, 6)(broken))
        assert str(in_steps.value) == str(at_once.value)


def test_record_data_is_a_separate_part_in_steps() -> None:
    records = bytearray(b"records")
    data = PartitionData(partition_index=0, error_code=0, high_watermark=1, aborted_transactions=[], records=records)
    topic = FetchableTopicResponse(topic="t", partitions=[data])
    response = FetchResponse(responses=[topic])
    parts: list[Any] = finished(framing.encode_response_in_steps(response, 11, 7))[0]
    assert any(part is records for part in parts)
    assert b"".join(parts) == b"".join(framing.encode_response(response, 11, 7))  # type: ignore[arg-type]


def test_message_with_too_many_items_is_refused_in_steps() -> None:
    numbers = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0] * 1_000_001)])
    with pytest.raises(MalformedMessage, match="ElectLeadersRequest v2 has too many items: more than 1000000"):
        finished(codec.decoder_in_steps(ElectLeadersRequest, 2)(codec.encode(numbers, 2)))
    names = ListGroupsRequest(states_filter=[""] * 1_000_064)
    with pytest.raises(MalformedMessage, match="ListGroupsRequest v5 has too many items"):
        finished(codec.decoder_in_steps(ListGroupsRequest, 5)(codec.encode(names, 5)))


def test_message_with_too_many_bytes_is_refused_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyclient.protocol.encoding.MOST_BYTES", 50_000)
    steps = compile_encoder(ListOffsetsRequest, 6, in_steps=True)(offsets(10_000))
    with pytest.raises(MalformedMessage, match="ListOffsetsRequest v6 would have more than 50000 bytes"):
        finished(steps)
