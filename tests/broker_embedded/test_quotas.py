"""Quotas of bytes a second: how they are counted, and what a client above its quota is told and made to wait."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded.controller.client_quotas import PRODUCE
from pyclient.broker_embedded.quotas import ByteQuotas, Meter
from pyclient.protocol.messages import alter_client_quotas as alter
from pyclient.protocol.messages.metadata import MetadataRequest

WINDOWS, SECONDS = 11, 1.0


def test_what_was_saved_up_may_be_spent_at_once() -> None:
    meter = Meter(WINDOWS, SECONDS)
    meter.add(1000, 0.0)
    assert meter.excess(100, 0.0) == 0  # ten windows of 100 bytes
    meter.add(1000, 0.0)
    assert meter.excess(100, 0.0) == pytest.approx(10)


def test_time_brings_the_rate_down() -> None:
    meter = Meter(WINDOWS, SECONDS)
    meter.add(2000, 0.0)
    waits = [meter.excess(100, now) for now in (0.0, 5.0, 10.5, 11.0)]
    assert waits == [pytest.approx(10), pytest.approx(10), pytest.approx(9.5), 0]


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 10_000)), min_size=1, max_size=60),
    st.integers(1, 500),
)
def test_who_waits_as_long_as_told_stays_near_the_quota(steps: list[tuple[float, int]], limit: int) -> None:
    """Over any time, not more than the quota, what was saved up, and the one batch that went above it."""
    meter, now, total = Meter(WINDOWS, SECONDS), 0.0, 0
    largest = max(size for _, size in steps)
    for pause, size in steps:
        now += pause + meter.excess(limit, now + pause)
        meter.add(size, now)
        total += size
        assert meter.excess(limit, now) >= 0
    assert total <= limit * (now + (WINDOWS + 1) * SECONDS) * 2 + 2 * largest


def test_a_default_is_everybody_s_own_and_clients_are_forgotten_in_the_end() -> None:
    quotas = ByteQuotas(PRODUCE, {(("client-id", None),): {PRODUCE: 10.0}}, windows=WINDOWS, seconds=SECONDS)
    assert quotas.charge("a", 200, 0.0) > 0
    assert quotas.charge("b", 50, 0.0) == 0
    for number in range(10_001):
        quotas.charge(f"c{number}", 1, 0.0)
    assert quotas.charge("a", 50, 0.0) == 0
    assert "10000 clients" in repr(quotas)


def test_a_user_s_quota_is_shared_by_the_clients() -> None:
    quotas = ByteQuotas(PRODUCE, {(("user", "ANONYMOUS"),): {PRODUCE: 10.0}}, windows=WINDOWS, seconds=SECONDS)
    assert quotas.charge("a", 90, 0.0) == 0
    assert quotas.charge("b", 90, 0.0) > 0


@pytest.fixture
def quota(client: Any, broker: Any) -> Any:
    """Sets a quota of everybody without one; it goes with the test, and what was counted before it, too."""
    broker._runner.node.clock.advance(60)

    def change(key: str, value: float | None) -> None:
        named = [alter.AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=None)]
        ops = [alter.OpData(key=key, value=value or 0.0, remove=value is None)]
        entry = alter.AlterClientQuotasRequestEntryData(entity=named, ops=ops)
        request = alter.AlterClientQuotasRequest(entries=[entry], validate_only=False)
        assert client.call(request, 1).entries[0].error_code == 0

    yield change
    for key in ("producer_byte_rate", "consumer_byte_rate"):
        change(key, None)


def test_a_producer_above_its_quota_is_answered_told_and_not_heard(
    broker: Any, connect: Any, topic: str, batch: Any, quota: Any
) -> None:
    from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    quota("producer_byte_rate", 10_000.0)
    sender = connect(broker)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch(bytes(102_000)))])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
    response = sender.call(request, 9)
    assert response.responses[0].partition_responses[0].error_code == 0  # what has come is kept
    assert 0 < response.throttle_time_ms < 1000
    node = broker._runner.node
    [muted] = [each for each in node.connections.values() if each._muted is not None]
    sender.send(MetadataRequest(topics=[]), 1)
    assert sender.receive(MetadataRequest, 1)[0].controller_id == 1  # when the time is over
    assert muted._muted is None
    assert connect(broker).call(request, 9).throttle_time_ms > 0  # by another connection, too


def test_a_consumer_above_its_quota_gets_nothing_for_now(
    broker: Any, connect: Any, client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any, quota: Any
) -> None:
    for _ in range(30):
        assert produce(client, topic, batch(bytes(1000))).error_code == 0
    quota("consumer_byte_rate", 1000.0)
    reader = connect(broker)
    first = reader.call(fetch_request(topic, {0: 0}), 11)
    size = len(first.responses[0].partitions[0].records)
    assert first.throttle_time_ms == 0
    assert 1000 < size <= 10_000  # what ten windows allow, whatever the client asked for
    second = reader.call(fetch_request(topic, {0: 0}, session_epoch=-1), 11)
    assert (second.throttle_time_ms > 0, second.responses) == (True, [])


def test_a_parked_fetch_is_held_to_the_quota_too(
    broker: Any, connect: Any, client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any, quota: Any
) -> None:
    from pyclient.protocol.messages.fetch import FetchRequest

    quota("consumer_byte_rate", 1000.0)
    reader = connect(broker)
    reader.send(fetch_request(topic, {0: 0}, max_wait_ms=20_000), 11)
    node = broker._runner.node
    while len(node.purgatory) == 0:
        client.call(MetadataRequest(topics=[]), 1)
    produce(client, topic, batch(bytes(10_500)))
    response = reader.receive(FetchRequest, 11)[0]
    assert response.throttle_time_ms > 0
    assert len(response.responses[0].partitions[0].records) > 10_000  # more than it may have: it would never get on
    again = connect(broker).call(fetch_request(topic, {0: 0}), 11)
    assert (again.throttle_time_ms > 0, again.responses) == (True, [])


def test_quotas_of_others_do_not_matter(client: Any, topic: str, produce: Any, batch: Any) -> None:
    named = [alter.AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=f"x{uuid.uuid4().hex}")]
    ops = [alter.OpData(key="producer_byte_rate", value=1.0, remove=False)]
    entry = alter.AlterClientQuotasRequestEntryData(entity=named, ops=ops)
    assert (
        client.call(alter.AlterClientQuotasRequest(entries=[entry], validate_only=False), 1).entries[0].error_code == 0
    )
    assert produce(client, topic, batch(bytes(100_000))).error_code == 0
    assert client.call(MetadataRequest(topics=[]), 1).controller_id == 1
