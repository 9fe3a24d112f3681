"""Our producer and consumer on a real Kafka: records to and from Java clients, groups and commits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition, errors
from pyclient.admin import NewTopic
from tests.interop.peers import CODECS, PEERS, Message, Peer
from tests.kafka import tools, topics
from tests.kafka.conftest import Cluster
from tests.kafka.topics import PATIENCE

OURS, OTHERS = PEERS[0], PEERS[1:]


def messages(count: int = 300) -> list[Message]:
    """Return records with every optional part, and then ordinary ones."""
    now = int(time.time() * 1000) - 60_000
    special = [
        Message(b"key", b"value", (), now),
        Message(None, b"no key", (), now + 1),
        Message(b"no value", None, (), now + 2),
        Message(b"", b"", (), now + 3),
        Message("ключ".encode(), "значение".encode(), (("trace", b"1"), ("trace", b"2"), ("é", b"")), now + 4),
        Message(b"bytes", bytes(range(256)), (("raw", bytes(range(255, -1, -1))),), now + 5),
        Message(b"long", b"0123456789abcdef" * 4096, (), now + 6),
    ]
    return special + [Message(b"k%d" % n, b"value %d" % n, (("n", b"%d" % n),), now + n) for n in range(7, count)]


def create(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    topics.create(cluster.bootstrap_servers, NewTopic(topic, partitions, 1))


@pytest.mark.parametrize("codec", CODECS)
def test_other_clients_read_what_we_produce(codec: str, kafka: Cluster, topic: str) -> None:
    create(kafka, topic)
    sent = messages()
    OURS.produce(kafka.bootstrap_servers, topic, codec, sent)
    assert OURS.consume(kafka.bootstrap_servers, topic, len(sent)) == sent
    assert OTHERS[0].consume(kafka.bootstrap_servers, topic, len(sent)) == sent


@pytest.mark.parametrize("codec", CODECS)
def test_consumer_reads_what_other_clients_produce(codec: str, kafka: Cluster, topic: str) -> None:
    create(kafka, topic)
    sent = messages()
    OTHERS[0].produce(kafka.bootstrap_servers, topic, codec, sent)
    assert OURS.consume(kafka.bootstrap_servers, topic, len(sent)) == sent


def test_java_consumer_reads_our_records_in_every_codec(kafka: Cluster, topic: str) -> None:
    lines = []
    for codec in CODECS:
        name = f"{topic}-{codec}"
        create(kafka, name)
        with Producer(kafka.bootstrap_servers, compression_type=codec, linger_ms=50) as producer:
            for n in range(100):
                producer.send(name, f"value {n}".encode(), key=codec.encode(), headers={"n": str(n).encode()})
        lines += [f"n:{n}\t{codec}\tvalue {n}" for n in range(100)]
    shown = tools.shows(kafka.version, headers="true", key="true")
    output = tools.run(
        "console-consumer", "--bootstrap-server", kafka.bootstrap_servers, "--include", f"{topic}-.*", *shown,
        "--from-beginning", "--max-messages", str(len(lines)), "--timeout-ms", "90000", version=kafka.version,
    )  # fmt: skip
    assert Counter(output.out.splitlines()) == Counter(lines)


def test_consumer_reads_javas_records_in_every_codec(kafka: Cluster, topic: str) -> None:
    lines = [f"a:{n},b:x\tkey {n}\tvalue {n}" for n in range(200)]
    for codec in CODECS:
        create(kafka, f"{topic}-{codec}")
    options = tools.parses(kafka.version, key="true", headers="true")
    writers = [
        tools.start(
            "console-producer", "--bootstrap-server", kafka.bootstrap_servers, "--topic", f"{topic}-{codec}",
            "--compression-codec", codec, *options, version=kafka.version,
        )
        for codec in CODECS
    ]  # fmt: skip
    for writer in writers:
        tools.finish(writer, stdin="\n".join(lines) + "\n")
    expected = [(b"key %d" % n, b"value %d" % n, (("a", b"%d" % n), ("b", b"x"))) for n in range(len(lines))]
    for codec in CODECS:
        read = OURS.consume(kafka.bootstrap_servers, f"{topic}-{codec}", len(lines))
        assert [(m.key, m.value, m.headers) for m in read] == expected, codec


@pytest.mark.parametrize("other", OTHERS, ids=lambda peer: peer.name)
def test_groups_continue_from_commits_of_other_clients(other: Peer, kafka: Cluster, topic: str, group: str) -> None:
    servers = kafka.bootstrap_servers
    create(kafka, topic)
    sent = messages(120)
    OURS.produce(servers, topic, "none", sent)
    assert OURS.read_in_group(servers, topic, group, 50) == sent[:50]
    assert other.committed(servers, topic, group) == 50
    assert other.read_in_group(servers, topic, group, 30) == sent[50:80]
    assert OURS.committed(servers, topic, group) == 80
    assert OURS.read_in_group(servers, topic, group, 40) == sent[80:]


def test_two_consumers_share_a_topic_and_groups_tool_shows_it(kafka: Cluster, topic: str, group: str) -> None:
    create(kafka, topic, 4)
    options = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    servers = kafka.bootstrap_servers
    with (
        Consumer(topic, bootstrap_servers=servers, client_id="one", **options) as one,
        Consumer(topic, bootstrap_servers=servers, client_id="two", **options) as two,
    ):
        deadline = time.monotonic() + PATIENCE
        while {len(one.assignment()), len(two.assignment())} != {2}:
            assert time.monotonic() < deadline, f"{one!r} and {two!r} do not share"
            one.poll(0.1)
            two.poll(0.1)
        assert {*one.assignment(), *two.assignment()} == {TopicPartition(topic, n) for n in range(4)}
        with Producer(servers) as producer:
            for n in range(400):
                producer.send(topic, b"%d" % n, partition=n % 4)
        counts = {one: 0, two: 0}
        while sum(counts.values()) < 400:
            assert time.monotonic() < deadline, f"only {counts} came"
            for consumer in counts:
                counts[consumer] += len(consumer.poll(0.1))
        assert set(counts.values()) == {200}
        one.commit()
        two.commit()
        arguments = ("--bootstrap-server", servers, "--describe", "--group", group)
        described = tools.run("groups", *arguments, "--offsets", version=kafka.version)
    rows = [line.split() for line in described.out.splitlines() if line.startswith(group)]
    assert sorted((row[2], row[3], row[4], row[5]) for row in rows) == [(str(n), "100", "100", "0") for n in range(4)]
    assert {row[8] for row in rows} == {"one", "two"}


def test_refused_batch_blames_only_the_records_at_fault(kafka: Cluster, topic: str) -> None:
    topics.create(kafka.bootstrap_servers, NewTopic(topic, 1, 1, configs={"cleanup.policy": "compact"}))
    with Producer(kafka.bootstrap_servers, linger_ms=60_000) as producer:
        futures = [producer.send(topic, b"value", key=key) for key in (b"a", None, b"b")]
        with pytest.raises(errors.DeliveryFailed):
            producer.flush(PATIENCE)
        texts = [str(future.exception(0)) for future in futures]
    assert ["refused this record" in text for text in texts] == [False, True, False]
    assert ["other records can be sent again" in text for text in texts] == [True, False, True]


def test_asyncio_clients_produce_and_consume(kafka: Cluster, topic: str, group: str) -> None:
    create(kafka, topic, 2)

    async def main() -> None:
        servers = kafka.bootstrap_servers
        async with AsyncProducer(servers, compression_type="lz4") as producer:
            futures = [await producer.send(topic, b"%d" % n, key=b"%d" % (n % 7)) for n in range(500)]
            delivered = [await future for future in futures]
        assert {metadata.topic for metadata in delivered} == {topic}
        options = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with AsyncConsumer(topic, bootstrap_servers=servers, **options) as consumer:
            read: list[int] = []
            while len(read) < 500:
                records = await consumer.poll(PATIENCE)
                assert records, f"only {len(read)} of 500 came"
                read += [int(record.value) for record in records]
            await consumer.commit()
        assert sorted(read) == list(range(500))
        async with AsyncConsumer(bootstrap_servers=servers, group_id=group) as consumer:
            partitions = [TopicPartition(topic, n) for n in range(2)]
            committed = await consumer.committed(partitions)
        assert sum(committed[partition].offset for partition in partitions) == 500

    asyncio.run(main())
