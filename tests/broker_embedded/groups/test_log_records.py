"""The records of `__consumer_offsets`, byte for byte."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.groups.events import GroupSnapshot, MemberSnapshot
from pyclient.broker_embedded.groups.log_records import (
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    decode,
    encode_group,
    encode_offset,
)
from pyclient.protocol import codec
from pyclient.protocol.messages.group_log import GroupMetadataValue, OffsetCommitValue
from pyclient.types import TopicPartition

names = st.text(max_size=8)
int32 = st.integers(0, 2**31 - 1)
offsets = st.builds(
    OffsetRecord,
    names,
    st.builds(TopicPartition, names, int32),
    st.none()
    | st.builds(CommittedOffset, st.integers(-1, 2**63 - 1), int32, names, st.integers(0, 2**62), topic_id=st.uuids()),
)
members = st.builds(
    MemberSnapshot,
    member_id=names,
    instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    rebalance_timeout_ms=int32,
    session_timeout_ms=int32,
    subscription=st.binary(max_size=8),
    assignment=st.binary(max_size=8),
)
snapshots = st.builds(
    GroupSnapshot,
    protocol_type=names,
    generation=int32,
    protocol_name=st.none() | names,
    leader=st.none() | names,
    members=st.lists(members, max_size=3).map(tuple),
)
groups = st.builds(GroupRecord, names, snapshots, int32) | st.builds(GroupRecord, names, st.none(), st.just(-1))


@given(offsets)
def test_offset_record_round_trips(record):
    assert decode(*encode_offset(record)) == record


@given(groups)
def test_group_record_round_trips(record):
    assert decode(*encode_group(record)) == record


def test_offset_record_has_bytes_of_kafka():
    committed = CommittedOffset(offset=7, leader_epoch=3, metadata="m", commit_ms=1_700_000_000_000)
    key, value = encode_offset(OffsetRecord("g", TopicPartition("t", 2), committed))
    assert key == b"\0\x01" + b"\0\x01g" + b"\0\x01t" + b"\0\0\0\x02"
    assert value == b"\0\x04" + struct.pack(">qi", 7, 3) + b"\x02m" + struct.pack(">q", 1_700_000_000_000) + b"\0"


def test_offset_record_has_topic_id():
    committed = CommittedOffset(offset=7, leader_epoch=3, metadata="", commit_ms=5, topic_id=uuid.UUID(int=9))
    _, value = encode_offset(OffsetRecord("g", TopicPartition("t", 2), committed))
    assert (
        value
        == b"\0\x04" + struct.pack(">qi", 7, 3) + b"\x01" + struct.pack(">q", 5) + b"\1\0\x10" + bytes(15) + b"\x09"
    )


def test_offset_record_with_own_retention_has_expire_timestamp():
    committed = CommittedOffset(offset=7, leader_epoch=-1, metadata="", commit_ms=5, expire_ms=9)
    record = OffsetRecord("g", TopicPartition("t", 2), committed)
    key, value = encode_offset(record)
    assert value == b"\0\x01" + struct.pack(">q", 7) + b"\0\0" + struct.pack(">qq", 5, 9)
    assert decode(key, value) == record


def test_group_record_has_bytes_of_kafka():
    member = MemberSnapshot(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5,
        session_timeout_ms=6,
        subscription=b"sub",
        assignment=b"as",
    )
    snapshot = GroupSnapshot(
        protocol_type="consumer", generation=4, protocol_name="range", leader="m", members=(member,)
    )
    key, value = encode_group(GroupRecord("g", snapshot, 11))
    assert key == b"\0\x02\0\x01g"
    assert value == (
        b"\0\x03\0\x08consumer\0\0\0\x04\0\x05range\0\x01m" + struct.pack(">q", 11) + b"\0\0\0\x01"
        b"\0\x01m\xff\xff\0\x01c\0\x02/h\0\0\0\x05\0\0\0\x06\0\0\0\x03sub\0\0\0\x02as"
    )


@pytest.mark.parametrize("version", range(5))
def test_offset_value_of_every_version_is_decoded(version):
    written = OffsetCommitValue(offset=5, leader_epoch=2, metadata="x", commit_timestamp=9)
    key, _ = encode_offset(OffsetRecord("g", TopicPartition("t", 0), None))
    record = decode(key, codec.encode_versioned(written, version))
    assert record.committed == CommittedOffset(5, 2 if version >= 3 else -1, "x", 9)


def test_offset_key_of_version_0_is_decoded():
    key, value = encode_offset(OffsetRecord("g", TopicPartition("t", 0), CommittedOffset(5, -1, "", 9)))
    assert decode(b"\0\0" + key[2:], value) == decode(key, value)


@pytest.mark.parametrize("version", range(5))
def test_group_value_of_every_version_is_decoded(version):
    written = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None, members=[])
    key, _ = encode_group(GroupRecord("g", None))
    record = decode(key, codec.encode_versioned(written, version))
    assert record.snapshot.generation == 3


def test_other_record_types_are_ignored():
    assert decode(b"\0\x0b\0\x01g", b"\0\0\0\0\0\x01\0") is None
    assert decode(b"\x7f\xff", None) is None


def test_truncated_record_is_refused():
    key, value = encode_offset(OffsetRecord("g", TopicPartition("t", 2), CommittedOffset(7, 3, "m", 1)))
    for size in range(len(key)):
        with pytest.raises(errors.TruncatedMessage):
            decode(key[:size], value)
    for size in range(len(value)):
        with pytest.raises(errors.TruncatedMessage):
            decode(key, value[:size])


def test_value_of_unknown_version_is_refused():
    key, _ = encode_group(GroupRecord("g", None))
    with pytest.raises(errors.UnsupportedVersion):
        decode(key, b"\0\x05" + bytes(40))
