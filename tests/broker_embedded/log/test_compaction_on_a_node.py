"""Compaction while a node serves: by itself, in the background, over restarts and kills; and at once, on a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyclient import Consumer, Producer
from pyclient.admin import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.checkpoints import CLEANER_OFFSETS
from pyclient.broker_embedded.log.incremental_task import BlockingCall
from tests.waiting import until

CONFIGS = {"cleanup.policy": "compact", "internal.segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
SETTINGS = {"log.cleaner.backoff.ms": "10", "log.segment.delete.delay.ms": "0"}
ROUNDS = 60


def write(servers: str, rounds: int) -> dict[bytes, bytes]:
    """Write every key again and again; return each one's last value."""
    last = {}
    with Producer(servers, linger_ms=0) as producer:
        for n in range(rounds):
            for key in range(20):
                last[b"%d" % key] = b"%d" % n * 10
                producer.send("t", last[b"%d" % key], key=b"%d" % key)
            producer.flush()
    return last


def read(servers: str, end: int) -> list[tuple[bytes, bytes]]:
    found = []
    with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        while not found or found[-1][0] < end - 1:
            found += [(record.offset, record.key, record.value) for record in consumer.poll(timeout=30)]
    return [(key, value) for _, key, value in found]


def log_bytes(data_dir: Path) -> int | None:
    """Return the size of the log; None if a file is removed meanwhile."""
    try:
        return sum(path.stat().st_size for path in data_dir.glob("t-0/*.log"))
    except FileNotFoundError:
        return None


def wait_until_clean(data_dir: Path, end: int) -> None:
    """Wait until the checkpoint says that all but the active segment is compacted."""
    checkpoint = data_dir / CLEANER_OFFSETS

    def clean() -> bool:
        rows = checkpoint.read_text().split("\n")[2:] if checkpoint.exists() else []
        return any(row.startswith("t 0 ") and int(row.split()[2]) > end for row in rows)

    until(clean, f"not compacted up to {end}")


@pytest.mark.parametrize("processes", [False, True])
def test_a_compacted_topic_stays_small_by_itself_and_survives_a_kill(tmp_path: Path, processes: bool) -> None:
    with EmbeddedCluster(data_dir=str(tmp_path), config=SETTINGS, processes=processes) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("t", 1, 1, configs=CONFIGS)])
        last = write(servers, ROUNDS)
        wait_until_clean(tmp_path, 20 * (ROUNDS - 5))
        until(lambda: (size := log_bytes(tmp_path)) is not None and size < 20_000)
        found = read(servers, 20 * ROUNDS)
        assert len(found) < 300
        assert dict(found) == last
        cluster.kill()
        cluster.start()
        assert dict(read(cluster.bootstrap_servers, 20 * ROUNDS)) == last
    assert not list(tmp_path.glob("t-0/*.cleaned"))


def test_both_policies_together_compact_and_delete(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=str(tmp_path), config=SETTINGS) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("t", 1, 1, configs={**CONFIGS, "cleanup.policy": "compact,delete"})])
        write(servers, ROUNDS)
        wait_until_clean(tmp_path, 20 * (ROUNDS - 5))
        cluster.advance_time(8 * 86_400)
        cluster.retention_now()  # the node may have done it by itself meanwhile
        until(lambda: log_bytes(tmp_path) == 0)


def put(fixture: Any, log: Any, key: bytes, value: bytes | None) -> None:
    log.append(fixture.batch(value, key=key), leader_epoch=0, now_ms=fixture.clock.time_ms())


def test_compact_now_closes_the_active_segment_and_notes_how_far_it_came(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",), delete_retention_ms=1000)
    manager = fixture.start()
    log = manager.create("t", fixture.topic_id, 0, fixture.config)
    for value in (b"1", b"2", None):
        put(fixture, log, b"k", value)
    assert manager.compact_now("other") == 0
    assert manager.compact_now() == 1
    assert [(record.offset, record.value) for record in fixture.records(log)] == [(2, None)]
    fixture.clock.advance(1.1)
    assert manager.compact_now("t") == 1
    assert fixture.records(log) == []
    assert (fixture.root / CLEANER_OFFSETS).read_text() == "0\n1\nt 0 3\n"
    manager.close()
    manager = fixture.start()
    assert manager.get("t", 0).cleaned_to == 3
    log.truncate_to(1)
    assert log.cleaned_to == 1
    manager.close()


def test_unopened_log_is_compacted_if_it_has_something_to_compact(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",))
    for partition in (0, 1):
        manager = fixture.start()
        log = manager.create("t", fixture.topic_id, partition, fixture.config)
        for value in (b"1", b"2"):
            put(fixture, log, b"k", value)
        if partition:
            log.roll()
            put(fixture, log, b"k", b"3")
        manager.close()
    manager = fixture.start()
    steps = manager.compaction_steps(fixture.now)
    answer: Any = None
    with pytest.raises(StopIteration) as end:
        while True:
            step: BlockingCall | None = steps.send(answer)
            answer = step.work() if step is not None else None
    assert end.value.value == 1
    assert [log.partition for log in manager.opened] == [1]
    manager.close()
