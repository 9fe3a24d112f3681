"""Messages compared with the bytes that Kafka 4.3.1's own classes write for them, field by field."""

from __future__ import annotations

import uuid

import pytest

from pyclient.protocol import codec
from pyclient.protocol.fields import Message
from pyclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from pyclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from pyclient.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from pyclient.protocol.messages.group_log import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.metadata_log import PartitionRecord
from pyclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.protocol.messages.storage import ProducerEntry, ProducerSnapshot, QuorumStateData
from pyclient.protocol.messages.transaction_log import PartitionsSchema, TransactionLogValue

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

KNOWN: list[tuple[Message, int, str]] = [
    (ApiVersionsRequest(client_software_name="", client_software_version=""), 0, ""),
    (
        ApiVersionsRequest(client_software_name="pyclient", client_software_version="0.1"),
        3,
        "09 7079636c69656e74  04 302e31  00",
    ),
    (
        ApiVersionsResponse(
            error_code=0,
            api_keys=[ApiVersion(api_key=1, min_version=4, max_version=12)],
            throttle_time_ms=7,
            finalized_features_epoch=9,
            finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)],
        ),
        3,
        "0000  02 0001 0004 000c 00  00000007  02 01 08 0000000000000009  02 08 02 02 66 0002 0001 00",
    ),
    (MetadataRequest(topics=None, allow_auto_topic_creation=False), 4, "ffffffff  00"),
    (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=TOPIC_ID)], include_topic_authorized_operations=True
        ),
        12,
        "02 00112233445566778899aabbccddeeff 00 00  01 01 00",
    ),
    (
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=b"batch")])],
        ),
        3,
        "ffff  ffff  00007530  00000001 0001 74  00000001 00000003 00000005 6261746368",
    ),
    (
        ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=None)])],
        ),
        9,
        "03 7478  ffff  00007530  02 02 74  02 00000003 00 00  00  00",
    ),
    (
        FetchResponse(
            session_id=5,
            responses=[
                FetchableTopicResponse(
                    topic_id=TOPIC_ID,
                    partitions=[
                        PartitionData(
                            partition_index=1,
                            error_code=0,
                            high_watermark=10,
                            last_stable_offset=9,
                            log_start_offset=2,
                            diverging_epoch=EpochEndOffset(epoch=4, end_offset=8),
                            aborted_transactions=None,
                            records=b"x" * 200,
                        )
                    ],
                )
            ],
        ),
        13,
        "00000000  0000  00000005  02 00112233445566778899aabbccddeeff  02 00000001 0000 000000000000000a"
        "0000000000000009 0000000000000002 00 ffffffff c901" + "78" * 200 + "01 00 0d 00000004 0000000000000008 00"
        "00  00",
    ),
    (
        OffsetFetchRequest(group_id="g", topics=None, require_stable=True),
        7,
        "02 67  00  01  00",
    ),
    (
        ConsumerProtocolSubscription(
            topics=["a", "b"],
            user_data=None,
            owned_partitions=[ConsumerProtocolSubscriptionTopicPartition(topic="a", partitions=[0, 1])],
        ),
        1,
        "00000002 0001 61 0001 62  ffffffff  00000001 0001 61 00000002 00000000 00000001",
    ),
    (
        OffsetCommitValue(offset=42, leader_epoch=3, metadata="m", commit_timestamp=1_700_000_000_000),
        3,
        "000000000000002a  00000003  0001 6d  0000018bcfe56800",
    ),
    (
        GroupMetadataValue(
            protocol_type="consumer",
            generation=2,
            protocol="range",
            leader="m-1",
            current_state_timestamp=1,
            members=[
                MemberMetadata(
                    member_id="m-1",
                    group_instance_id=None,
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=6,
                    session_timeout=5,
                    subscription=b"s",
                    assignment=b"",
                )
            ],
        ),
        3,
        "0008 636f6e73756d6572  00000002  0005 72616e6765  0003 6d2d31  0000000000000001  00000001"
        "0003 6d2d31 ffff 0001 63 0002 2f68 00000006 00000005 00000001 73 00000000",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="h",
            subscribed_topic_names=[],
            subscribed_topic_regex=None,
            server_assignor=None,
            classic_member_metadata=None,
        ),
        0,
        "00 00 02 63 02 68 01 00 ffffffff 00  01 00 01 00",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="h",
            subscribed_topic_names=[],
            subscribed_topic_regex=None,
            server_assignor=None,
            classic_member_metadata=ClassicMemberMetadata(session_timeout_ms=9, supported_protocols=[]),
        ),
        0,
        "00 00 02 63 02 68 01 00 ffffffff 00  01 00 07 01 00000009 01 00",
    ),
    (
        TransactionLogValue(
            producer_id=1,
            previous_producer_id=5,
            producer_epoch=2,
            transaction_timeout_ms=3,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[7])],
            transaction_last_update_timestamp_ms=8,
            transaction_start_timestamp_ms=9,
            client_transaction_version=2,
        ),
        1,
        "0000000000000001 0002 00000003 01  02 02 74 02 00000007 00  0000000000000008 0000000000000009"
        "02  00 08 0000000000000005  02 02 0002",
    ),
    (
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[1],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[TOPIC_ID],
        ),
        1,
        "00000000 00112233445566778899aabbccddeeff 02 00000001 02 00000001 01 01 00000001 00000000 00000000"
        "02 00112233445566778899aabbccddeeff 00",
    ),
    (
        ProducerSnapshot(
            crc=0xFFFFFFFE,
            producer_entries=[
                ProducerEntry(
                    producer_id=1,
                    epoch=2,
                    last_sequence=3,
                    last_offset=4,
                    offset_delta=5,
                    timestamp=6,
                    coordinator_epoch=-1,
                    current_txn_first_offset=-1,
                )
            ],
        ),
        1,
        "fffffffe 00000001 0000000000000001 0002 00000003 0000000000000004 00000005 0000000000000006 ffffffff"
        "ffffffffffffffff",
    ),
    (
        QuorumStateData(leader_id=1, leader_epoch=7, voted_directory_id=TOPIC_ID),
        1,
        "00000001 00000007 ffffffff 00112233445566778899aabbccddeeff 00",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "known"),
    [pytest.param(*each, id=f"{type(each[0]).__name__} v{each[1]}") for each in KNOWN],
)
def test_message_bytes_match_those_written_by_kafka(message: Message, version: int, known: str) -> None:
    raw = bytes.fromhex(known)
    assert codec.encode(message, version).hex() == raw.hex()
    assert codec.encode(codec.decode(type(message), version, raw), version) == raw
