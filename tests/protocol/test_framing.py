"""Request and response frames: headers, and the exceptions for ApiVersions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import MalformedMessage, ProtocolError, TruncatedMessage
from pyclient.protocol import codec, framing
from pyclient.protocol.messages import headers
from pyclient.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pyclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pyclient.protocol.versions import UnknownApi

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def frame_of(parts: list[object]) -> bytes:
    """Check the frame's length and return the frame without it."""
    joined = b"".join(parts)  # type: ignore[arg-type]
    [size] = struct.unpack_from(">i", joined)
    assert size == len(joined) - 4
    return joined[4:]


def test_request_header_of_old_version_has_no_tags() -> None:
    assert frame_of(framing.encode_request(HEARTBEAT, 3, 77, "me")) == (
        b"\x00\x0c\x00\x03\x00\x00\x00\x4d\x00\x02me" + codec.encode(HEARTBEAT, 3)
    )


def test_request_header_of_flexible_version_has_16_bit_client_id_length() -> None:
    assert frame_of(framing.encode_request(HEARTBEAT, 4, 77, "me")) == (
        b"\x00\x0c\x00\x04\x00\x00\x00\x4d\x00\x02me\x00" + codec.encode(HEARTBEAT, 4)
    )


def test_request_without_client_id_has_a_null_client_id() -> None:
    assert frame_of(framing.encode_request(HEARTBEAT, 3, 1, None))[8:10] == b"\xff\xff"


def test_client_id_too_long_for_its_length_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="client id has at most 32767 bytes, not 32768"):
        framing.encode_request(HEARTBEAT, 3, 1, "x" * 32_768)


def test_record_data_is_a_separate_part_of_frame() -> None:
    records = memoryview(bytearray(1000))
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(acks=1, timeout_ms=5, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    parts = framing.encode_request(request, 9, 5, "me")
    assert parts[1] is records
    assert frame_of(list(parts))[:8] == b"\x00\x00\x00\x09\x00\x00\x00\x05"


def test_frame_headers_match_declared_headers() -> None:
    for version, header_version in ((3, 1), (4, 2)):
        frame = frame_of(list(framing.encode_request(HEARTBEAT, version, 77, "me")))
        header = headers.RequestHeader(
            request_api_key=12, request_api_version=version, correlation_id=77, client_id="me"
        )
        encoded = codec.encode(header, header_version)
        assert frame.startswith(encoded)
        assert framing.decode_request_header(frame) == (12, version, 77, "me", len(encoded))
    for version, header_version in ((3, 0), (4, 1)):
        frame = frame_of(list(framing.encode_response(HeartbeatResponse(error_code=0), version, 77)))
        encoded = codec.encode(headers.ResponseHeader(correlation_id=77), header_version)
        assert frame.startswith(encoded)
        assert framing.decode_response_header(HeartbeatResponse, version, frame) == (77, len(encoded))
        assert framing.decode_response_header(HeartbeatRequest, version, frame) == (77, len(encoded))


@given(st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=40), st.sampled_from([0, 2, 3, 4]))
def test_request_round_trips(correlation_id: int, client_id: str | None, version: int) -> None:
    frame = memoryview(frame_of(list(framing.encode_request(HEARTBEAT, version, correlation_id, client_id))))
    header = framing.decode_request_header(frame)
    assert header[:4] == (12, version, correlation_id, client_id)
    assert codec.decode(HeartbeatRequest, version, frame, header.body_offset) == HEARTBEAT


@pytest.mark.parametrize("version", [0, 4])
def test_response_round_trips(version: int) -> None:
    frame = memoryview(frame_of(list(framing.encode_response(HeartbeatResponse(error_code=27), version, -5))))
    assert framing.peek_correlation_id(frame) == -5
    assert framing.decode_response(HeartbeatResponse, version, frame) == (-5, HeartbeatResponse(error_code=27))


