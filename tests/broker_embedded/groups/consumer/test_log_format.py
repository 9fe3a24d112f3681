"""Encoding and decoding of the records of consumer groups in Kafka's formats."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.groups.consumer.log_format import ConsumerGroupRecord, encode
from pyclient.broker_embedded.groups.consumer.model import (
    ClassicProtocol,
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    MemberMetadata,
    MemberRecord,
    MemberState,
    RegexRecord,
    ResolvedRegex,
    TargetEpochRecord,
    TargetRecord,
)
from pyclient.broker_embedded.groups.log_records import decode
from pyclient.protocol import codec
from pyclient.protocol.messages import group_log as wire

TOPIC = UUID(int=5)
names = st.text(max_size=5)
epochs = st.integers(0, 2**31 - 1)
times = st.integers(0, 2**62)
partitions = st.integers(0, 1000)
targets = st.dictionaries(st.uuids(), st.frozensets(partitions, min_size=1), max_size=3)
assigned = st.dictionaries(st.uuids(), st.dictionaries(partitions, epochs, min_size=1), max_size=3)
classic = st.builds(ClassicProtocol, epochs, st.lists(st.tuples(names, st.binary(max_size=5)), max_size=2).map(tuple))
metadata = st.builds(
    MemberMetadata,
    instance_id=st.none() | names,
    rack_id=st.none() | names,
    client_id=names,
    client_host=names,
    topics=st.sets(names, max_size=3).map(lambda topics: tuple(sorted(topics))),
    regex=names,
    rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
    assignor=st.none() | names,
    classic=st.none() | classic,
)
current = st.builds(
    CurrentAssignment,
    epoch=st.integers(-2, 2**31 - 1),
    previous_epoch=st.integers(-1, 2**31 - 1),
    state=st.sampled_from(MemberState),
    assigned=assigned,
    revoking=assigned,
)
records = st.one_of(
    st.builds(EpochRecord, epochs, st.integers(-(2**63), 2**63 - 1)),
    st.just(EpochRecord(None)),
    st.builds(MemberRecord, names, st.none() | metadata),
    st.builds(TargetEpochRecord, epochs, times),
    st.just(TargetEpochRecord(None)),
    st.builds(TargetRecord, names, st.none() | targets),
    st.builds(CurrentRecord, names, st.none() | current),
    st.builds(RegexRecord, names, st.none() | st.builds(ResolvedRegex, st.lists(names).map(tuple), times, times)),
)


@given(names, records)
def test_record_round_trips(group_id, record):
    key, value = encode(group_id, record)
    assert decode(key, value) == ConsumerGroupRecord(group_id, record)


@given(records)
@settings(max_examples=30)
def test_truncated_record_is_refused(record):
    key, value = encode("g", record)
    for size in range(len(key)):
        with pytest.raises(errors.TruncatedMessage):
            decode(key[:size], value)
    for size in range(len(value or b"")):
        with pytest.raises(errors.TruncatedMessage):
            decode(key, value[:size])


def test_assignment_without_epochs_gets_member_epoch() -> None:
    topic = wire.TopicPartitions(topic_id=TOPIC, partitions=[1, 2])
    value = wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7,
        previous_member_epoch=6,
        state=99,
        assigned_partitions=[topic],
        partitions_pending_revocation=[],
    )
    key = wire.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    read = decode(codec.encode_versioned(key, 0), codec.encode_versioned(value, 0))
    current = CurrentAssignment(epoch=7, previous_epoch=6, state=MemberState.UNKNOWN, assigned={TOPIC: {1: 7, 2: 7}})
    assert read == ConsumerGroupRecord("g", CurrentRecord("m", current))
