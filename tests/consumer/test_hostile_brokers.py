"""Consumers of a broker with false responses: errors name broker and field, and the other broker is read."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import TopicPartition, errors
from pyclient.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pyclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from pyclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.consumer.consumer_factory import ConsumerFactory
from tests.consumer.scripted_log import QUICK, Log, ScriptedLog
from tests.net.scripted import CLOSE

T, WELL = TopicPartition("t", 0), TopicPartition("well", 0)
SECONDS = 40


@pytest.fixture
def script() -> Iterator[ScriptedLog]:
    script = ScriptedLog(Log((0, 10, 0)))
    yield script
    script.close()


@pytest.fixture(params=["sync", "async"])
def consumers(request: pytest.FixtureRequest, script: ScriptedLog) -> Iterator[ConsumerFactory]:
    factory = ConsumerFactory(request.param, script.second.address, **QUICK)
    yield factory
    factory.close()


class Watch:
    """Polls, and collects the offsets of each topic and the errors raised."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.offsets: dict[str, list[int]] = {"t": [], "well": []}
        self.errors: list[errors.KafkaError] = []

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, (self.offsets, self.errors, self.consumer.health())
            try:
                for record in self.consumer.poll(0.05):
                    self.offsets[record.topic].append(record.offset)
            except errors.KafkaError as error:
                self.errors.append(error)

    def has_read(self, topic: str) -> bool:
        return self.offsets[topic] == [*range(10)]


def part(number: int = 0, **fields: Any) -> PartitionData:
    return PartitionData(partition_index=number, **{"error_code": 0, "high_watermark": 10, "records": b"", **fields})


def fetch(*parts: PartitionData, topic: str = "t", **fields: Any) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=list(parts))], **fields)


def framed(body: bytes) -> Callable[[Any, int, int], bytes]:
    """Return a Fetch 12 response with this body and a correct header."""
    return lambda message, version, correlation_id: struct.pack(">iib", len(body) + 5, correlation_id, 0) + body


ENTRY = r"127\.0\.0\.1:\d+.*Fetch"
LIES: dict[str, tuple[Any, str]] = {
    "a partition that was not asked for": (fetch(part(7)), rf"{ENTRY}.* t-7"),
    "a topic that was not asked for": (fetch(part(), topic="secret"), rf"{ENTRY}.* secret-0"),
    "the partition, and a negative one": (fetch(part(), part(-1)), rf"{ENTRY}.* t--1"),
    "a billion topics": (
        framed(struct.pack(">ihi", 0, 0, 0) + b"\xff\xff\xff\xff\x0f"),
        rf"{ENTRY} v12.*claims",
    ),
    "a negative length of topics": (framed(struct.pack(">ihi", 0, 0, 0) + b"\xff" * 9), rf"{ENTRY} v12.*at byte"),
    "an answer that ends too soon": (framed(b"\0\0\0\0\0"), rf"{ENTRY} v12.*at byte 5 of"),
    "bytes after the response": (framed(struct.pack(">ihi", 0, 0, 0) + b"\1\0" + b"more"), rf"{ENTRY} v12"),
    "an unknown error of the whole answer": (fetch(error_code=9999), r"127\.0\.0\.1:\d+.*fetch.*"),
    "an unknown error of the partition": (fetch(part(error_code=9999)), "t-0 from offset 0"),
}


@pytest.mark.parametrize(("answer", "reported"), LIES.values(), ids=LIES.keys())
def test_false_fetch_response_raises_and_the_other_broker_is_read(
    consumers: ConsumerFactory, script: ScriptedLog, answer: Any, reported: str
) -> None:
    script.answer(FetchRequest, answer)
    watch = Watch(consumers())
    watch.consumer.assign([T, WELL])
    watch.until(lambda: watch.errors and watch.has_read("well"))
    for error in watch.errors:
        assert isinstance(error, (errors.ProtocolError, errors.UnknownErrorCode)), error
        assert re.search(reported, str(error)), str(error)
    script.answer(FetchRequest, script.fetched)
    watch.until(lambda: watch.has_read("t"))


BROKEN: dict[str, Any] = {
    "the connection ends": CLOSE,
    "an unknown correlation id": lambda message, version, correlation_id: struct.pack(">iii", 8, 77, 0),
    "a frame of two gigabytes": struct.pack(">i", 2**31 - 1),
    "a frame of negative length": struct.pack(">i", -1),
    "the answer of a TLS server": bytes.fromhex("15030300020228"),
    "the answer of an HTTP server": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN.keys())
def test_broken_fetch_connection_is_in_health_and_other_broker_is_read(
    consumers: ConsumerFactory, script: ScriptedLog, answer: Any
) -> None:
    script.answer(FetchRequest, answer)
    watch = Watch(consumers())
    watch.consumer.assign([T, WELL])
    watch.until(lambda: watch.has_read("well") and "fetch" in watch.consumer.health()["last_errors"])
    assert script.first.address in watch.consumer.health()["last_errors"]["fetch"]
    script.answer(FetchRequest, script.fetched)
    watch.until(lambda: watch.has_read("t"))
    assert watch.errors == []


