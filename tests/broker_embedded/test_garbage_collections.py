"""Garbage collections in a broker's process: short, and with nothing to do for closed connections."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.foreground import GarbageCollections
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.nodes import node_of
from tests.broker_embedded.topics import create
from tests.waiting import until


@pytest.fixture
def thawed() -> Iterator[None]:
    """Thaw all objects; after the test freeze those that live, as after the collection of the tests."""
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize(
    ("generation", "seconds", "frozen"), [(2, 0.006, True), (2, 0.004, False), (1, 0.006, False), (0, 0.006, False)]
)
def test_survivors_of_long_full_collection_are_frozen(generation: int, seconds: float, frozen: bool) -> None:
    times = iter([5.0, 5.0 + seconds])
    collections = GarbageCollections(lambda: next(times))
    before = gc.get_freeze_count()
    collections.note("start", {"generation": generation})
    collections.note("stop", {"generation": generation})
    assert (gc.get_freeze_count() > before + 1000) == frozen


SURVIVORS = """
import gc
from pyclient.broker_embedded.cluster.foreground import GarbageCollections

ticks = iter(range(1 << 30))  # every full collection seems to take a second
GarbageCollections(lambda: next(ticks)).install()
walked = []

def note(phase, info):
    if phase == "start" and info["generation"] == 2:
        walked.append(sum(len(gc.get_objects(generation)) for generation in range(3)))

gc.callbacks.append(note)
alive = [[] for _ in range(500_000)]
print(len(walked), max(walked))
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="3.14 collects in increments")
def test_growing_heap_is_collected_in_small_parts() -> None:
    output = subprocess.run([sys.executable, "-c", SURVIVORS], check=True, capture_output=True, text=True).stdout
    count, most = map(int, output.split())
    assert count >= 20
    assert most < 50_000


def test_closed_connection_is_freed_without_collection(connect: Any) -> None:
    with EmbeddedCluster() as cluster:
        client = connect(cluster)
        assert client.call(MetadataRequest(topics=[]), 9).controller_id == 1
        connections = node_of(cluster).connections
        [connection] = map(weakref.ref, connections.values())
        gc.disable()
        try:
            client.close()
            until(lambda: not connections)
            until(lambda: connection() is None)
        finally:
            gc.enable()


def test_log_of_deleted_topic_is_freed_after_a_fetch_waited_for_it(connect: Any, fetch_request: Any) -> None:
    with EmbeddedCluster() as cluster:
        client = connect(cluster)
        create(client, "short-lived")
        gc.disable()
        try:
            waited = client.call(fetch_request("short-lived", {0: 0}, max_wait_ms=10), 11)
            assert waited.responses[0].partitions[0].error_code == 0
            logs = [log for log in gc.get_objects() if isinstance(log, UnifiedLog) and log.topic == "short-lived"]
            [log] = map(weakref.ref, logs)
            del logs
            assert log() is not None
            [deleted] = client.call(DeleteTopicsRequest(topic_names=["short-lived"], timeout_ms=1000), 5).responses
            assert deleted.error_code == 0
            until(lambda: log() is None)
        finally:
            gc.enable()
