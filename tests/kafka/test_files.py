"""Files: Kafka's tools read ours, the same work makes the same bytes, and each opens the other's data directory."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pyclient import Producer
from pyclient.admin import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import BatchBuilder, Compression
from tests.broker_embedded.groups.raw import RawConnection
from tests.interop.peers import CODECS, PEERS
from tests.kafka import tools
from tests.kafka.jars import VERSIONS
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka
from tests.kafka.topics import PATIENCE, create

COMPLAINTS = re.compile(r"mismatch|corrupt|invalid|fail|exception|error|non-consecutive|not found", re.IGNORECASE)
COUNT = 3_000
WITNESS = PEERS[1]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, kafka_tools: None) -> Iterator[Path]:
    """A data directory of our broker after work of every kind: many segments, all codecs, a group, a clean end."""
    data_dir = tmp_path_factory.mktemp("ours")
    with EmbeddedCluster(data_dir=str(data_dir), config={"log.index.interval.bytes": "512"}) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, NewTopic("work", 1, 1, configs={"segment.bytes": str(1 << 20)}))
        for codec in CODECS:
            with Producer(servers, compression_type=codec, batch_size=4096, linger_ms=5) as producer:
                for n in range(COUNT):
                    producer.send("work", b"%d " % n * 60, key=codec.encode(), headers={"n": b"%d" % n})
        produce_prepared(servers)
        for group in ("one", "two"):
            WITNESS.read_in_group(servers, "work", group, 100)
    yield data_dir


def dump(files: list[Path], *options: str, version: str) -> str:
    output = tools.run("dump-log", *options, "--files", ",".join(map(str, files)), version=version)
    return output.out + output.err


@pytest.mark.parametrize("version", VERSIONS)
def test_dump_log_reads_our_segments_and_indexes(written: Path, version: str) -> None:
    folder = next(written.glob("**/work-0"))
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 1, "the test wants several segments"
    dumped = dump(segments, "--deep-iteration", "--print-data-log", version=version)
    offsets = [int(n) for n in re.findall(r"^\| offset: (\d+)", dumped, re.MULTILINE)]
    assert offsets == list(range(COUNT * len(CODECS)))
    assert "isvalid: false" not in dumped
    assert set(re.findall(r"compresscodec: (\w+)", dumped)) == {*CODECS}

    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    dumped = dump(indexes, version=version)
    assert dumped.count("Dumping ") == len(indexes)
    assert dumped.count("offset: ") > 50
    assert not COMPLAINTS.search(dumped), dumped[-2000:]
    assert not COMPLAINTS.search(dump(indexes, "--index-sanity-check", version=version))

    snapshots = sorted(folder.glob("*.snapshot"))
    dumped = dump(snapshots, version=version)
    assert "producerId: " in dumped
    assert not COMPLAINTS.search(dumped), dumped[-2000:]


@pytest.mark.parametrize("version", VERSIONS)
def test_dump_log_reads_our_offsets_and_our_metadata(written: Path, version: str) -> None:
    logs = sorted(path for path in written.glob("**/__consumer_offsets-*/*.log") if path.stat().st_size)
    dumped = dump(logs, "--offsets-decoder", version=version)
    for group in ("one", "two"):
        assert re.search(rf'"group":"{group}","topic":"work","partition":0.*"offset":100', dumped), dumped[-2000:]
    assert '"protocolType":"consumer"' in dumped
    metadata = sorted(written.glob("**/__cluster_metadata-0/*.log"))
    dumped = dump(metadata, "--cluster-metadata-decoder", "--skip-record-metadata", version=version)
    assert re.search(r'"type":"TOPIC_RECORD".*"name":"work"', dumped), dumped[-2000:]
    assert "PARTITION_RECORD" in dumped
    assert not re.search(r"Could not|exception|unknown", dumped, re.IGNORECASE), dumped[-2000:]


class Theirs(NamedTuple):
    """A data directory of a real Kafka, and what was sent to each topic."""

    data_dir: Path
    sent: dict[str, list[tuple[bytes | None, bytes | None]]]


@pytest.fixture(scope="module", params=VERSIONS)
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    """The data directory of a real Kafka of each release: all codecs, a group, prepared batches, a clean end."""
    skip_without_kafka(request.param)
    sent: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    with RealKafka(request.param, heap="512M", directory=tmp_path_factory.mktemp("theirs")) as kafka:
        servers = kafka.bootstrap_servers
        create(servers, *[NewTopic(codec, 1, 1) for codec in CODECS])
        for codec in CODECS:
            sent[codec] = [(b"k%d" % n, b"%s %d" % (codec.encode(), n)) for n in range(500)]
            with Producer(servers, compression_type=codec) as producer:
                for key, value in sent[codec]:
                    producer.send(codec, value, key=key)
        WITNESS.read_in_group(servers, "lz4", "readers", 10)
        produce_prepared(servers)
    return Theirs(kafka.data_dir(), sent)


def prepared_batches() -> Iterator[bytes]:
    """Batches of every codec and size, every other one of an idempotent producer; always the same."""
    rng, sequence = random.Random(5), 0
    start_ms = 1_700_000_000_000
    for n in range(400):
        builder, count = BatchBuilder(bytearray(1 << 16), None), rng.randrange(1, 40)
        for index in range(count):
            timestamp_ms = start_ms + n * 1000 + rng.randrange(2000)
            handle = builder.append(timestamp_ms, b"k%d" % index, rng.randbytes(rng.randrange(300)), (("h", b"x"),))
            assert handle is not None
        if n % 2:
            yield bytes(builder.seal(compression=Compression(n % 5)))
        else:
            producer = {"producer_id": 1007, "producer_epoch": 0, "base_sequence": sequence}
            yield bytes(builder.seal(compression=Compression(n % 5), **producer))
            sequence += count


def produce_prepared(servers: str) -> None:
    """The prepared batches, one request each, into a topic whose segments and indexes have much to do."""
    configs = {"segment.bytes": str(1 << 20), "index.interval.bytes": "2000", "retention.ms": "-1"}
    create(servers, NewTopic("prepared", 1, 1, configs=configs))
    with RawConnection(servers) as connection:
        for batch in prepared_batches():
            data = [PartitionProduceData(index=0, records=batch)]
            topics = [TopicProduceData(name="prepared", partition_data=data)]
            answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0


def test_same_batches_produce_identical_files(written: Path, theirs: Theirs) -> None:
    ours, kafkas = written / "prepared-0", theirs.data_dir / "prepared-0"
    names = {path.name for path in kafkas.iterdir()}
    assert {path.name for path in ours.iterdir()} == names
    assert len([name for name in names if name.endswith(".log")]) == 2
    for name in sorted(names - {"partition.metadata"}):  # which holds the topic's own id
        assert (ours / name).read_bytes() == (kafkas / name).read_bytes(), name


def test_our_broker_opens_a_directory_of_kafka(theirs: Theirs, tmp_path: Path) -> None:
    data_dir = shutil.copytree(theirs.data_dir, tmp_path / "data")
    with EmbeddedCluster(data_dir=str(data_dir)) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            assert {*CODECS, "prepared"} == {*admin.list_topics()}
        for codec in CODECS:
            read = [(message.key, message.value) for message in WITNESS.consume(servers, codec, 500)]
            assert read == theirs.sent[codec], codec
        assert WITNESS.committed(servers, "lz4", "readers") == 10
        assert WITNESS.read_in_group(servers, "lz4", "readers", 5)[0].key == b"k10"
        with Producer(servers) as producer:
            assert producer.send("lz4", b"more").result(PATIENCE).offset == 500


def test_kafka_opens_a_directory_of_our_broker(written: Path, tmp_path: Path) -> None:
    """The emulated release; older ones do not know its metadata.version, nor Kafka's own."""
    shutil.copytree(written, tmp_path / "node1" / "data")
    with RealKafka(heap="512M", directory=tmp_path) as kafka:
        servers = kafka.bootstrap_servers
        read = WITNESS.consume(servers, "work", COUNT * len(CODECS))
        assert [message.key for message in read[::COUNT]] == [codec.encode() for codec in CODECS]
        assert [message.headers for message in read] == [(("n", b"%d" % n),) for n in range(COUNT)] * len(CODECS)
        for group in ("one", "two"):
            assert WITNESS.committed(servers, "work", group) == 100
        with Producer(servers) as producer:
            assert producer.send("work", b"more").result(PATIENCE).offset == COUNT * len(CODECS)


def test_kafka_3_9_opens_a_directory_that_we_wrote_as_3_9(tmp_path: Path) -> None:
    """The log keeps its feature level also after our newer broker has opened it and created a topic."""
    data_dir = tmp_path / "node1" / "data"
    version, names = VERSIONS[1], [f"made-{n}" for n in range(2)]
    skip_without_kafka(version)
    for as_version, name in zip((version, None), names, strict=True):
        with EmbeddedCluster(data_dir=str(data_dir), as_version=as_version) as cluster:
            with Admin(cluster.bootstrap_servers) as admin:
                admin.create_topics([NewTopic(name, 1, 1)])
            with Producer(cluster.bootstrap_servers) as producer:
                producer.send(name, name.encode()).result(20)
        with RealKafka(version, heap="512M", directory=tmp_path) as kafka:
            read = [message.value for message in WITNESS.consume(kafka.bootstrap_servers, name, 1)]
            assert read == [name.encode()]
