"""Files: Kafka's dump-log reads ours without complaint, and our broker opens a data directory that Kafka wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import Producer
from pyclient.admin import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.interop.peers import CODECS, PEERS
from tests.kafka import tools
from tests.kafka.jars import VERSIONS, why_not
from tests.kafka.runner import RealKafka

COMPLAINTS = re.compile(r"mismatch|corrupt|invalid|fail|exception|error|non-consecutive|not found", re.IGNORECASE)
COUNT = 3_000
WITNESS = PEERS[1]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, kafka_tools: None) -> Iterator[Path]:
    """A data directory of our broker after work of every kind: many segments, all codecs, a group, a clean end."""
    data_dir = tmp_path_factory.mktemp("ours")
    with EmbeddedCluster(data_dir=str(data_dir), config={"log.index.interval.bytes": "512"}) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("work", 1, 1, configs={"segment.bytes": str(1 << 20)})])
        for codec in CODECS:
            with Producer(servers, compression_type=codec, batch_size=4096, linger_ms=5) as producer:
                for n in range(COUNT):
                    producer.send("work", b"%d " % n * 60, key=codec.encode(), headers={"n": b"%d" % n})
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
    told = dump(segments, "--deep-iteration", "--print-data-log", version=version)
    offsets = [int(n) for n in re.findall(r"^\| offset: (\d+)", told, re.MULTILINE)]
    assert offsets == list(range(COUNT * len(CODECS)))
    assert "isvalid: false" not in told
    assert set(re.findall(r"compresscodec: (\w+)", told)) == {*CODECS}

    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    told = dump(indexes, version=version)
    assert told.count("Dumping ") == len(indexes)
    assert told.count("offset: ") > 50
    assert not COMPLAINTS.search(told), told[-2000:]
    assert not COMPLAINTS.search(dump(indexes, "--index-sanity-check", version=version))

    snapshots = sorted(folder.glob("*.snapshot"))
    told = dump(snapshots, version=version)
    assert "producerId: " in told
    assert not COMPLAINTS.search(told), told[-2000:]


@pytest.mark.parametrize("version", VERSIONS)
def test_dump_log_reads_our_offsets_and_our_metadata(written: Path, version: str) -> None:
    logs = sorted(path for path in written.glob("**/__consumer_offsets-*/*.log") if path.stat().st_size)
    told = dump(logs, "--offsets-decoder", version=version)
    for group in ("one", "two"):
        assert re.search(rf'"group":"{group}","topic":"work","partition":0.*"offset":100', told), told[-2000:]
    assert '"protocolType":"consumer"' in told
    metadata = sorted(written.glob("**/__cluster_metadata-0/*.log"))
    told = dump(metadata, "--cluster-metadata-decoder", "--skip-record-metadata", version=version)
    assert re.search(r'"type":"TOPIC_RECORD".*"name":"work"', told), told[-2000:]
    assert "PARTITION_RECORD" in told
    assert not re.search(r"Could not|exception|unknown", told, re.IGNORECASE), told[-2000:]


@pytest.mark.parametrize("version", VERSIONS)
def test_our_broker_opens_what_kafka_wrote(version: str, tmp_path: Path) -> None:
    reason = why_not(version)
    if reason:
        pytest.skip(reason)
    sent: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    with RealKafka(version, heap="512M", directory=tmp_path) as kafka:
        servers = kafka.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic(codec, 1, 1, configs={"segment.bytes": str(1 << 20)}) for codec in CODECS])
        for codec in CODECS:
            sent[codec] = [(b"k%d" % n, b"%s %d" % (codec.encode(), n)) for n in range(500)]
            with Producer(servers, compression_type=codec) as producer:
                for key, value in sent[codec]:
                    producer.send(codec, value, key=key)
        WITNESS.read_in_group(servers, "lz4", "readers", 10)
    with EmbeddedCluster(data_dir=str(kafka.data_dir())) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            assert {*CODECS} <= {*admin.list_topics()}
        for codec in CODECS:
            read = [(message.key, message.value) for message in WITNESS.consume(servers, codec, 500)]
            assert read == sent[codec], codec
        assert WITNESS.committed(servers, "lz4", "readers") == 10
        assert WITNESS.read_in_group(servers, "lz4", "readers", 5)[0].key == b"k10"
        with Producer(servers) as producer:
            assert producer.send("lz4", b"more").result(20).offset == 500
