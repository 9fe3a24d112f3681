"""The codec's errors for invalid values and versions, and the data that it does not copy."""

from __future__ import annotations

import copy
import pickle
import traceback
import uuid
from typing import Any

import pytest

from pyclient.errors import FieldNotInVersion, MalformedMessage, TruncatedMessage, UnsupportedVersion
from pyclient.protocol import codec
from pyclient.protocol.fields import ZERO_UUID, Message, Request
from pyclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pyclient.protocol.messages.control_records import EndTxnMarker
from pyclient.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pyclient.protocol.messages.group_log import GroupMetadataKey, OffsetCommitKey
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.metadata_log import RegisterBrokerRecord, TopicRecord
from pyclient.protocol.messages.produce import ProduceRequest
from pyclient.protocol.messages.push_telemetry import PushTelemetryRequest
from tests.protocol.small_requests import fetch_request, heartbeat, produce_request

# --- versions ---------------------------------------------------------------------------------------------------


def test_version_outside_declared_range_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="FetchRequest has versions 4 to 18, not 3"):
        codec.encode(fetch_request(), 3)
    with pytest.raises(UnsupportedVersion, match="FetchResponse has versions 4 to 18, not 19"):
        codec.decode(FetchResponse, 19, b"")


def test_field_absent_in_version_is_refused_when_set() -> None:
    with pytest.raises(FieldNotInVersion, match=r"HeartbeatRequest v2 has no field group_instance_id.*'static-1'"):
        codec.encode(heartbeat(group_instance_id="static-1"), 2)
    assert codec.decode(HeartbeatRequest, 3, codec.encode(heartbeat(group_instance_id="x"), 3)).group_instance_id == "x"


def test_field_absent_in_version_is_accepted_at_its_default() -> None:
    assert codec.decode(HeartbeatRequest, 2, codec.encode(heartbeat(), 2)) == heartbeat()


def test_nested_field_absent_in_version_is_refused_with_its_path() -> None:
    request = fetch_request()
    request.topics[0].partitions[0].last_fetched_epoch = 7
    with pytest.raises(
        FieldNotInVersion, match=r"FetchRequest v11 has no field topics\.partitions\.last_fetched_epoch"
    ):
        codec.encode(request, 11)


def test_ignorable_field_absent_in_version_is_dropped() -> None:
    encoded = codec.encode(fetch_request(rack_id="rack-a"), 10)
    assert encoded == codec.encode(fetch_request(), 10)
    assert codec.decode(FetchRequest, 10, encoded).rack_id == ""


def test_fields_absent_in_version_decode_to_their_defaults() -> None:
    decoded = codec.decode(FetchRequest, 4, codec.encode(fetch_request(), 4))
    assert (decoded.session_epoch, decoded.forgotten_topics_data, decoded.rack_id) == (-1, [], "")
    assert decoded.topics[0].topic_id == ZERO_UUID


# --- values that do not fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "version", "fault"),
    [
        (fetch_request(max_wait_ms=1 << 31), 11, "FetchRequest v11: max_wait_ms is 2147483648, not a valid Int32"),
        (fetch_request(max_wait_ms=None), 11, "FetchRequest v11: max_wait_ms may not be None"),
        (fetch_request(isolation_level=-129), 11, "FetchRequest v11: isolation_level is -129, not a valid Int8"),
        (fetch_request(topics=None), 11, "FetchRequest v11: topics may not be None"),
        (fetch_request(topics=7), 11, "FetchRequest v11: topics has to be a list, not 7"),
        (fetch_request(topics=[None]), 11, r"FetchRequest v11: topics\[0\] may not be None"),
        (fetch_request(topics=["orders"]), 11, r"FetchRequest v11: topics\[0\] has to be a FetchTopic, not 'orders'"),
        (heartbeat(group_id=b"billing"), 0, "HeartbeatRequest v0: group_id is b'billing', not a valid String"),
        (heartbeat(group_id="x" * 32_768), 0, "HeartbeatRequest v0: group_id is 'xxx.*, not a valid String"),
        (heartbeat(group_id="x" * 32_768), 4, "HeartbeatRequest v4: group_id is 'xxx.*, not a valid String"),
        (heartbeat(group_id="\ud800"), 4, "HeartbeatRequest v4: group_id is .*, not a valid String"),
        (MetadataRequest(topics=None), 0, "MetadataRequest v0: topics may not be None"),
        (produce_request(5), 9, r"ProduceRequest v9: topic_data\[0\]\.partition_data\[0\]\.records is 5, not a valid"),
        (TopicRecord(name="t", topic_id="x"), 0, "TopicRecord v0: topic_id is 'x', not a valid Uuid"),  # type: ignore[arg-type]
        (
            RegisterBrokerRecord(
                broker_id=1,
                incarnation_id=ZERO_UUID,
                broker_epoch=1,
                end_points=[],
                features=[],
                rack=None,
                fenced=None,  # type: ignore[arg-type]
            ),
            0,
            "RegisterBrokerRecord v0: fenced may not be None",
        ),
    ],
)
def test_invalid_value_is_refused_with_message_version_and_field(message: Message, version: int, fault: str) -> None:
    with pytest.raises(MalformedMessage, match=fault):
        codec.encode(message, version)