ODD: dict[str, FetchResponse] = {
    "an unknown preferred replica, and no records": fetch(part(preferred_read_replica=4711)),
    "a preferred replica that has nothing to do with it": fetch(part(preferred_read_replica=2)),
    "a throttle time below nothing": fetch(part(), throttle_time_ms=-(2**31)),
    "a fetch session that it never made": fetch(error_code=errors.FetchSessionIdNotFound.code),
    "a session with a negative id": fetch(part(), session_id=-5),
    "the same partition twice": fetch(part(), part()),
}


@pytest.mark.parametrize("answer", ODD.values(), ids=ODD.keys())
def test_odd_fetch_response_is_tolerated(
    consumers: ConsumerFactory, script: ScriptedLog, answer: FetchResponse
) -> None:
    asked: list[FetchRequest] = []

    def odd_at_first(request: FetchRequest, *rest: Any) -> FetchResponse:
        asked.append(request)
        return answer if len(asked) <= 3 else script.fetched(request)

    script.answer(FetchRequest, odd_at_first)
    watch = Watch(consumers())
    watch.consumer.assign([T, WELL])
    watch.until(lambda: watch.has_read("t") and watch.has_read("well"))


def listed(*partitions: int, topic: str = "t", offset: int = 0) -> ListOffsetsResponse:
    answers = [ListOffsetsPartitionResponse(partition_index=n, error_code=0, offset=offset) for n in partitions]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic, partitions=answers)])


@pytest.mark.parametrize("answer", [listed(), listed(0, 1), listed(0, topic="secret")])
def test_false_list_offsets_response_raises_with_broker_and_field(
    consumers: ConsumerFactory, script: ScriptedLog, answer: ListOffsetsResponse
) -> None:
    script.answer(ListOffsetsRequest, answer)
    watch = Watch(consumers())
    watch.consumer.assign([T, WELL])
    watch.until(lambda: watch.errors and watch.has_read("well"))
    assert "node 1: ListOffsets response partitions do not match the request: " in str(watch.errors[0])
    with pytest.raises(errors.MalformedMessage, match="node 1: ListOffsets"):
        watch.consumer.end_offsets([T], timeout=30)


# ---- groups


def coordinator(node_id: int, host: str, port: int) -> FindCoordinatorResponse:
    found = Coordinator(key="g", node_id=node_id, host=host, port=port, error_code=0, error_message=None)
    return FindCoordinatorResponse(coordinators=[found])


def joined(generation: int = 1, leader: str = "me", members: dict[str, bytes] | None = None) -> JoinGroupResponse:
    listed = {"me": b"\0\1\0\0\0\1\0\1t\0\0\0\0\0\0\0\0"} if members is None else members
    return JoinGroupResponse(
        error_code=0, generation_id=generation, protocol_type="consumer", protocol_name="range", leader=leader,
        member_id="me",
        members=[JoinGroupResponseMember(member_id=name, metadata=data) for name, data in listed.items()],
    )  # fmt: skip


def given(data: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=0, protocol_type="consumer", protocol_name="range", assignment=data)


ASSIGNED_TWICE = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0" * 2 + b"\xff" * 4
GROUP_LIES: dict[str, dict[type, Any]] = {
    "a coordinator that is no broker": {FindCoordinatorRequest: coordinator(4711, "127.0.0.1", 1)},
    "a generation of -5": {JoinGroupRequest: joined(-5)},
    "a subscription that is garbage": {JoinGroupRequest: joined(members={"me": b"\xff" * 9})},
    "a subscription of version 999": {JoinGroupRequest: joined(members={"me": b"\3\xe7\xff\xff\xff\xff"})},
    "an assignment that is garbage": {SyncGroupRequest: given(b"\xff" * 30)},
    "an assignment that ends too soon": {SyncGroupRequest: given(ASSIGNED_TWICE[:9])},
    "an answer to JoinGroup that is another's": {JoinGroupRequest: given(b"")},
}


@pytest.mark.parametrize("lies", GROUP_LIES.values(), ids=GROUP_LIES.keys())
def test_false_group_response_raises_or_is_in_health_others_read_on(
    consumers: ConsumerFactory, script: ScriptedLog, lies: dict[type, Any]
) -> None:
    script.answer(JoinGroupRequest, joined())
    script.answer(SyncGroupRequest, given(ASSIGNED_TWICE[:-4] + b"\0" * 4))
    script.answer(OffsetFetchRequest, CLOSE)
    script.answer_everywhere(FindCoordinatorRequest, coordinator(1, "127.0.0.1", script.first.port))
    for request, answer in lies.items():
        (script.answer_everywhere if request is FindCoordinatorRequest else script.answer)(request, answer)
    member, other = Watch(consumers("t", group_id="g")), Watch(consumers())
    other.consumer.assign([WELL])
    reported: list[str] = []

    def noticed() -> bool:
        reported[:] = [*map(str, member.errors), *member.consumer.health()["last_errors"].values()]
        return bool(reported)

    member.until(noticed)
    other.until(lambda: other.has_read("well"))
    assert all("127.0.0.1:" in each or "group 'g'" in each for each in reported), reported
    assert all(isinstance(error, errors.KafkaError) for error in member.errors)
    member.consumer.close(timeout=0.5)
    consumers.forget(member.consumer)
