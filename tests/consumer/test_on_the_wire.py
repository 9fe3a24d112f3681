"""Options and reasons in the requests sent: reasons of a member (KIP-800), racks (KIP-392, KIP-881), times."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

import pyclient
from pyclient import Admin, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.cluster import connection_pool
from pyclient.net.connect import TcpConnector
from pyclient.protocol.codec import decode
from pyclient.protocol.fields import Request
from pyclient.protocol.framing import decode_request_header
from pyclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pyclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pyclient.protocol.messages.fetch import FetchRequest
from pyclient.protocol.messages.join_group import JoinGroupRequest
from pyclient.protocol.messages.leave_group import LeaveGroupRequest
from tests.consumer.consumer_factory import ConsumerFactory, poll_until, read, values
from tests.waiting import until

NewTopic = Callable[..., str]
Produce = Callable[..., None]

KINDS: list[type[Request[Any]]] = [FetchRequest, JoinGroupRequest, LeaveGroupRequest, ConsumerGroupHeartbeatRequest]
BY_KEY = {kind.api_key: kind for kind in KINDS}


class Wire:
    """Reads back every frame that consumers send, as the broker would."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any]] = []

    def connector(self, config: Any) -> Any:
        """Return a connector that takes the place of `TcpConnector(config)`."""
        tcp = TcpConnector(config)

        async def connect(host: str, port: int, on_frame: Any, on_closed: Any) -> Any:
            return Tap(self, await tcp(host, port, on_frame, on_closed))

        return connect

    def note(self, frame: bytes) -> None:
        header = decode_request_header(frame)
        kind = BY_KEY.get(header.api_key)
        if kind is not None:
            self.sent.append((header.api_version, decode(kind, header.api_version, frame, header.body_offset)))

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for _, message in self.sent if isinstance(message, kind)]

    def version_of(self, kind: type[Any]) -> int:
        (version,) = {version for version, message in self.sent if isinstance(message, kind)}
        return version


class Tap:
    """A stream whose frames are noted before they leave."""

    def __init__(self, wire: Wire, stream: Any) -> None:
        self._wire = wire
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def send(self, parts: Any) -> None:
        self._wire.note(b"".join(parts)[4:])
        self._stream.send(parts)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    monkeypatch.setattr(connection_pool, "TcpConnector", wire.connector)
    return wire


def subscriptions(join: JoinGroupRequest) -> list[ConsumerProtocolSubscription]:
    """Return a member's subscriptions for its leader, one for each assignor."""
    return [
        decode(ConsumerProtocolSubscription, int.from_bytes(bytes(one.metadata)[:2], "big"), bytes(one.metadata), 2)
        for one in join.protocols
    ]


def test_classic_member_sends_reasons_to_join_and_leave(
    wire: Wire, consumers: ConsumerFactory, new_topic: NewTopic, admin: Admin
) -> None:
    topic, group = new_topic(1), f"g-{uuid.uuid4().hex[:8]}"
    consumer = consumers(topic, group_id=group, metadata_max_age_ms=100)
    poll_until([consumer], lambda: len(consumer.assignment()) == 1)
    admin.create_partitions({topic: 2})
    poll_until([consumer], lambda: len(consumer.assignment()) == 2)
    consumer.unsubscribe()
    consumer.subscribe(topic)
    poll_until([consumer], lambda: len(consumer.assignment()) == 2)
    consumer.close()
    assert wire.version_of(JoinGroupRequest) >= 8
    reasons = [join.reason for join in wire.of(JoinGroupRequest)]
    assert reasons[0] == "subscribed"
    assert any(reason and topic in reason for reason in reasons[1:]), reasons
    assert wire.version_of(LeaveGroupRequest) >= 5
    leaving = [member.reason for leave in wire.of(LeaveGroupRequest) for member in leave.members]
    assert leaving == ["the consumer unsubscribed", "the consumer was closed"]


def test_overdue_member_leaves_with_that_reason(wire: Wire, consumers: ConsumerFactory, new_topic: NewTopic) -> None:
    topic = new_topic()
    consumer = consumers(topic, group_id=f"g-{uuid.uuid4().hex[:8]}", max_poll_interval_ms=500)
    with pytest.raises(errors.PollIntervalExceeded):
        poll_until([consumer], lambda: len(consumer.assignment()) == 1)
        until(lambda: consumer.health()["group_state"] != "stable", consumer.health)
        consumer.poll(1)
    until(lambda: wire.of(LeaveGroupRequest), "the member did not leave")
    (reason,) = {member.reason for leave in wire.of(LeaveGroupRequest) for member in leave.members}
    assert "max_poll_interval_ms" in reason


