"""The metadata log: appends, restarts, snapshots, and records written by Kafka's controllers."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from pyclient.broker_embedded.controller import records
from pyclient.broker_embedded.controller.image import MetadataImage
from pyclient.broker_embedded.controller.metadata_log import MetadataLog
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.clock import SYSTEM_CLOCK
from pyclient.errors import ConfigError, CorruptRecord
from pyclient.protocol.messages.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    TopicRecord,
)
from pyclient.records import ControlType, build_batch, control_key, iter_batches

FS = RealFileSystem(durable=False)


def opened(directory: Path, image: MetadataImage, *, clean: bool = True, node_id: int = 1) -> MetadataLog:
    return MetadataLog.open(str(directory), image, fs=FS, clock=SYSTEM_CLOCK, node_id=node_id, clean=clean)


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, name))


def topics_after(directory: Path, *batches: list[Any], clean: bool = True) -> set[str]:
    """Append the batches and return the topics after the next start."""
    log = opened(directory, MetadataImage())
    for batch in batches:
        log.append(batch)
    log.close(clean=clean)
    image = MetadataImage()
    opened(directory, image).close()
    return set(image.topics)


@pytest.mark.parametrize("clean", [True, False])
def test_appended_records_are_restored_after_restart(tmp_path: Path, clean: bool) -> None:
    assert topics_after(tmp_path, [topic("a")], [topic("b"), topic("c")], clean=clean) == {"a", "b", "c"}


def test_append_applies_records(tmp_path: Path) -> None:
    image = MetadataImage()
    log = opened(tmp_path, image)
    before = log.end_offset
    log.append([topic("a"), topic("b")])
    assert set(image.topics) == {"a", "b"}
    assert log.end_offset == before + 2
    log.close()


def test_metadata_transaction_applies_when_it_ends(tmp_path: Path) -> None:
    begin, end, abort = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord(reason="no")
    batches = [[begin, topic("kept")], [topic("kept-too"), end], [begin, topic("dropped")], [abort], [topic("after")]]
    assert topics_after(tmp_path, *batches) == {"kept", "kept-too", "after"}


def test_uninterpreted_records_stay_in_log(tmp_path: Path) -> None:
    assert topics_after(tmp_path, [NoOpRecord()], [topic("a")]) == {"a"}
    segment = tmp_path / "__cluster_metadata-0" / f"{0:020}.log"
    assert b"\x01\x14\x00" in segment.read_bytes()


def test_start_begins_epoch_with_leader_change(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        log = opened(tmp_path, MetadataImage())
        assert log.epoch == epoch
        log.close()
    data = (tmp_path / "__cluster_metadata-0" / f"{0:020}.log").read_bytes()
    headers = [header for _, header in iter_batches(data)]
    assert [header.leader_epoch for header in headers] == [1, 2, 3]
    assert all(header.is_control for header in headers)
    state = json.loads((tmp_path / "__cluster_metadata-0" / "quorum-state").read_text())
    assert (state["leaderId"], state["leaderEpoch"], state["data_version"]) == (1, 3, 0)


def test_log_of_several_voters_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    voters = [{"voterId": 1}, {"voterId": 2}, {"voterId": 3}]
    (directory / "quorum-state").write_text(json.dumps({"leaderEpoch": 4, "currentVoters": voters}))
    with pytest.raises(ConfigError, match="quorum of nodes"):
        opened(tmp_path, MetadataImage())


def test_snapshot_is_replayed_before_log(tmp_path: Path) -> None:
    log = opened(tmp_path, MetadataImage())
    log.append([topic("compacted-away")])
    covered = log.end_offset
    log.append([topic("behind")])
    log.close()
    header = (control_key(ControlType.SNAPSHOT_HEADER), b"\0\0" + bytes(9))
    values = [(None, records.encode(topic(name), 30)) for name in ("a", "b")]
    content = build_batch([header], timestamp_ms=0, control=True)
    content += build_batch(values, timestamp_ms=0, base_offset=1)
    folder = tmp_path / "__cluster_metadata-0"
    (folder / f"{0:020}-{0:010}.checkpoint").write_bytes(
        build_batch([(None, records.encode(topic("old"), 30))], timestamp_ms=0)
    )
    (folder / f"{covered:020}-{1:010}.checkpoint").write_bytes(content)
    image = MetadataImage()
    opened(tmp_path, image).close()
    assert set(image.topics) == {"a", "b", "behind"}


def test_lost_log_continues_after_its_snapshot(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    snapshot = build_batch([(None, records.encode(topic("a"), 30))], timestamp_ms=0)
    (folder / f"{500:020}-{3:010}.checkpoint").write_bytes(snapshot)
    image = MetadataImage()
    log = opened(tmp_path, image)
    assert set(image.topics) == {"a"}
    assert log.end_offset == 501
    log.append([topic("b")])
    log.close()
    again = MetadataImage()
    opened(tmp_path, again).close()
    assert set(again.topics) == {"a", "b"}


def test_snapshot_with_flipped_byte_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    snapshot = bytearray(build_batch([(None, records.encode(topic("a"), 30))], timestamp_ms=0))
    snapshot[-3] ^= 1
    (folder / f"{5:020}-{1:010}.checkpoint").write_bytes(snapshot)
    with pytest.raises(CorruptRecord):
        opened(tmp_path, MetadataImage())
