"""The public API's promises, tested from outside with the cluster in threads and in processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import Admin, AsyncConsumer, AsyncProducer, Consumer, NewTopic, Producer, errors, serialization
from pyclient.broker_embedded import EmbeddedCluster
from tests.forks import fork

UNTIL_EXIT = """
import sys
from pyclient import Consumer, Producer
from pyclient.broker_embedded import EmbeddedCluster
"""


def run_script(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", UNTIL_EXIT + body, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def in_child(action: Callable[[], None]) -> None:
    """Run the action in a forked child and assert that it succeeds."""
    child = fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("timestamp", [-1, 1.5, "5"])
def test_invalid_timestamp_is_refused(timestamp: Any, kafka_cluster: EmbeddedCluster) -> None:
    with Producer(kafka_cluster.bootstrap_servers) as producer:
        with pytest.raises(ValueError, match="milliseconds since the epoch"):
            producer.send("timestamps", b"value", timestamp_ms=timestamp)
        with pytest.raises(ValueError, match="milliseconds since the epoch"):
            producer.send_many("timestamps", [b"value"], timestamps_ms=[timestamp])


def test_topic_or_partition_of_wrong_type_is_refused_by_type(kafka_cluster: EmbeddedCluster) -> None:
    with Producer(kafka_cluster.bootstrap_servers) as producer:
        producer.send("typed", b"value").result(30)
        with pytest.raises(errors.InvalidTopic, match="named by a str"):
            producer.send(["typed"], b"value")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="a partition is a number"):
            producer.send("typed", b"value", partition="0")  # type: ignore[arg-type]


def test_create_topics_requires_new_topic(kafka_cluster: EmbeddedCluster) -> None:
    with Admin(kafka_cluster.bootstrap_servers) as admin:
        for wrong in (["plain"], "plain", NewTopic("plain")):
            with pytest.raises(TypeError, match="NewTopic"):
                admin.create_topics(wrong)  # type: ignore[arg-type]


def test_commit_async_accepts_callback_before_or_after_offsets(
    kafka_cluster: EmbeddedCluster, kafka_topic: str
) -> None:
    servers = kafka_cluster.bootstrap_servers
    with Producer(servers) as producer:
        producer.send(kafka_topic, b"value")
    outcomes: list[tuple[int, Exception | None]] = []

    def note(offsets: Any, error: Exception | None) -> None:
        outcomes.append((offsets[(kafka_topic, 0)].offset, error))

    with Consumer(kafka_topic, bootstrap_servers=servers, group_id=kafka_topic, auto_offset_reset="earliest") as reader:
        assert len(reader.poll(timeout=None)) == 1  # no limit: blocks until the record arrives
        reader.commit_async(note)
        reader.commit_async({(kafka_topic, 0): 0}, note)  # type: ignore[dict-item]
        reader.commit_async(callback=note)
    assert outcomes == [(1, None), (0, None), (1, None)]


def test_async_poll_without_limit_waits_for_record(kafka_cluster: EmbeddedCluster, kafka_topic: str) -> None:
    async def read() -> list[bytes | None]:
        servers = kafka_cluster.bootstrap_servers
        async with (
            AsyncProducer(servers) as producer,
            AsyncConsumer(kafka_topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
        ):
            polling = asyncio.create_task(consumer.poll(timeout=None))
            await (await producer.send(kafka_topic, b"value"))
            return [record.value for record in await polling]

    assert asyncio.run(read()) == [b"value"]


def test_commit_requires_offset_mapping(kafka_cluster: EmbeddedCluster, kafka_topic: str) -> None:
    with (
        Consumer(kafka_topic, bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=kafka_topic) as consumer,
        pytest.raises(TypeError, match="a mapping, partition to offset"),
    ):
        consumer.commit([(kafka_topic, 0)])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["string", "json", "msgpack"])
def test_serializer_modules_serve_both_directions(name: str, kafka_cluster: EmbeddedCluster, kafka_topic: str) -> None:
    both = getattr(serialization, name)
    servers = kafka_cluster.bootstrap_servers
    with (
        Producer(servers, key_serializer=both, value_serializer=both) as producer,
        Consumer(
            kafka_topic,
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            key_deserializer=both,
            value_deserializer=both,
        ) as consumer,
    ):
        producer.send(kafka_topic, "välue", key="këy").result(30)
        (record,) = consumer.poll(timeout=30)
        assert (record.key, record.value) == ("këy", "välue")


@pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])
def test_cluster_outlives_its_clients_at_interpreter_exit(processes: bool) -> None:
    ended = run_script(
        """
