"""Transactions as an administrator sees and ends them, by both kinds of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import Admin, AsyncAdmin, Consumer, NewTopic, Producer, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster

PLACE = TopicPartition("admin-tx", 0)


def by_async(servers: str, call: str, *arguments: Any, **options: Any) -> Any:
    async def work() -> Any:
        async with AsyncAdmin(servers) as admin:
            return await getattr(admin, call)(*arguments, **options)

    return asyncio.run(work())


def by_sync(servers: str, call: str, *arguments: Any, **options: Any) -> Any:
    with Admin(servers) as admin:
        return getattr(admin, call)(*arguments, **options)


@pytest.fixture(params=[by_sync, by_async], ids=["sync", "async"])
def admin(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module", params=["4.3", "3.9"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with EmbeddedCluster(as_version=request.param) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(PLACE.topic, 1, 1)])
        yield cluster.bootstrap_servers


@pytest.fixture
def producer(servers: str, request: pytest.FixtureRequest) -> Iterator[Producer]:
    with Producer(servers, transactional_id=request.node.name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(PLACE.topic, b"open").result(30)
        yield producer


def test_open_transactions_are_listed_and_described(
    servers: str, admin: Any, producer: Producer, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    listed = admin(servers, "list_transactions", states=["Ongoing"])
    assert [(each.transactional_id, each.state) for each in listed] == [(name, "Ongoing")]
    known = admin(servers, "describe_transactions", [name])[name]
    assert (known.state, known.partitions, known.timeout_ms) == ("Ongoing", (PLACE,), 60_000)
    assert known.producer_id == listed[0].producer_id == producer.health()["producer_id"]
    assert known.started_ms is not None and known.started_ms > 0
    [active] = [
        each for each in admin(servers, "describe_producers", [PLACE])[PLACE] if each.producer_id == known.producer_id
    ]
    assert active.transaction_start_offset is not None
    producer.commit_transaction()
    assert admin(servers, "list_transactions", states=["Ongoing"]) == []


def test_unknown_transactional_id_is_named(servers: str, admin: Any) -> None:
    with pytest.raises(errors.TransactionalIdNotFound, match="describing transactional id 'nobody'"):
        admin(servers, "describe_transactions", ["nobody"])


def test_fenced_producer_loses_its_transaction(
    servers: str, admin: Any, producer: Producer, request: pytest.FixtureRequest
) -> None:
    admin(servers, "fence_producers", [request.node.name])
    with pytest.raises(errors.ProducerFenced):
        producer.commit_transaction()
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as reader:
        with Consumer(bootstrap_servers=servers) as all_of_it:
            ends = all_of_it.end_offsets([PLACE])
        assert reader.end_offsets([PLACE]) == ends  # nothing is open


def test_transaction_is_ended_in_one_partition(servers: str, admin: Any, producer: Producer) -> None:
    def found() -> Any:
        mine = producer.health()["producer_id"]
        [each] = [each for each in admin(servers, "describe_producers", [PLACE])[PLACE] if each.producer_id == mine]
        return each

    hanging = found()
    admin(servers, "abort_transaction", PLACE, hanging)
    assert (hanging.transaction_start_offset is None, found().transaction_start_offset) == (False, None)
    producer.abort_transaction()
