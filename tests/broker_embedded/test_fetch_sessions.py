"""Fetch sessions: their state, eviction, and incremental responses over the wire."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.incremental_task import finished
from pyclient.broker_embedded.replication.fetch_sessions import STALE_SECONDS, CachedPartition, FetchSessions, wanted_of
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tests.broker_embedded.nodes import node_of
from tests.broker_embedded.topics import create
from tests.waiting import until

READ = 1 << 20


ME = 1  # a connection


def wanted(count: int) -> list[CachedPartition]:
    return [
        CachedPartition("t", ZERO_UUID, FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=READ))
        for index in range(count)
    ]


def request(offsets: dict[int, int], *, topic: str = "t", session: tuple[int, int] = (0, 0), **options: Any) -> Any:
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=options.pop("partition_max", READ))
        for index, offset in offsets.items()
    ]
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": READ, **options}
    topics = [FetchTopic(topic=topic, partitions=partitions)] if partitions else []
    return FetchRequest(topics=topics, session_id=session[0], session_epoch=session[1], **options)


def included(response: Any) -> list[int]:
    return [partition.partition_index for topic in response.responses for partition in topic.partitions]


def resumed(sessions: FetchSessions, request: FetchRequest, version: int, now: float, owner: int = ME) -> Any:
    return finished(sessions.resume(request, version, now, owner=owner))


def test_incremental_response_includes_partitions_that_have_changed() -> None:
    [one] = wanted(1)
    quiet = {"partition_index": 0, "error_code": 0, "high_watermark": 7, "log_start_offset": 1, "records": None}
    assert one.must_be_included(PartitionData(**quiet))
    one.note(PartitionData(**quiet))
    assert not one.must_be_included(PartitionData(**quiet))
    assert one.must_be_included(PartitionData(**quiet, preferred_read_replica=2))
    one.note(PartitionData(**quiet, preferred_read_replica=2))
    assert one.must_be_included(PartitionData(**quiet, preferred_read_replica=2)), "the client could not reach it"
    assert one.must_be_included(PartitionData(**quiet | {"records": b"x"}))
    assert one.must_be_included(PartitionData(**quiet | {"error_code": 6}))


def test_incremental_response_repeats_offsets_after_divergence() -> None:
    [one] = wanted(1)
    quiet = {"partition_index": 0, "error_code": 0, "high_watermark": 7, "log_start_offset": 1, "records": None}
    diverging = PartitionData(**quiet, diverging_epoch=EpochEndOffset(epoch=2, end_offset=5))
    assert one.must_be_included(diverging)
    one.note(diverging)
    assert one.must_be_included(PartitionData(**quiet)), "a follower that truncated has ignored the high watermark"
    one.note(PartitionData(**quiet))
    assert not one.must_be_included(PartitionData(**quiet))


# The cache


def test_session_is_resumed_only_with_next_epoch() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = sessions.open(wanted(2), uses_topic_ids=False, now=0, owner=ME)
    assert session is not None
    with pytest.raises(errors.InvalidFetchSessionEpoch):
        resumed(sessions, request({}, session=(session.id, 2)), 12, 0)
    with pytest.raises(errors.FetchSessionTopicIdError):
        resumed(sessions, request({}, session=(session.id, 1)), 13, 0)
    assert resumed(sessions, request({}, session=(session.id, 1)), 12, 0) is session
    assert session.epoch == 2
    sessions.close(session.id)
    with pytest.raises(errors.FetchSessionIdNotFound):
        resumed(sessions, request({}, session=(session.id, 2)), 12, 0)


def test_epoch_wraps_to_1() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = sessions.open(wanted(1), uses_topic_ids=False, now=0, owner=ME)
    assert session is not None
    session.epoch = 2**31 - 1
    assert resumed(sessions, request({}, session=(session.id, 2**31 - 1)), 12, 0) is session
    assert session.epoch == 1


def test_session_without_partitions_is_closed() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = sessions.open(wanted(2), uses_topic_ids=False, now=0, owner=ME)
    assert session is not None
    forgotten = [ForgottenTopic(topic="t", partitions=[0, 1, 7])]
    assert resumed(sessions, request({}, session=(session.id, 1), forgotten_topics_data=forgotten), 12, 0) is None
    assert len(sessions) == 0


def test_partitions_are_added_changed_and_removed() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = sessions.open(wanted(2), uses_topic_ids=False, now=0, owner=ME)
    assert session is not None
    forgotten = [ForgottenTopic(topic="t", partitions=[0])]
    resumed(sessions, request({1: 7, 5: 9}, session=(session.id, 1), forgotten_topics_data=forgotten), 12, 0)
    assert [(each.partition, each.request.fetch_offset) for each in session.partitions.values()] == [(1, 7), (5, 9)]


def test_full_cache_refuses_until_session_is_stale() -> None:
    sessions = FetchSessions(2, random.Random(1))
    first = sessions.open(wanted(1), uses_topic_ids=False, now=0, owner=ME)
    second = sessions.open(wanted(1), uses_topic_ids=False, now=1, owner=ME)
    assert first is not None
    assert second is not None
    assert sessions.open(wanted(9), uses_topic_ids=False, now=STALE_SECONDS - 1, owner=ME) is None
    resumed(sessions, request({}, session=(first.id, 1)), 12, STALE_SECONDS)
    assert sessions.open(wanted(1), uses_topic_ids=False, now=STALE_SECONDS + 2, owner=ME) is not None
    assert len(sessions) == 2
    with pytest.raises(errors.FetchSessionIdNotFound):  # the least recently used session was evicted
        resumed(sessions, request({}, session=(second.id, 1)), 12, 0)


def test_old_session_in_use_is_evicted_only_by_larger_one() -> None:
    sessions = FetchSessions(2, random.Random(1))
    small, large = (sessions.open(wanted(count), uses_topic_ids=False, now=0, owner=ME) for count in (2, 5))
    assert small is not None
    assert large is not None
    for at in (STALE_SECONDS, 2 * STALE_SECONDS):
        for session in (small, large):
            assert resumed(sessions, request({}, session=(session.id, session.epoch)), 12, at) is session
    now = 2 * STALE_SECONDS + 1
    assert sessions.open(wanted(1), uses_topic_ids=False, now=now, owner=ME) is None
    assert sessions.open(wanted(3), uses_topic_ids=False, now=now, owner=ME) is not None
    with pytest.raises(errors.FetchSessionIdNotFound):
        resumed(sessions, request({}, session=(small.id, small.epoch)), 12, now)


def test_sessions_of_closed_connections_are_evicted_first() -> None:
    sessions = FetchSessions(3, random.Random(1))
    gone, kept, resumed_elsewhere = (sessions.open(wanted(5), uses_topic_ids=False, now=0, owner=n) for n in (1, 2, 1))
    assert gone is not None
    assert kept is not None
    assert resumed_elsewhere is not None
    assert sessions.open(wanted(9), uses_topic_ids=False, now=1, owner=3) is None
    sessions.connection_ended(1)
    assert resumed(sessions, request({}, session=(resumed_elsewhere.id, 1)), 12, 1, owner=4) is resumed_elsewhere
    assert sessions.open(wanted(1), uses_topic_ids=False, now=1, owner=3) is not None
    assert sessions.size_of(gone.id) == 0
    assert sessions.size_of(kept.id) == sessions.size_of(resumed_elsewhere.id) == 5
    assert sessions.open(wanted(9), uses_topic_ids=False, now=1, owner=3) is None


def test_unused_session_of_closed_connection_ends() -> None:
    sessions = FetchSessions(10, random.Random(1))
    for owner in (1, 2, 3):
        assert sessions.open(wanted(owner), uses_topic_ids=False, now=0, owner=owner) is not None
    sessions.connection_ended(2)
    sessions.expire(STALE_SECONDS)
    assert len(sessions) == 3  # its client may come back
    sessions.expire(STALE_SECONDS + 1)
    assert len(sessions) == 2  # those of open connections stay
    assert "4 partitions" in repr(sessions)


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = FetchSessions(1000, random.Random(1), most_partitions=10)
    first = sessions.open(wanted(6), uses_topic_ids=False, now=0, owner=1)
    assert first is not None
    assert sessions.open(wanted(5), uses_topic_ids=False, now=0, owner=2) is None
    second = sessions.open(wanted(4), uses_topic_ids=False, now=0, owner=2)
    assert second is not None
    with pytest.raises(errors.FetchSessionIdNotFound, match="too large"):
        resumed(sessions, request({7: 0}, session=(second.id, 1)), 12, 0, owner=2)
    assert sessions.open(wanted(5), uses_topic_ids=False, now=0, owner=2) is None
    sessions.connection_ended(1)
    assert sessions.open(wanted(10), uses_topic_ids=False, now=0, owner=2) is not None
    assert len(sessions) == 1


def test_changing_session_is_exclusive() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = sessions.open(wanted(2), uses_topic_ids=False, now=0, owner=ME)
    assert session is not None
    steps = sessions.resume(request({5: 0}, session=(session.id, 1)), 12, 0, owner=ME)
    next(steps)
    with pytest.raises(errors.InvalidFetchSessionEpoch):
        resumed(sessions, request({6: 0}, session=(session.id, 1)), 12, 0, owner=2)
    sessions.close(session.id)
    with pytest.raises(errors.FetchSessionIdNotFound, match="ended meanwhile"):
        finished(steps)
    assert repr(sessions) == "<FetchSessions 0 of 10, 0 partitions>"


def test_cache_without_slots_keeps_no_session() -> None:
    assert FetchSessions(0, random.Random(1)).open(wanted(1), uses_topic_ids=False, now=0, owner=ME) is None


def test_session_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyclient.broker_embedded.replication.fetch_sessions.MOST_PARTITIONS", 3)
    sessions = FetchSessions(10, random.Random(1))
    assert sessions.open(wanted(4), uses_topic_ids=False, now=0, owner=ME) is None
    session = sessions.open(wanted(3), uses_topic_ids=False, now=0, owner=ME)
    assert session is not None
    with pytest.raises(errors.FetchSessionIdNotFound, match="too large"):
        resumed(sessions, request({7: 0}, session=(session.id, 1)), 12, 0)
    assert len(sessions) == 0


def test_duplicate_partition_is_read_once() -> None:
    twice = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=1) for at in (3, 4)],
            )
        ],
    )
    assert [each.request.fetch_offset for each in finished(wanted_of(twice))] == [4]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.floats(0, 90)), max_size=40))
def test_sessions_never_exceed_slots_and_have_unique_ids(steps: list[tuple[int, int, float]]) -> None:
    sessions, now, opened = FetchSessions(3, random.Random(7)), 0.0, []
    for kind, size, passed in steps:
        now += passed
        if kind == 0 and opened:
            sessions.close(opened[size % len(opened)].id)
        elif kind == 1 and opened:
            session = opened[size % len(opened)]
            try:
                resumed(sessions, request({}, session=(session.id, session.epoch)), 12, now)
            except errors.FetchSessionIdNotFound:
                opened.remove(session)
        else:
            session = sessions.open(wanted(size), uses_topic_ids=False, now=now, owner=ME)
            if session is not None:
                opened.append(session)
        assert len(sessions) <= 3
        assert all(1 <= session.id < 2**31 for session in opened)


# Over the wire


@pytest.mark.parametrize("version", [7, 11, 12])
def test_incremental_response_has_changes_only(client: Any, topic: str, produce: Any, batch: Any, version: int) -> None:
    produce(client, topic, batch(b"a"))
    first = client.call(request({0: 0, 1: 0}, topic=topic), version)
    assert first.session_id > 0
    assert included(first) == [0, 1]
    session = first.session_id
    assert included(client.call(request({0: 1}, topic=topic, session=(session, 1)), version)) == []
    produce(client, topic, batch(b"b"), partition=1)
    second = client.call(request({}, session=(session, 2)), version)
    assert (second.session_id, included(second)) == (session, [1])
    assert included(client.call(request({1: 1}, topic=topic, session=(session, 3)), version)) == []
    assert included(client.call(request({}, session=(session, 4)), version)) == []


def test_session_continued_in_older_version_reports_no_divergence(
    client: Any, topic: str, produce: Any, batch: Any
) -> None:
    produce(client, topic, batch(b"a"))
    begun = request({0: 5}, topic=topic)
    begun.topics[0].partitions[0].last_fetched_epoch = 0
    first = client.call(begun, 12)
    assert first.responses[0].partitions[0].diverging_epoch.end_offset == 1
    second = client.call(request({}, session=(first.session_id, 1)), 11)
    assert second.responses[0].partitions[0].error_code == errors.OffsetOutOfRange.code


def test_session_is_closed_by_request_or_new_session(client: Any, topic: str) -> None:
    first = client.call(request({0: 0}, topic=topic), 12).session_id
    second = client.call(request({0: 0}, topic=topic, session=(first, 0)), 12).session_id
    assert first != second
    response = client.call(request({}, session=(first, 1)), 12)
    assert (response.error_code, response.session_id) == (errors.FetchSessionIdNotFound.code, 0)
    assert client.call(request({0: 0}, topic=topic, session=(second, -1)), 12).session_id == 0
    response = client.call(request({}, session=(second, 1)), 12)
    assert response.error_code == errors.FetchSessionIdNotFound.code


def test_wrong_epoch_is_refused(client: Any, topic: str) -> None:
    session = client.call(request({0: 0}, topic=topic), 12).session_id
    response = client.call(request({}, session=(session, 5)), 12)
    assert response.error_code == errors.InvalidFetchSessionEpoch.code
    assert client.call(request({}, session=(session, 1)), 12).error_code == 0


def test_fetch_without_session_gets_no_session(client: Any, topic: str) -> None:
    assert client.call(request({0: 0}, topic=topic, session=(0, -1)), 12).session_id == 0


def test_error_is_in_every_incremental_response(client: Any, topic: str) -> None:
    first = client.call(request({0: 0, 9: 0}, topic=topic), 12)
    assert included(first) == [0, 9]
    for epoch in (1, 2):
        again = client.call(request({}, session=(first.session_id, epoch)), 12)
        assert included(again) == [9]
        assert again.responses[0].partitions[0].error_code == errors.UnknownTopicOrPartition.code


def test_partitions_of_session_are_read_in_rotation(client: Any, topic: str, produce: Any, batch: Any) -> None:
    for partition in (0, 1):
        for _ in range(3):
            produce(client, topic, batch(bytes(500)), partition=partition)
    first = client.call(request({0: 0, 1: 0}, topic=topic, max_bytes=1), 12)
    counts = []
    for epoch in range(1, 5):
        response = client.call(request({}, session=(first.session_id, epoch), max_bytes=1), 12)
        counts += [
            each.partition_index for answer in response.responses for each in answer.partitions if len(each.records)
        ]
    assert counts == [0, 1, 0, 1]


def test_parked_incremental_fetch_returns_changes_only(
    client: Any, connect: Any, broker: Any, topic: str, produce: Any, batch: Any
) -> None:
    session = client.call(request({0: 0, 1: 0}, topic=topic), 12).session_id
    client.send(request({}, session=(session, 1), max_wait_ms=20_000), 12)
    produce(connect(broker), topic, batch(b"late"), partition=1)
    assert included(client.receive(FetchRequest, 12)[0]) == [1]


def test_session_continued_on_other_connection_has_wrong_epoch(
    client: Any, connect: Any, broker: Any, topic: str
) -> None:
    session = client.call(request({0: 0}, topic=topic), 12).session_id
    waiting = connect(broker)
    waiting.send(request({}, session=(session, 1), max_wait_ms=600_000), 12)
    node = node_of(broker)
    while len(node.purgatory) == 0:
        client.call(request({}), 12)
    assert client.call(request({}, session=(session, 2)), 12).error_code == 0
    broker.advance_time(601)
    response = waiting.receive(FetchRequest, 12)[0]
    assert response.error_code == errors.InvalidFetchSessionEpoch.code


@pytest.mark.parametrize("session_id", [-(2**31), -1, 0, 1, 2**31 - 1])
@pytest.mark.parametrize("epoch", [-(2**31), -2, 1, 2**31 - 1])
def test_unknown_session_is_not_found(client: Any, topic: str, session_id: int, epoch: int) -> None:
    response = client.call(request({0: 0}, topic=topic, session=(session_id, epoch)), 12)
    assert (response.error_code, response.session_id) == (errors.FetchSessionIdNotFound.code, 0)


@pytest.mark.parametrize("version", [12, 14, 15, 18])
def test_replica_id_is_refused_in_every_version(
    client: Any, broker: Any, topic: str, produce: Any, batch: Any, version: int
) -> None:
    produce(client, topic, batch(b"a"))
    asked = by_id(topic_id_of(broker, topic), {0: 0}) if version >= 13 else request({0: 0}, topic=topic)
    if version >= 15:
        asked.replica_state = ReplicaState(replica_id=1, replica_epoch=1)
    else:
        asked.replica_id = 1
    [answer] = client.call(asked, version).responses
    assert answer.partitions[0].error_code == errors.NotLeaderOrFollower.code
    assert answer.partitions[0].records == b""


@pytest.mark.parametrize(("min_bytes", "max_bytes"), [(2**31 - 1, 0), (-1, 2**31 - 1), (0, 0)])
def test_first_batch_is_returned_with_invalid_limits(
    client: Any, topic: str, produce: Any, batch: Any, min_bytes: int, max_bytes: int
) -> None:
    produce(client, topic, batch(b"a"))
    asked = request({0: 0}, topic=topic, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=2**31 - 1)
    if max_bytes > 0:
        asked.max_wait_ms = 0
    [answer] = client.call(asked, 12).responses
    assert len(answer.partitions[0].records) > 0


@pytest.mark.parametrize("limit", [{"max_bytes": -1}, {"max_bytes": -(2**31)}])
def test_fetch_with_negative_size_is_refused(client: Any, topic: str, limit: dict[str, int]) -> None:
    [answer] = client.call(request({0: 0}, topic=topic, max_wait_ms=2**31 - 1, **limit), 12).responses
    assert answer.partitions[0].error_code == errors.InvalidRequest.code


def test_number_of_sessions_is_limited(connect: Any) -> None:
    with EmbeddedCluster(config={"max.incremental.fetch.session.cache.slots": 2}) as cluster:
        client = connect(cluster)
        sessions = [client.call(request({0: 0}, topic="none"), 12).session_id for _ in range(4)]
        assert [session > 0 for session in sessions] == [True, True, False, False]


def test_broker_ends_unused_session_of_closed_connection(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        first, second = connect(cluster), connect(cluster)
        lost = first.call(request({0: 0}, topic="none"), 12).session_id
        kept = second.call(request({0: 0}, topic="none"), 12).session_id
        first.close()

        def has_ended() -> bool:
            cluster.advance_time(STALE_SECONDS)
            answer = second.call(request({}, session=(lost, 99)), 12)
            return bool(answer.error_code == errors.FetchSessionIdNotFound.code)

        until(has_ended, "the session of the closed connection still exists")
        assert second.call(request({}, session=(kept, 1)), 12).error_code == 0


# Topic ids


def topic_id_of(broker: Any, topic: str) -> uuid.UUID:
    found: uuid.UUID = node_of(broker).image.topics[topic].topic_id
    return found


def by_id(topic_id: uuid.UUID, offsets: dict[int, int], **options: Any) -> Any:
    made = request(offsets, topic="", **options)
    for each in made.topics:
        each.topic_id = topic_id
    return made


@pytest.mark.parametrize("version", range(13, 19))
def test_topic_is_fetched_by_id(client: Any, broker: Any, topic: str, produce: Any, batch: Any, version: int) -> None:
    produce(client, topic, batch(b"a"))
    topic_id = topic_id_of(broker, topic)
    response = client.call(by_id(topic_id, {0: 0}), version)
    [answer] = response.responses
    assert answer.topic_id == topic_id
    assert answer.partitions[0].high_watermark == 1
    assert included(client.call(by_id(topic_id, {0: 1}, session=(response.session_id, 1)), version)) == []


def test_unknown_topic_id_is_error_of_its_partitions(client: Any, broker: Any, topic: str) -> None:
    missing = uuid.uuid4()
    response = client.call(by_id(missing, {0: 0, 1: 0}), 17)
    [answer] = response.responses
    assert answer.topic_id == missing
    assert {each.error_code for each in answer.partitions} == {errors.UnknownTopicId.code}


def test_session_never_changes_between_ids_and_names(client: Any, broker: Any, topic: str) -> None:
    session = client.call(by_id(topic_id_of(broker, topic), {0: 0}), 13).session_id
    response = client.call(request({0: 0}, topic=topic, session=(session, 1)), 12)
    assert response.error_code == errors.FetchSessionTopicIdError.code


def test_session_does_not_follow_name_to_recreated_topic(
    client: Any, broker: Any, topic: str, produce: Any, batch: Any
) -> None:
    from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    old = topic_id_of(broker, topic)
    session = client.call(by_id(old, {0: 0}), 17).session_id
    gone = DeleteTopicState(name=None, topic_id=old)
    assert client.call(DeleteTopicsRequest(topics=[gone], timeout_ms=1000), 6).responses[0].error_code == 0
    create(client, topic)
    produce(client, topic, batch(b"of the new topic"))
    response = client.call(by_id(old, {}, session=(session, 1)), 17)
    assert response.responses[0].partitions[0].error_code == errors.UnknownTopicId.code


def test_records_are_produced_by_topic_id(client: Any, broker: Any, topic: str, batch: Any) -> None:
    from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    def produce(topic_id: uuid.UUID) -> Any:
        data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch(b"a"))])
        [answer] = client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 13).responses
        assert answer.topic_id == topic_id
        return answer.partition_responses[0]

    assert produce(topic_id_of(broker, topic)).base_offset == 0
    assert produce(uuid.uuid4()).error_code == errors.UnknownTopicId.code
    assert produce(ZERO_UUID).error_code == errors.UnknownTopicId.code
