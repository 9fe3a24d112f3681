"""Compaction compared with Kafka's: equal batches leave equal records, and each reads the other's compacted files."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient.admin import NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import BatchBuilder, Compression, decode_batch, iter_batches
from tests.broker_embedded.groups.raw import RawConnection
from tests.interop.peers import PEERS
from tests.kafka.jars import VERSIONS
from tests.kafka.runner import RealKafka
from tests.kafka.test_files import COMPLAINTS, dump
from tests.kafka.topics import create, wait_until

WITNESS = PEERS[1]
BATCHES = 900
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(1 << 40),  # tombstones stay: their removal depends on the clock
    "index.interval.bytes": "2000",
    "file.delete.delay.ms": "0",
}
SETTINGS = {"log.cleaner.backoff.ms": "50"}
Row = tuple[int, bytes, bytes | None]


def prepared() -> Iterator[bytes]:
    """Batches of every codec, with keys that come again, tombstones, and an idempotent producer; always the same."""
    rng, sequence = random.Random(11), 0
    for n in range(BATCHES):
        builder, count = BatchBuilder(bytearray(1 << 16), None), rng.randrange(1, 40)
        for _ in range(count):
            value = None if rng.random() < 0.05 else rng.randbytes(rng.randrange(400))
            assert builder.append(1_700_000_000_000 + n * 1000, b"key %d" % rng.randrange(2000), value, (("h", b"x"),))
        if n % 3:
            yield bytes(builder.seal(compression=Compression(n % 5)))
        else:
            producer = {"producer_id": 2007, "producer_epoch": 0, "base_sequence": sequence}
            yield bytes(builder.seal(compression=Compression(n % 5), **producer))
            sequence += count


def produce(servers: str) -> dict[bytes, bytes | None]:
    """Produce all of them, one request each; return each key's last value."""
    last: dict[bytes, bytes | None] = {}
    create(servers, NewTopic("compacted", 1, 1, configs=CONFIGS))
    with RawConnection(servers) as connection:
        for batch in prepared():
            data = [PartitionProduceData(index=0, records=batch)]
            topics = [TopicProduceData(name="compacted", partition_data=data)]
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
            assert connection.ask(request, 9).responses[0].partition_responses[0].error_code == 0
            last |= {record.key: record.value for record in stored(batch)}
    return last


def stored(content: bytes) -> list[Any]:
    return [record for at, header in iter_batches(content) for record in decode_batch(content, at, header, "", -1)]


def records_in(folder: Path) -> list[Row]:
    """Return the records in a partition's files."""
    files = sorted(folder.glob("*.log"))
    return [(record.offset, record.key, record.value) for path in files for record in stored(path.read_bytes())]


def wait_until_clean(data_dir: Path) -> None:
    """Wait until all but the active segment is compacted."""

    def is_clean() -> bool:
        active = max(int(path.stem) for path in data_dir.glob("compacted-0/*.log"))
        checkpoint = data_dir / "cleaner-offset-checkpoint"
        return checkpoint.exists() and f"compacted 0 {active}\n" in checkpoint.read_text()

    wait_until(is_clean, f"{data_dir}: not compacted")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, kafka_tools: None) -> tuple[Path, dict[bytes, bytes | None]]:
    """A data directory of our broker that was compacted, and what each key had last."""
    data_dir = tmp_path_factory.mktemp("ours")
    with EmbeddedCluster(data_dir=str(data_dir), config=SETTINGS) as cluster:
        last = produce(cluster.bootstrap_servers)
        wait_until_clean(data_dir)
    return data_dir, last


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a real Kafka."""
    with RealKafka(heap="512M", settings=SETTINGS, directory=tmp_path_factory.mktemp("theirs")) as kafka:
        produce(kafka.bootstrap_servers)
        wait_until_clean(kafka.data_dir())
    return kafka.data_dir()


def test_compaction_keeps_the_records_that_kafka_keeps(ours: Any, theirs: Path) -> None:
    data_dir, last = ours
    found = records_in(data_dir / "compacted-0")
    assert {key: value for _, key, value in found} == last
    assert found == records_in(theirs / "compacted-0")
    assert len(found) < BATCHES * 10, "the test needs much to be compacted"


@pytest.mark.parametrize("version", VERSIONS)
def test_dump_log_reads_our_compacted_segments(ours: Any, version: str) -> None:
    folder = ours[0] / "compacted-0"
    segments = sorted(folder.glob("*.log"))
    output = dump(segments, "--deep-iteration", "--print-data-log", version=version)
    offsets = [int(n) for n in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert offsets == [offset for offset, *_ in records_in(folder)]
    assert "deleteHorizonMs: OptionalLong[" in output
    assert "isvalid: false" not in output
    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    output = dump(indexes, version=version)
    assert output.count("offset: ") > 50
    assert not COMPLAINTS.search(output), output[-2000:]
    assert not COMPLAINTS.search(dump(indexes, "--index-sanity-check", version=version))


def test_compacted_directories_open_in_both_brokers(ours: Any, theirs: Path, tmp_path: Path) -> None:
    expected = [(key, value) for _, key, value in records_in(ours[0] / "compacted-0")]
    shutil.copytree(ours[0], tmp_path / "node1" / "data")
    with RealKafka(heap="512M", directory=tmp_path) as kafka:
        read = WITNESS.consume(kafka.bootstrap_servers, "compacted", len(expected))
        assert [(message.key, message.value) for message in read] == expected
    copy = shutil.copytree(theirs, tmp_path / "copy")
    with EmbeddedCluster(data_dir=str(copy)) as cluster:
        read = WITNESS.consume(cluster.bootstrap_servers, "compacted", len(expected))
        assert [(message.key, message.value) for message in read] == expected
