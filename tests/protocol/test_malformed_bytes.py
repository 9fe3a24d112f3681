"""Malformed bytes are refused, and tagged fields are treated as in Kafka."""

from __future__ import annotations

import uuid

import pytest

from pyclient.errors import MalformedMessage, TruncatedMessage
from pyclient.protocol import codec
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse
from pyclient.protocol.messages.group_log import OffsetCommitValue
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.metadata import MetadataRequest

# --- malformed bytes --------------------------------------------------------------------------------------------
from tests.protocol.small_requests import fetch_request, heartbeat


def test_truncated_message_error_names_claimed_and_remaining_bytes() -> None:
    encoded = codec.encode(heartbeat(), 0)
    with pytest.raises(
        TruncatedMessage, match="HeartbeatRequest v0 ends early: group_id claims 7, and 3 bytes are left"
    ):
        codec.decode(HeartbeatRequest, 0, encoded[:5])
    with pytest.raises(TruncatedMessage, match="HeartbeatRequest v0 ends early: more is needed at byte 9 of 11"):
        codec.decode(HeartbeatRequest, 0, encoded[:11])


def test_null_that_is_not_allowed_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="HeartbeatRequest v0: group_id: a length of -1 is not possible"):
        codec.decode(HeartbeatRequest, 0, b"\xff\xff" + bytes(20))
    with pytest.raises(MalformedMessage, match="HeartbeatRequest v4: group_id: a length of -1 is not possible"):
        codec.decode(HeartbeatRequest, 4, bytes(20))


def test_negative_length_other_than_null_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="MetadataRequest v1: topics: a length of -2 is not possible"):
        codec.decode(MetadataRequest, 1, b"\xff\xff\xff\xfe")


def test_string_longer_than_kafka_writes_is_refused() -> None:
    with pytest.raises(MalformedMessage, match=r"HeartbeatRequest v4: group_id: a length of 3.* is not possible"):
        codec.decode(HeartbeatRequest, 4, b"\x82\x80\x02" + bytes(40_000))


@pytest.mark.parametrize("raw", [b"\xff\xfe\xfd", b"\xed\xa0\x80", b"\xc0\x80\x80"])
def test_string_that_is_not_strict_utf_8_is_refused(raw: bytes) -> None:
    encoded = codec.encode(heartbeat(group_id="abc"), 0).replace(b"abc", raw)
    with pytest.raises(MalformedMessage, match="HeartbeatRequest v0: the string at byte 2 is not UTF-8"):
        codec.decode(HeartbeatRequest, 0, encoded)


def test_varint_length_of_six_bytes_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="HeartbeatRequest v4: a varint is longer than five bytes"):
        codec.decode(HeartbeatRequest, 4, b"\xff\xff\xff\xff\xff\x01" + bytes(20))


# --- tagged fields ----------------------------------------------------------------------------------------------


def tagged(*fields: bytes) -> bytes:
    """Return a v3 ApiVersions request with the given tagged fields after its two empty strings."""
    return b"\x01\x01" + bytes([len(fields)]) + b"".join(fields)


def test_unknown_tagged_fields_are_skipped() -> None:
    expected = ApiVersionsRequest(client_software_name="", client_software_version="")
    assert codec.decode(ApiVersionsRequest, 3, tagged(b"\x00\x02ab", b"\x85\x01\x00")) == expected


@pytest.mark.parametrize("fields", [(b"\x05\x00", b"\x04\x00"), (b"\x05\x00", b"\x05\x00")])
def test_tags_must_ascend(fields: tuple[bytes, ...]) -> None:
    with pytest.raises(MalformedMessage, match=r"ApiVersionsRequest v3: tagged field . comes after 5"):
        codec.decode(ApiVersionsRequest, 3, tagged(*fields))


def test_tagged_field_longer_than_message_is_refused() -> None:
    with pytest.raises(TruncatedMessage, match="tagged field 5 claims 9, and 1 bytes are left"):
        codec.decode(ApiVersionsRequest, 3, tagged(b"\x05\x09x"))


def test_more_than_256_tagged_fields_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="ApiVersionsRequest v3: 257 tagged fields"):
        codec.decode(ApiVersionsRequest, 3, b"\x01\x01\x81\x02" + bytes(600))


def test_tagged_field_with_wrong_length_is_refused() -> None:
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=2, topic_id=uuid.UUID(int=7))
    encoded = codec.encode(value, 4)
    start = encoded.rindex(b"\x01\x00\x10")
    longer = encoded[:start] + b"\x01\x00\x11" + encoded[start + 3 :] + b"x"
    with pytest.raises(MalformedMessage, match=r"OffsetCommitValue v4: topic_id: .* the 17 bytes it claims"):
        codec.decode(OffsetCommitValue, 4, longer)


def test_tagged_fields_at_default_are_omitted_others_ordered_by_tag() -> None:
    assert codec.encode(fetch_request(topics=[]), 15)[-1:] == b"\0"
    request = fetch_request(topics=[], cluster_id="c")
    request.replica_state = type(request.replica_state)(replica_id=2)
    assert codec.encode(request, 15).endswith(
        b"\x02"  # two tagged fields
        b"\x00\x02\x02c"  # 0: cluster id
        b"\x01\x0d\x00\x00\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff\x00"  # 1: replica state
    )


def test_part_may_be_null_where_kafka_allows_it() -> None:
    without = ConsumerGroupHeartbeatResponse(throttle_time_ms=0, error_code=0, member_epoch=1, heartbeat_interval_ms=5)
    assert codec.encode(without, 0)[-2:] == b"\xff\0"
    with_one = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        member_epoch=1,
        heartbeat_interval_ms=5,
        assignment=Assignment(topic_partitions=[]),
    )
    assert codec.encode(with_one, 0)[-4:] == b"\x01\x01\0\0"
    for message in (without, with_one):
        assert codec.decode(ConsumerGroupHeartbeatResponse, 0, codec.encode(message, 0)) == message
