"""The clients of workers: kept for the next task, fetches that suit a range, and collections without loaded modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark.clients import WorkerClients
from pyclient.spark.reading import consumer_options
from tests.forks import fork
from tests.reading import read_all
from tests.waiting import until


def producers(idle_seconds: float = 3600.0) -> WorkerClients[Producer]:
    return WorkerClients(lambda options: Producer(config=options), idle_seconds)


def test_a_client_serves_one_task_after_another(kafka_cluster: EmbeddedCluster, kafka_topic: str) -> None:
    clients, servers = producers(), kafka_cluster.bootstrap_servers
    options = {"bootstrap.servers": servers, "linger.ms": "5"}
    first = clients.take(options)
    first.send(kafka_topic, b"a").result(30)
    second = clients.take(dict(options))
    assert second is not first  # the first task has not ended
    clients.give_back(options, first)
    other = clients.take({**options, "linger.ms": "6"})
    assert other is not first
    again = clients.take(dict(reversed(options.items())))
    assert again is first
    again.send(kafka_topic, b"b").result(30)
    for client in (first, second, other):
        client.close()
    assert [record.value for record in read_all(servers, kafka_topic, 1)] == [b"a", b"b"]


def test_a_client_of_the_parent_process_is_not_taken_after_a_fork() -> None:
    clients, options = producers(), {"bootstrap.servers": "h:9092"}
    client = clients.take(options)
    clients.give_back(options, client)
    child = fork()
    if not child:
        os._exit(0 if clients.take(options) is not client else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert clients.take(options) is client
    client.close()


def test_an_idle_client_is_closed_and_not_taken_again() -> None:
    clients, options = producers(idle_seconds=0.01), {"bootstrap.servers": "h:9092"}
    client = clients.take(options)
    assert not client.closed
    clients.give_back(options, client)
    until(lambda: client.closed)
    later = clients.take(options)
    assert later is not client
    later.close()


def test_secrets_are_resolved_when_a_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERS", "h:9092")
    made: list[dict[str, str]] = []

    def make(options: dict[str, str]) -> Producer:
        made.append(options)
        return Producer(config=options)

    WorkerClients(make).take({"bootstrap.servers": "env:BROKERS"}).close()
    assert made == [{"bootstrap.servers": "h:9092"}]


@pytest.mark.parametrize(
    ("offsets", "expected"), [(250, 131_072), (1_001, 1_048_576), (20_001, 4_194_304), (None, 4_194_304)]
)
def test_fetches_of_a_small_range_are_small(offsets: int | None, expected: int) -> None:
    assert consumer_options({}, offsets)["max.partition.fetch.bytes"] == str(expected)


def test_a_size_of_fetches_that_is_given_counts() -> None:
    assert consumer_options({"max.partition.fetch.bytes": "9"}, 250)["max.partition.fetch.bytes"] == "9"


def printed(program: str) -> str:
    """Return what a process of its own prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


DAEMON = """
import gc, json, sys
from types import SimpleNamespace
from pyclient.spark.clients import freeze_loaded_objects
freeze_loaded_objects()
before = gc.get_freeze_count()
sys.modules["__main__"].__spec__ = SimpleNamespace(name="pyspark.daemon")
freeze_loaded_objects()
once = gc.get_freeze_count()
later = [[] for _ in range(10_000)]
freeze_loaded_objects()
more = gc.get_freeze_count() - once
import xml.dom.minidom
freeze_loaded_objects()
print(json.dumps([before, once, more, gc.get_freeze_count() - once]))
"""


def test_only_workers_of_spark_leave_out_of_collections_what_they_load() -> None:
    found = printed(DAEMON)
    before, once, without_modules, with_modules = json.loads(found)
    assert before == 0
    assert once > 1000
    assert without_modules < 1000
    assert with_modules > 10_000


def test_the_data_source_is_imported_without_the_clients() -> None:
    loaded = "import sys, pyspark_pyclient; print([name for name in sys.modules if name.startswith('pyclient')])"
    found = printed(loaded)
    assert "pyclient.spark.data_source" in found
    assert "pyclient.producer" not in found
    assert "pyclient.consumer" not in found
    assert "pyclient.net" not in found
