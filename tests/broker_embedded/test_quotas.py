"""Quotas of bytes, of time and of mutations: how they are counted, and the throttle times in answers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controller.client_quotas import MUTATIONS, PRODUCE
from pyclient.broker_embedded.network.quotas import LONGEST_THROTTLE, ByteQuotas, Meter, MutationQuotas, TokenBucket
from pyclient.errors import ThrottlingQuotaExceeded
from pyclient.protocol.messages import alter_client_quotas as alter
from pyclient.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.nodes import node_of

WINDOWS, SECONDS = 11, 1.0
WINDOW = 50  # seconds, of the broker's: how long a request takes on a busy machine does not matter then


def client(client_id: str, user: str = "ANONYMOUS") -> tuple[str, str]:
    return user, client_id


def test_quota_that_was_not_used_may_be_used_at_once() -> None:
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
def test_client_that_waits_its_throttle_time_stays_near_the_quota(steps: list[tuple[float, int]], limit: int) -> None:
    """Over any time, not more than the quota, what was saved up, and the one batch that went above it."""
    meter, now, total = Meter(WINDOWS, SECONDS), 0.0, 0
    largest = max(size for _, size in steps)
    for pause, size in steps:
        now += pause + meter.excess(limit, now + pause)
        meter.add(size, now)
        total += size
        assert meter.excess(limit, now) >= 0
    assert total <= limit * (now + (WINDOWS + 1) * SECONDS) * 2 + 2 * largest


def test_default_quota_applies_to_each_client_and_idle_ones_are_dropped() -> None:
    quotas = ByteQuotas(PRODUCE, {(("client-id", None),): {PRODUCE: 10.0}}, windows=WINDOWS, seconds=SECONDS)
    assert quotas.charge(client("a"), 200, 0.0) > 0
    assert quotas.charge(client("b"), 50, 0.0) == 0
    for number in range(10_001):
        quotas.charge(client(f"c{number}"), 1, 0.0)
    assert quotas.charge(client("a"), 50, 0.0) == 0
    assert "10000 clients" in repr(quotas)


def test_byte_quota_forgets_idle_clients_but_not_throttled_ones() -> None:
    quotas = ByteQuotas(PRODUCE, {(("client-id", None),): {PRODUCE: 10.0}}, windows=WINDOWS, seconds=SECONDS)
    for number in range(100):
        quotas.charge(client(f"c{number}"), 1, 0.0)
    quotas.charge(client("late"), 1000, 5.0)
    quotas.charge(client("new"), 1, WINDOWS * SECONDS)
    assert repr(quotas).endswith("of 2 clients>")
    assert quotas.charge(client("late"), 0, WINDOWS * SECONDS) > 0


def test_no_client_is_remembered_without_quotas() -> None:
    limits = {(("client-id", None),): {PRODUCE: 10.0, MUTATIONS: 1.0}}
    quotas = ByteQuotas(PRODUCE, limits, windows=WINDOWS, seconds=SECONDS)
    mutations = MutationQuotas(limits, windows=WINDOWS, seconds=SECONDS)
    quotas.charge(client("a"), 1, 0.0)
    mutations.of_request(client("a"), 0.0, strict=True).charge(1)
    limits.clear()
    quotas.charge(client("b"), 1, 0.0)
    mutations.of_request(client("b"), 0.0, strict=True).charge(1)
    assert [repr(quotas), repr(mutations)] == [f"<ByteQuotas {PRODUCE} of 0 clients>", "<MutationQuotas of 0 clients>"]


def test_mutation_quota_forgets_clients_with_full_buckets_only() -> None:
    limits = {(("client-id", None),): {MUTATIONS: 1.0}}
    quotas = MutationQuotas(limits, windows=WINDOWS, seconds=SECONDS)
    for number in range(100):
        quotas.of_request(client(f"c{number}"), 0.0, strict=False).charge(2)
    quotas.of_request(client("owes"), 0.0, strict=False).charge(100)
    quotas.of_request(client("new"), 2.0, strict=False).charge(1)
    assert repr(quotas) == "<MutationQuotas of 2 clients>"
    owes = quotas.of_request(client("owes"), 2.0, strict=False)
    owes.charge(1)
    assert owes.wait == pytest.approx(101 - WINDOWS * SECONDS - 2)


def test_charge_counts_although_another_client_came_before_it() -> None:
    quotas = MutationQuotas({(("client-id", None),): {MUTATIONS: 1.0}}, windows=WINDOWS, seconds=SECONDS)
    first = quotas.of_request(client("a"), 0.0, strict=True)  # of a request in many steps
    quotas.of_request(client("b"), 0.0, strict=True).charge(1)
    first.charge(100)
    again = quotas.of_request(client("a"), 0.0, strict=True)
    with pytest.raises(ThrottlingQuotaExceeded):
        again.charge(1)


def test_a_user_s_quota_is_shared_by_the_clients() -> None:
    quotas = ByteQuotas(PRODUCE, {(("user", "ANONYMOUS"),): {PRODUCE: 10.0}}, windows=WINDOWS, seconds=SECONDS)
    assert quotas.charge(client("a"), 90, 0.0) == 0
    assert quotas.charge(client("b"), 90, 0.0) > 0
    assert quotas.charge(client("b", "alice"), 1000, 0.0) == 0


def test_default_quota_of_users_is_counted_for_each_user() -> None:
    quotas = ByteQuotas(PRODUCE, {(("user", None),): {PRODUCE: 10.0}}, windows=WINDOWS, seconds=SECONDS)
    assert quotas.charge(client("a", "alice"), 200, 0.0) > 0
    assert quotas.charge(client("a", "bob"), 50, 0.0) == 0
    assert quotas.charge(client("b", "alice"), 50, 0.0) > 0


def test_quota_of_user_and_client_id_is_counted_for_the_pair() -> None:
    entity = (("client-id", None), ("user", "alice"))
    quotas = ByteQuotas(PRODUCE, {entity: {PRODUCE: 10.0}}, windows=WINDOWS, seconds=SECONDS)
    assert quotas.charge(client("a", "alice"), 200, 0.0) > 0
    assert quotas.charge(client("b", "alice"), 50, 0.0) == 0
    assert quotas.charge(client("a", "bob"), 200, 0.0) == 0
    assert quotas.had_nothing(client("c", "alice"), 0.0)
    assert not quotas.had_nothing(client("a", "alice"), 0.0)
    assert quotas.most_at_once(client("a", "alice")) == 10 * (WINDOWS - 1) * SECONDS
    assert quotas.most_at_once(client("a", "bob")) is None


def test_mutation_quota_of_a_user_is_not_that_of_another() -> None:
    quotas = MutationQuotas({(("user", "alice"),): {MUTATIONS: 1.0}}, windows=WINDOWS, seconds=SECONDS)
    quotas.of_request(client("a", "alice"), 0.0, strict=True).charge(100)
    again = quotas.of_request(client("b", "alice"), 0.0, strict=True)
    with pytest.raises(ThrottlingQuotaExceeded):
        again.charge(1)
    quotas.of_request(client("a", "bob"), 0.0, strict=True).charge(100)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedCluster]:
    """Yield a broker with long quota windows, where throttled clients wait for `advance_time`."""
    with EmbeddedCluster(config={"quota.window.size.seconds": WINDOW}) as cluster:
        yield cluster


@pytest.fixture
def quota(client: Any, broker: Any) -> Any:
    """Set the default quota of client ids, until the end of the test. What was counted before it has expired."""
    node_of(broker).clock.advance(WINDOWS * WINDOW)

    def change(key: str, value: float | None) -> None:
        broker.advance_time(WINDOW)  # clients above their quota are served again
        named = [alter.AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=None)]
        ops = [alter.OpData(key=key, value=value or 0.0, remove=value is None)]
        entry = alter.AlterClientQuotasRequestEntryData(entity=named, ops=ops)
        request = alter.AlterClientQuotasRequest(entries=[entry], validate_only=False)
        assert client.call(request, 1).entries[0].error_code == 0

    yield change
    for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"):
        change(key, None)


def test_producer_above_its_quota_gets_its_throttle_time_and_is_muted(
    broker: Any, connect: Any, topic: str, batch: Any, quota: Any
) -> None:
    from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    quota("producer_byte_rate", 10_000 // WINDOW)
    sender = connect(broker)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch(bytes(102_000)))])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
    response = sender.call(request, 9)
    assert response.responses[0].partition_responses[0].error_code == 0  # what has come is kept
    assert 0 < response.throttle_time_ms < 1000 * WINDOW
    node = node_of(broker)
    [muted] = [each for each in node.connections.values() if each.muted_until is not None]
    sender.send(MetadataRequest(topics=[]), 1)
    broker.advance_time(WINDOW)
    assert sender.receive(MetadataRequest, 1)[0].controller_id == 1  # when the time is over
    assert muted.muted_until is None
    assert connect(broker).call(request, 9).throttle_time_ms > 0  # by another connection, too


def test_a_consumer_above_its_quota_gets_nothing_for_now(
    broker: Any, connect: Any, client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any, quota: Any
) -> None:
    quota("consumer_byte_rate", 1000 // WINDOW)
    for _ in range(30):
        assert produce(client, topic, batch(bytes(1000))).error_code == 0
    reader = connect(broker)
    first = reader.call(fetch_request(topic, {0: 0}), 11)
    size = len(first.responses[0].partitions[0].records)
    assert first.throttle_time_ms == 0
    assert 1000 < size <= 10_000  # what ten windows allow, not what the client asked for
    second = reader.call(fetch_request(topic, {0: 0}, session_epoch=-1), 11)
    assert (second.throttle_time_ms > 0, second.responses) == (True, [])


def test_a_parked_fetch_is_held_to_the_quota_too(
    broker: Any, connect: Any, client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any, quota: Any
) -> None:
    from pyclient.protocol.messages.fetch import FetchRequest

    quota("consumer_byte_rate", 1000 // WINDOW)
    reader = connect(broker)
    reader.send(fetch_request(topic, {0: 0}, max_wait_ms=20_000), 11)
    node = node_of(broker)
    while len(node.purgatory) == 0:
        client.call(MetadataRequest(topics=[]), 1)
    produce(client, topic, batch(bytes(10_500)))
    response = reader.receive(FetchRequest, 11)[0]
    assert response.throttle_time_ms > 0
    assert len(response.responses[0].partitions[0].records) > 10_000  # more than it may have: it would never get on
    again = connect(broker).call(fetch_request(topic, {0: 0}), 11)
    assert (again.throttle_time_ms > 0, again.responses) == (True, [])


def test_a_client_above_its_share_of_the_broker_s_time_is_left_alone(broker: Any, connect: Any, quota: Any) -> None:
    quota("request_percentage", 1e-6)
    busy, node = connect(broker), node_of(broker)

    def throttle_ms(version: int) -> int:
        answer = busy.call(MetadataRequest(topics=[]), version)
        assert answer.controller_id == 1
        assert any(each.muted_until is not None for each in node.connections.values())
        broker.advance_time(WINDOW)
        return int(answer.throttle_time_ms)

    assert [throttle_ms(9), throttle_ms(9)] == [1000 * WINDOW] * 2  # a window, as in Kafka
    assert throttle_ms(1) == 0  # a version without the field
    assert throttle_ms(3) == 1000 * WINDOW
    quota("request_percentage", 100.0)
    broker.advance_time(WINDOWS * WINDOW)
    assert busy.call(MetadataRequest(topics=[]), 9).throttle_time_ms == 0


def test_a_request_that_waits_costs_no_time_of_the_broker(
    broker: Any, connect: Any, client: Any, topic: str, produce: Any, batch: Any, fetch_request: Any, quota: Any
) -> None:
    from pyclient.protocol.messages.fetch import FetchRequest

    quota("request_percentage", 50.0)
    reader, node = connect(broker), node_of(broker)
    reader.send(fetch_request(topic, {0: 0}, max_wait_ms=600_000), 11)
    while len(node.purgatory) == 0:
        client.call(MetadataRequest(topics=[]), 1)
    broker.advance_time(300)
    produce(client, topic, batch(b"x"))
    assert reader.receive(FetchRequest, 11)[0].throttle_time_ms == 0


def test_longer_of_two_throttle_times_is_applied(broker: Any, connect: Any) -> None:
    connect(broker).call(MetadataRequest(topics=[]), 1)

    async def mute() -> tuple[bool, bool]:
        connection = next(iter(node_of(broker).connections.values()))
        connection.mute(600)
        longest = connection.muted_until
        connection.mute(1)
        kept = connection.muted_until == longest
        connection.mute(700)
        replaced = connection.muted_until > longest
        return kept, replaced

    assert asyncio.run_coroutine_threadsafe(mute(), node_of(broker).loop).result(30) == (True, True)


def test_tokens_come_at_the_rate_and_are_owed_when_there_are_too_few() -> None:
    bucket = TokenBucket(11.0)
    bucket.take(12, 1.0, 100.0)
    assert bucket.wait(1.0, 100.0) == pytest.approx(1)
    assert bucket.wait(1.0, 100.5) == pytest.approx(0.5)
    assert bucket.wait(1.0, 1000.0) == 0
    bucket.take(11, 1.0, 1000.0)  # no more than eleven were saved up
    assert bucket.wait(1.0, 1000.0) == 0
    bucket.take(2, 1.0, 1000.0)
    assert bucket.wait(1.0, 1000.0) == pytest.approx(2)


def test_a_strict_request_is_refused_what_another_has_to_wait_for() -> None:
    quotas = MutationQuotas({(("client-id", None),): {MUTATIONS: 2.0}}, windows=11, seconds=1.0)
    first = quotas.of_request(client("a"), 0.0, strict=True)
    first.charge(30)
    assert first.wait == 0
    with pytest.raises(ThrottlingQuotaExceeded):
        first.charge(1)
    assert first.wait == pytest.approx(4)
    other = quotas.of_request(client("a"), 1.0, strict=False)
    other.charge(2)
    assert other.wait == pytest.approx(4)
    quotas.of_request(client("b"), 1.0, strict=True).charge(22)  # each client has a bucket of its own
    free = MutationQuotas({}, windows=11, seconds=1.0).of_request(client("a"), 0.0, strict=True)
    free.charge(10**9)
    assert free.wait == 0
    for number in range(10_001):
        quotas.of_request(client(f"c{number}"), 1.0, strict=True).charge(1)
    assert "10000 clients" in repr(quotas)


def test_topics_and_partitions_are_made_and_deleted_within_the_quota(broker: Any, connect: Any, quota: Any) -> None:
    """The steps and their codes are those of a Kafka 4.3.1."""
    quota("controller_mutation_rate", 1.0)
    client, names = connect(broker), [f"mutated-{n}-{uuid.uuid4().hex}" for n in range(6)]
    refused = ThrottlingQuotaExceeded.code

    def create(*wanted: str, version: int, validate_only: bool = False) -> tuple[list[int], bool]:
        topics = [
            CreatableTopic(name=name, num_partitions=4, replication_factor=1, assignments=[], configs=[])
            for name in wanted
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
        response = client.call(request, version)
        return outcome([each.error_code for each in response.topics], response.throttle_time_ms)

    def grow(name: str, count: int, version: int) -> tuple[list[int], bool]:
        topics = [CreatePartitionsTopic(name=name, count=count, assignments=None)]
        response = client.call(CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=False), version)
        return outcome([each.error_code for each in response.results], response.throttle_time_ms)

    def delete(name: str, version: int) -> tuple[list[int], bool]:
        response = client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=1), version)
        return outcome([each.error_code for each in response.responses], response.throttle_time_ms)

    def outcome(codes: list[int], throttle_ms: int) -> tuple[list[int], bool]:
        broker.advance_time((throttle_ms + 1) / 1000)  # until the throttle time, in whole milliseconds, is over
        return codes, throttle_ms > 0

    assert create(names[0], names[1], version=6, validate_only=True) == ([0, 0], False)
    assert create(names[0], names[1], version=6) == ([0, refused], True)
    assert create(names[2], names[3], version=7) == ([0, refused], True)
    assert create(names[4], version=5) == ([0], True)
    assert create(names[5], version=5) == ([0], True)
    assert delete(names[0], 5) == ([0], False)
    assert delete("nowhere", 5) == ([3], False)
    assert delete(names[2], 5) == ([refused], True)
    assert grow(names[4], 6, 2) == ([0], True)
    assert grow(names[4], 7, 3) == ([0], False)
    assert grow(names[4], 8, 3) == ([refused], True)


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-9, 1.0])
def test_throttle_time_is_limited_with_tiny_quota(limit: float) -> None:
    meter = Meter(WINDOWS, SECONDS)
    meter.add(1e12, 0.0)
    assert meter.excess(limit, 0.0) == LONGEST_THROTTLE
    bucket = TokenBucket(11.0)
    bucket.take(1e12, limit, 0.0)
    assert bucket.wait(limit, 0.0) == LONGEST_THROTTLE
    assert round(LONGEST_THROTTLE * 1000) == 2**31 - 1


@pytest.mark.parametrize("rate", [5e-324, 1e-9])
def test_mutations_are_answered_with_tiny_quota(broker: Any, connect: Any, topic: str, quota: Any, rate: float) -> None:
    quota("controller_mutation_rate", rate)
    answers: list[tuple[int, int]] = []
    for version in (2, 3):
        grown = CreatePartitionsTopic(name=topic, count=2 + version, assignments=None)
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=1, validate_only=False)
        response: Any = connect(broker).call(request, version)
        answers.append((response.results[0].error_code, response.throttle_time_ms))
    for version in (5, 6):
        new = CreatableTopic(
            name=f"{topic}-{version}", num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        response = connect(broker).call(CreateTopicsRequest(topics=[new]), version)
        answers.append((response.topics[0].error_code, response.throttle_time_ms))
    for version in (5, 4):
        response = connect(broker).call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1), version)
        answers.append((response.responses[0].error_code, response.throttle_time_ms))
    refused = ThrottlingQuotaExceeded.code
    assert answers == [(code, 2**31 - 1) for code in (0, refused, 0, refused, refused, 0)]


def test_produce_is_acknowledged_far_above_quota(
    broker: Any, connect: Any, topic: str, quota: Any, produce: Any, batch: Any
) -> None:
    quota("producer_byte_rate", 1.0)
    large = batch(bytes(1_000_000))
    answers = [produce(connect(broker), topic, large) for _ in range(4)]  # four million seconds
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, offset) for offset in range(4)]


def test_quotas_of_others_do_not_matter(client: Any, topic: str, produce: Any, batch: Any) -> None:
    named = [alter.AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=f"x{uuid.uuid4().hex}")]
    ops = [alter.OpData(key="producer_byte_rate", value=1.0, remove=False)]
    entry = alter.AlterClientQuotasRequestEntryData(entity=named, ops=ops)
    assert (
        client.call(alter.AlterClientQuotasRequest(entries=[entry], validate_only=False), 1).entries[0].error_code == 0
    )
    assert produce(client, topic, batch(bytes(100_000))).error_code == 0
    assert client.call(MetadataRequest(topics=[]), 1).controller_id == 1