cluster = EmbeddedCluster(processes=sys.argv[1] == "True").start()
producer = Producer(cluster.bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=200_000)
producer.send("topic", b"value", on_delivery=lambda future: print("outcome:", future.result(0).offset))
""",
        str(processes),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "outcome: 0\n", "")


def test_consumer_in_daemon_thread_leaves_group_at_interpreter_exit(kafka_cluster: EmbeddedCluster) -> None:
    servers = kafka_cluster.bootstrap_servers
    with Producer(servers) as producer:
        producer.send("background", b"value").result(30)
    ended = run_script(
        """
import threading
consumer = Consumer("background", bootstrap_servers=sys.argv[1], group_id="background", auto_offset_reset="earliest")
reading = threading.Event()
def read():
    for record in consumer:
        reading.set()
threading.Thread(target=read, daemon=True).start()
assert reading.wait(30)
""",
        servers,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    options: dict[str, Any] = {"group_id": "background", "auto_offset_reset": "earliest", "session_timeout_ms": 30_000}
    with Consumer("background", bootstrap_servers=servers, **options) as next_one:
        assert next_one.poll(timeout=30), "the group waits for a member that is gone"


@pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])
def test_forked_child_does_not_stop_its_parents_cluster(processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster, Producer(cluster.bootstrap_servers) as producer:
        producer.send("topic", b"before").result(30)
        address = cluster.bootstrap_servers

        def child() -> None:
            for forbidden in (cluster.start, cluster.kill, cluster.restart):
                with pytest.raises(errors.ForkError, match="belongs to process"):
                    forbidden()
            assert cluster.bootstrap_servers == address
            cluster.close()
            cluster.__del__()

        in_child(child)
        assert cluster.alive
        assert os.path.isdir(cluster.data_dir)
        assert producer.send("topic", b"after").result(30).offset == 1


def test_forked_child_cannot_wait_for_delivery_result(kafka_cluster: EmbeddedCluster) -> None:
    servers = kafka_cluster.bootstrap_servers
    with (
        Producer(servers, linger_ms=60_000, delivery_timeout_ms=200_000) as producer,
        Consumer("forked", bootstrap_servers=servers) as consumer,
    ):
        future = producer.send("forked", b"value")

        def child() -> None:
            for use in (future.result, future.exception, lambda: asyncio.run(wait_for(future)), consumer.health):
                with pytest.raises(errors.ForkError):
                    use()

        in_child(child)
        producer.flush()
        assert future.result(0).offset == 0


async def wait_for(future: Any) -> Any:
    return await future


def test_ctrl_c_ends_close_that_waits_for_hanging_broker() -> None:
    ended = run_script(
        """
import os, signal, threading
from tests.consumer.parts import client_of
with EmbeddedCluster(processes=True) as cluster:
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("topic", b"value").result(30)
    options = {"group_id": "group", "auto_offset_reset": "earliest"}
    consumer = Consumer("topic", bootstrap_servers=cluster.bootstrap_servers, **options)
    assert len(consumer.poll(timeout=30)) == 1
    main = threading.get_ident()
    committer = client_of(consumer).coordinator.committer
    committing = committer.commit
    def commit(*arguments):
        threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
        return committing(*arguments)
    committer.commit = commit
    os.kill(cluster.pid, signal.SIGSTOP)
    try:
        consumer.close(timeout=600)
    except KeyboardInterrupt:
        print("interrupted")
    os.kill(cluster.pid, signal.SIGCONT)
    print(consumer.closed)
""",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\nTrue\n", "")


def test_concurrent_use_of_consumer_is_refused(kafka_cluster: EmbeddedCluster, kafka_topic: str) -> None:
    with Consumer(kafka_topic, bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=kafka_topic) as consumer:
        refused: list[BaseException] = []

        def intrude(*_: object) -> None:
            def other() -> None:
                try:
                    consumer.poll(timeout=0)
                except errors.ConcurrentUse as error:
                    refused.append(error)

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

        consumer.commit_async({(kafka_topic, 0): 0}, intrude)  # type: ignore[dict-item]
        while not refused:
            consumer.poll(timeout=1)  # the callback runs inside it
    assert "wakeup() may be called from another" in str(refused[0])


@pytest.mark.parametrize("group", [{}, {"group_id": "early"}], ids=["alone", "in a group"])
def test_topic_created_later_and_recreated_is_read(group: dict[str, str], kafka_cluster: EmbeddedCluster) -> None:
    topic = f"late-{len(group)}"
    servers = kafka_cluster.bootstrap_servers
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False, **group}
    with Admin(servers) as admin, Consumer(topic, bootstrap_servers=servers, **options) as consumer:
        assert consumer.poll(timeout=0.1) == []
        for value in (b"first", b"second"):
            admin.create_topics([NewTopic(topic, 1, 1)])
            with Producer(servers) as producer:
                producer.send(topic, value).result(30)
            assert [record.value for record in consumer.poll(timeout=30)] == [value]
            admin.delete_topics([topic])
        if group:
            with pytest.raises(errors.CommitFailed, match=rf"{topic} does not exist"):
                consumer.commit()
