"""Kafka's producers, consumers and tools in transactions on our broker, and the same data directory under both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka import tools
from tests.kafka.jars import VERSIONS
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka

PATIENCE: Final = 60.0
RECORDS: Final = 3000


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    """Our broker in a process of its own."""
    with EmbeddedCluster(processes=True) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """The release whose clients are used: 4.x has an epoch for each transaction, 3.x has not."""
    skip_without_kafka(request.param)
    return str(request.param)


def producer(servers: str, transactional_id: str) -> Any:
    from confluent_kafka import Producer

    options = {"bootstrap.servers": servers, "transactional.id": transactional_id}
    made = Producer({"log_level": 0, "transaction.timeout.ms": 900_000, **options})  # longer than five tools take
    made.init_transactions(PATIENCE)
    return made


def transact(sender: Any, topic: str, *values: bytes) -> None:
    """Begin a transaction and write to it."""
    sender.begin_transaction()
    for value in values:
        sender.produce(topic, value, partition=0)
    assert sender.flush(PATIENCE) == 0


def committed(servers: str, topic: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_committed"}
    with closing(Consumer({"log_level": 0, **settings})) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in reader.consume(count, PATIENCE)]


def test_kafkas_producer_and_consumer_transact(ours: str, version: str, topic: str) -> None:
    options = ("--topic", topic, "--num-records", str(RECORDS), "--record-size", "10", "--throughput", "-1")
    transactions = ("--transactional-id", f"perf-{version}", "--transaction-duration-ms", "50")
    tools.run(
        "producer-perf", *options, *transactions, "--producer-props", f"bootstrap.servers={ours}", version=version
    )
    at = ("--bootstrap-server", ours)
    limits = ("--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000")
    read = tools.run(
        "console-consumer", *at, "--topic", topic, *limits, "--isolation-level", "read_committed", version=version
    )
    assert len(read.out.split()) == RECORDS
    described = tools.run("transactions", *at, "describe", "--transactional-id", f"perf-{version}", version=version)
    assert "CompleteCommit" in described.out


def test_kafkas_tool_describes_and_aborts_transactions(ours: str, version: str, topic: str) -> None:
    name = f"tool-{version}"
    silent = producer(ours, name)
    transact(silent, topic, b"never committed")
    at = ("--bootstrap-server", ours)

    def tool(*arguments: str) -> str:
        return tools.run("transactions", *at, *arguments, version=version).out

    assert [line.split()[3] for line in tool("list").splitlines() if line.startswith(name)] == ["Ongoing"]
    described = tool("describe", "--transactional-id", name)
    assert "Ongoing" in described
    assert f"{topic}-0" in described
    rows = tool("describe-producers", "--topic", topic, "--partition", "0").splitlines()
    assert rows[1].split()[-1] == "0"  # the start of the transaction
    assert topic not in tool("find-hanging", "--broker-id", "1")
    tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    after = producer(ours, f"after-{version}")
    transact(after, topic, b"committed")
    after.commit_transaction(PATIENCE)
    assert committed(ours, topic, 1) == [b"committed"]


def test_kafkas_administrator_fences_a_producer(ours: str, topic: str) -> None:
    from confluent_kafka import KafkaException

    skip_without_kafka(VERSIONS[0])
    fenced = producer(ours, "fenced")
    transact(fenced, topic, b"never committed")
    at = ("--bootstrap-server", ours)
    tools.run("transactions", *at, "forceTerminateTransaction", "--transactionalId", "fenced")
    with pytest.raises(KafkaException):
        fenced.commit_transaction(PATIENCE)
    described = tools.run("transactions", *at, "describe", "--transactional-id", "fenced").out
    assert "Ongoing" not in described


def history(servers: str) -> Any:
    """Commit, abort and leave open a transaction. Return the producer of the open one."""
    done, open_one = producer(servers, "done"), producer(servers, "open")
    transact(done, "kept", b"1")
    done.commit_transaction(PATIENCE)
    transact(done, "kept", b"2")
    done.abort_transaction(PATIENCE)
    transact(open_one, "kept", b"3")
    return open_one


def continued(servers: str) -> None:
    """Check that the broker knows the history, aborts the open transaction and serves further ones."""
    assert committed(servers, "kept", 1) == [b"1"]
    producer(servers, "open")
    done = producer(servers, "done")
    transact(done, "kept", b"4")
    done.commit_transaction(PATIENCE)
    assert committed(servers, "kept", 2) == [b"1", b"4"]


def test_kafka_continues_the_transactions_of_our_broker(kafka_tools: None, tmp_path: Path) -> None:
    data = tmp_path / "node1" / "data"
    with EmbeddedCluster(data_dir=str(data), config={"transaction.state.log.num.partitions": "5"}) as cluster:
        open_one = history(cluster.bootstrap_servers)
    del open_one
    with RealKafka(heap="512M", directory=tmp_path) as kafka:
        continued(kafka.bootstrap_servers)


def test_our_broker_continues_the_transactions_of_kafka(kafka_tools: None, tmp_path: Path) -> None:
    with RealKafka(heap="512M", directory=tmp_path) as kafka:
        open_one = history(kafka.bootstrap_servers)
    del open_one
    with EmbeddedCluster(data_dir=str(tmp_path / "node1" / "data")) as cluster:
        continued(cluster.bootstrap_servers)