def test_client_rack_reaches_fetches_and_the_leader_of_the_group(
    wire: Wire, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, b"x")
    consumer = consumers(topic, group_id=f"g-{uuid.uuid4().hex[:8]}", client_rack="rack-7")
    assert values(read(consumer, 1)) == [b"x"]
    assert wire.version_of(FetchRequest) >= 11
    assert {fetch.rack_id for fetch in wire.of(FetchRequest)} == {"rack-7"}
    racks = {subscription.rack_id for join in wire.of(JoinGroupRequest) for subscription in subscriptions(join)}
    assert racks == {"rack-7"}


def test_no_rack_is_sent_without_client_rack(
    wire: Wire, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, b"x")
    consumer = consumers(topic, group_id=f"g-{uuid.uuid4().hex[:8]}")
    assert values(read(consumer, 1)) == [b"x"]
    assert {fetch.rack_id for fetch in wire.of(FetchRequest)} == {""}
    assert {one.rack_id for join in wire.of(JoinGroupRequest) for one in subscriptions(join)} == {None}


def test_client_rack_reaches_the_broker_in_the_consumer_protocol(
    wire: Wire, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, b"x")
    group = f"g-{uuid.uuid4().hex[:8]}"
    consumer = consumers(topic, group_id=group, group_protocol="consumer", client_rack="rack-7")
    assert values(read(consumer, 1)) == [b"x"]
    beats = wire.of(ConsumerGroupHeartbeatRequest)
    assert beats[0].rack_id == "rack-7"
    assert {beat.rack_id for beat in beats} <= {"rack-7", None}  # later ones carry changes only


def test_older_broker_gets_requests_that_it_supports(wire: Wire, consumers: ConsumerFactory) -> None:
    with EmbeddedCluster(as_version="2.8") as old, Admin(old.bootstrap_servers) as admin:
        admin.create_topics([pyclient.NewTopic("t")])
        consumer = consumers("t", bootstrap_servers=old.bootstrap_servers, group_id="g", client_rack="rack-7")
        poll_until([consumer], lambda: len(consumer.assignment()) == 1)
        consumer.close()
        assert wire.version_of(JoinGroupRequest) == 7
        assert wire.version_of(LeaveGroupRequest) == 4
        assert {join.reason for join in wire.of(JoinGroupRequest)} == {None}


def test_fetch_requests_follow_the_options(
    wire: Wire, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, b"x")
    consumer = consumers(
        fetch_min_bytes=7, fetch_max_wait_ms=123, fetch_max_bytes=54_321, max_partition_fetch_bytes=4_321,
        isolation_level="read_committed",
    )  # fmt: skip
    consumer.assign([(topic, 0)])
    assert values(read(consumer, 1)) == [b"x"]
    asked = [fetch for fetch in wire.of(FetchRequest) if fetch.topics]
    assert {(fetch.min_bytes, fetch.isolation_level) for fetch in asked} == {(7, 1)}
    assert max(fetch.max_wait_ms for fetch in asked) == 123
    assert all(4_321 <= fetch.max_bytes <= 54_321 for fetch in asked)
    sizes = {one.partition_max_bytes for fetch in asked for named in fetch.topics for one in named.partitions}
    assert sizes == {4_321}


def test_join_request_follows_the_options(wire: Wire, consumers: ConsumerFactory, new_topic: NewTopic) -> None:
    consumer = consumers(
        new_topic(), group_id=f"g-{uuid.uuid4().hex[:8]}", group_instance_id="static-1", session_timeout_ms=7_000,
        max_poll_interval_ms=70_000, partition_assignment_strategy="roundrobin,sticky",
    )  # fmt: skip
    poll_until([consumer], lambda: len(consumer.assignment()) == 1)
    joins = wire.of(JoinGroupRequest)
    assert {(join.session_timeout_ms, join.rebalance_timeout_ms) for join in joins} == {(7_000, 70_000)}
    assert {join.group_instance_id for join in joins} == {"static-1"}
    assert [one.name for one in joins[0].protocols] == ["roundrobin", "sticky"]