def test_tagged_fields_in_headers_are_skipped() -> None:
    request = b"\x00\x0c\x00\x04\x00\x00\x00\x4d\x00\x02me\x01\x07\x03abc" + codec.encode(HEARTBEAT, 4)
    header = framing.decode_request_header(request)
    assert codec.decode(HeartbeatRequest, 4, request, header.body_offset) == HEARTBEAT
    response = b"\x00\x00\x00\x05\x01\x07\x03abc" + codec.encode(HeartbeatResponse(error_code=0), 4)
    assert framing.decode_response(HeartbeatResponse, 4, response) == (5, HeartbeatResponse(error_code=0))


def test_api_without_flexible_versions_has_no_header_tags() -> None:
    request = SaslHandshakeRequest(mechanism="PLAIN")
    frame = frame_of(list(framing.encode_request(request, 1, 1, "me")))
    assert framing.decode_request_header(frame).body_offset == 12
    response = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
    frame = frame_of(list(framing.encode_response(response, 1, 9)))
    assert framing.decode_response(SaslHandshakeResponse, 1, frame) == (9, response)


# --- ApiVersions ------------------------------------------------------------------------------------------------


def api_versions(error_code: int = 0) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error_code, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])


@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_header_of_api_versions_response_never_has_tags(version: int) -> None:
    frame = frame_of(list(framing.encode_response(api_versions(), version, 5)))
    assert frame == b"\x00\x00\x00\x05" + codec.encode(api_versions(), version)
    assert framing.decode_response(ApiVersionsResponse, version, frame) == (5, api_versions())


def test_response_to_unknown_api_versions_version_is_read_as_v0() -> None:
    frame = frame_of(list(framing.encode_response(api_versions(35), 0, 5)))
    assert framing.decode_response(ApiVersionsResponse, 4, frame) == (5, api_versions(35))


def test_header_of_newer_api_versions_request_is_flexible() -> None:
    request = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    known = frame_of(list(framing.encode_request(request, 3, 5, "me")))
    future = known[:2] + b"\x7f\xff" + known[4:] + b"more"
    assert framing.decode_request_header(future) == (18, 32_767, 5, "me", 13)


# --- malformed bytes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
def test_every_shorter_prefix_of_request_header_is_refused(version: int) -> None:
    frame = frame_of(list(framing.encode_request(HEARTBEAT, version, 5, "me")))
    for size in range(framing.decode_request_header(frame).body_offset):
        with pytest.raises(TruncatedMessage, match="request header"):
            framing.decode_request_header(frame[:size])


@pytest.mark.parametrize("version", [3, 4])
def test_every_shorter_prefix_of_response_header_is_refused(version: int) -> None:
    frame = frame_of(list(framing.encode_response(HeartbeatResponse(error_code=0), version, 5)))
    for size in range(5 if version == 4 else 4):
        with pytest.raises(TruncatedMessage, match="response header"):
            framing.decode_response_header(HeartbeatResponse, version, frame[:size])


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        (b"\x03\xe7\0\0\0\0\0\1\0\0", UnknownApi, "no API with key 999 is known"),
        (b"\xff\xff\0\0\0\0\0\1\0\0", UnknownApi, "no API with key -1 is known"),
        (b"\0\x0c\xff\xff\0\0\0\1\0\0", MalformedMessage, "Heartbeat v-1: a version of -1"),
        (b"\0\x0c\0\0\0\0\0\1\xff\xfe", MalformedMessage, "client id of -2 bytes is not possible"),
        (b"\0\x0c\0\0\0\0\0\1\0\5me", TruncatedMessage, "a client id of 5 bytes, and 2 are left"),
        (b"\0\x0c\0\0\0\0\0\1\0\2\xff\xfe", MalformedMessage, "the client id is not UTF-8"),
        (b"\0\x0c\0\4\0\0\0\1\0\0\x02\5\0\5\0", MalformedMessage, "tagged field 5 comes after 5"),
        (b"\0\x0c\0\4\0\0\0\1\0\0\xff\xff\xff\xff\xff\xff", MalformedMessage, "is longer than five bytes"),
    ],
)
def test_malformed_request_header_is_refused(frame: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        framing.decode_request_header(frame)


@given(st.binary(max_size=60))
def test_random_bytes_are_header_or_error(noise: bytes) -> None:
    try:
        header = framing.decode_request_header(noise)
    except ProtocolError as error:
        assert str(error)
    else:
        assert 10 <= header.body_offset <= len(noise)