def test_error_path_has_item_index() -> None:
    request = fetch_request()
    request.topics[0].partitions.append(FetchPartition(partition=1, fetch_offset=1 << 63, partition_max_bytes=1))
    with pytest.raises(MalformedMessage, match=r"topics\[0\]\.partitions\[1\]\.fetch_offset is 9223372036854775808"):
        codec.encode(request, 11)


def test_null_is_accepted_from_first_nullable_version() -> None:
    assert codec.encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    nameless = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=5))])
    assert codec.decode(MetadataRequest, 10, codec.encode(nameless, 10)) == nameless
    with pytest.raises(MalformedMessage, match=r"MetadataRequest v9: topics\[0\]\.name may not be None"):
        codec.encode(nameless, 9)


# --- constructors and values ------------------------------------------------------------------------------------


def test_constructor_requires_keyword_fields_and_refuses_unknown_ones() -> None:
    with pytest.raises(TypeError, match="topics"):
        FetchRequest(max_wait_ms=1, min_bytes=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="max_wait"):
        FetchRequest(max_wait=1, min_bytes=1, topics=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        FetchTopic("orders", [])  # type: ignore[misc,call-arg]


def test_default_lists_are_not_shared() -> None:
    one, other = fetch_request(), fetch_request()
    one.forgotten_topics_data.append("x")  # type: ignore[arg-type]
    assert other.forgotten_topics_data == []


def test_misspelt_attribute_is_error() -> None:
    with pytest.raises(AttributeError):
        fetch_request().max_wait = 5  # type: ignore[attr-defined]


def test_messages_compare_by_value_and_have_a_repr() -> None:
    assert heartbeat() == heartbeat()
    assert heartbeat() != heartbeat(member_id="other")
    assert heartbeat() != "heartbeat"
    assert repr(heartbeat()) == (
        "HeartbeatRequest(group_id='billing', generation_id=1, member_id='m', group_instance_id=None)"
    )


def test_messages_can_be_copied_and_pickled() -> None:
    for version in (11, 12):
        message = codec.decode(FetchResponse, version, codec.encode(fetch_response(b"batch"), version))
        message.responses[0].partitions[0].records = b"batch"
        for twin in (copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
            assert twin == message
            twin.responses[0].partitions[0].current_leader.leader_id = 5
            assert twin != message


def test_part_that_was_not_sent_is_immutable() -> None:
    partition = codec.decode(FetchResponse, 12, codec.encode(fetch_response(b""), 12)).responses[0].partitions[0]
    assert partition.diverging_epoch == EpochEndOffset()
    assert isinstance(partition.diverging_epoch, EpochEndOffset)
    assert repr(partition.diverging_epoch) == "EpochEndOffset(epoch=-1, end_offset=-1)"
    with pytest.raises(AttributeError, match="assign a new one"):
        partition.diverging_epoch.epoch = 3
    partition.diverging_epoch = EpochEndOffset(epoch=3)
    assert partition.diverging_epoch.epoch == 3
    assert partition.diverging_epoch != EpochEndOffset()
    assert EpochEndOffset() != partition.diverging_epoch != partition.current_leader


# --- record data ------------------------------------------------------------------------------------------------


class Region:
    """An object with a length that only a stream can send."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, error_code=0, high_watermark=9, records=data)
        for index, data in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_record_data_is_a_separate_part_and_not_copied(version: int) -> None:
    first, second = Region(1000), memoryview(bytearray(7))
    parts = codec.encode_parts(fetch_response(first, b"", None, second), version)
    assert [type(part) for part in parts][:4] == [bytes, Region, bytes, memoryview]
    assert parts[1] is first
    assert parts[3] is second


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_request_ending_with_record_data_has_no_empty_last_part(version: int) -> None:
    parts = codec.encode_parts(produce_request(b"batch"), version)
    assert all(len(part) for part in parts)
    assert b"".join(parts) == codec.encode(produce_request(b"batch"), version)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [3, 9])
def test_decoded_record_data_is_view_of_frame(version: int) -> None:
    frame = bytearray(codec.encode(produce_request(b"batch-1", None, b"", b"batch-2"), version))
    partitions = codec.decode(ProduceRequest, version, frame).topic_data[0].partition_data
    assert [each.records for each in partitions] == [b"batch-1", None, b"", b"batch-2"]
    records = partitions[3].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"batch-2")] = ord("B")
    assert bytes(records) == b"Batch-2"


def test_bytes_fields_are_copied_out_of_frame() -> None:
    request = PushTelemetryRequest(
        client_instance_id=ZERO_UUID, subscription_id=1, terminating=False, compression_type=0, metrics=b"metrics"
    )
    frame = bytearray(codec.encode(request, 0))
    decoded = codec.decode(PushTelemetryRequest, 0, memoryview(frame))
    assert type(decoded.metrics) is bytes


# --- versioned messages -----------------------------------------------------------------------------------------


def test_versioned_message_starts_with_its_version() -> None:
    assert codec.encode_versioned(EndTxnMarker(coordinator_epoch=3), 0) == b"\0\0\0\0\0\3"
    assert codec.decode_versioned(EndTxnMarker, b"\0\0\0\0\0\3") == EndTxnMarker(coordinator_epoch=3)
    with pytest.raises(UnsupportedVersion, match="EndTxnMarker has versions 0 to 0, not 9"):
        codec.decode_versioned(EndTxnMarker, b"\0\x09\0\0\0\3")
    with pytest.raises(TruncatedMessage, match="2 bytes of version; there are 1"):
        codec.decode_versioned(EndTxnMarker, b"\0")


def test_coordinator_key_starts_with_its_record_type() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=4)
    encoded = codec.encode_versioned(key, 0)
    assert encoded == b"\0\1\0\1g\0\1t\0\0\0\4"
    assert codec.peek_version(encoded) == OffsetCommitKey.api_key == 1
    assert codec.decode_versioned(OffsetCommitKey, encoded) == key
    with pytest.raises(MalformedMessage, match="GroupMetadataKey has record type 2, not 1"):
        codec.decode_versioned(GroupMetadataKey, encoded)


def test_newer_subscription_is_read_as_newest_known_version() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a", "b"], generation_id=4, rack_id="r")
    encoded = codec.encode_versioned(subscription, 3)
    newer = b"\0\x63" + encoded[2:] + b"a field of the future"
    assert codec.decode_versioned(ConsumerProtocolSubscription, newer) == subscription
    with pytest.raises(UnsupportedVersion, match="versions 0 to 3, not -1"):
        codec.decode_versioned(ConsumerProtocolSubscription, b"\xff\xff" + encoded[2:])


# --- compiled functions -----------------------------------------------------------------------------------------


def test_functions_are_compiled_once() -> None:
    assert codec.encoder(FetchRequest, 11) is codec.encoder(FetchRequest, 11)
    assert codec.decoder(FetchRequest, 11) is codec.decoder(FetchRequest, 11)
    assert codec.decoder(FetchRequest, 11) is not codec.decoder(FetchRequest, 10)


def test_traceback_shows_compiled_source() -> None:
    with pytest.raises(MalformedMessage) as caught:
        codec.encode(fetch_request(max_wait_ms="soon"), 11)
    cause = caught.value.__cause__
    assert cause is not None
    shown = "".join(traceback.format_exception(cause))
    assert "<pyclient encode_FetchRequest_v11>" in shown
    assert "m.max_wait_ms" in shown


def test_every_request_knows_its_response() -> None:
    assert FetchRequest.response is FetchResponse
    assert (FetchRequest.name, FetchResponse.name) == ("Fetch", "Fetch")
    assert issubclass(FetchRequest, Request)
