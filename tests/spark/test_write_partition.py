"""Rows of a DataFrame become records; a task whose rows are not delivered fails."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, NewTopic, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark import write_partition
from pyclient.spark.clients import resolved
from pyclient.spark.rows import ROWS, Columns, in_columns
from tests.reading import read_all
from tests.spark.conftest import needs_java


class TestWithSpark:
    pytestmark = needs_java

    def test_every_row_is_written_once(self, spark: Any, kafka_cluster: EmbeddedCluster) -> None:
        servers, topic = kafka_cluster.bootstrap_servers, "spark-rows"
        with Admin(servers) as admin:
            admin.create_topics([NewTopic(topic, 3, 1)])
        rows = spark.range(20_000).selectExpr("cast(id as string) as key", "concat('row ', id) as value").repartition(4)
        rows.foreachPartition(write_partition(topic=topic, bootstrap_servers=servers))
        written = sorted(int(record.key) for record in read_all(servers, topic, 3))
        assert written == list(range(20_000))

    def test_all_columns_of_the_sink_are_used(
        self, spark: Any, kafka_cluster: EmbeddedCluster, kafka_topic: str
    ) -> None:
        rows = spark.sql(
            f"""select '{kafka_topic}' as topic, 0 as partition, cast('k' as binary) as key, 'v' as value,
                array(struct('h' as key, cast('1' as binary) as value)) as headers,
                timestamp'2026-01-02 03:04:05Z' as timestamp"""
        )
        rows.foreachPartition(write_partition(bootstrap_servers=kafka_cluster.bootstrap_servers))
        (record,) = read_all(kafka_cluster.bootstrap_servers, kafka_topic, 1)
        assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"1"),))
        assert record.timestamp_ms == round(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp() * 1000)

    def test_a_job_whose_rows_are_not_delivered_fails(self, spark: Any, kafka_cluster: EmbeddedCluster) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        rows = spark.range(10).selectExpr("cast(id as string) as value")
        write = write_partition(
            topic="not a topic", bootstrap_servers=kafka_cluster.bootstrap_servers, max_block_ms=60_000
        )
        with pytest.raises((Py4JJavaError, PySparkException), match="InvalidTopic"):
            rows.foreachPartition(write)


def test_the_writer_pickles_and_hides_secrets() -> None:
    tls = {"security_protocol": "SSL", "ssl_certfile": "/cert.pem", "ssl_keyfile": "/secret/path"}
    write = write_partition(topic="t", bootstrap_servers="h:1", linger_ms=5, **tls)
    assert repr(pickle.loads(pickle.dumps(write))) == repr(write)
    assert "/secret" not in repr(write)
    assert "linger_ms=5" in repr(write)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "10", None, True])
def test_flush_timeout_that_is_no_time_is_refused_before_rows_are_sent(timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"flush_timeout=.* is not possible"):
        write_partition(topic="t", bootstrap_servers="h:1", flush_timeout=timeout)


def columns_of(*rows: Any, topic: str | None = "t") -> list[Columns]:
    return [part for _count, parts in in_columns(rows, topic, lambda: 77) for part in parts]


def test_dicts_and_plain_tuples_are_rows_too() -> None:
    assert columns_of({"value": "v", "key": None}) == [Columns("t", None, [b"v"], [None], None, None)]
    assert columns_of((b"k", b"v")) == [Columns("t", None, [b"v"], [b"k"], None, None)]
    assert columns_of(("v",)) == [Columns("t", None, [b"v"], None, None, None)]


def test_rows_become_columns_for_each_topic_and_partition() -> None:
    from pyspark.sql import Row

    row = Row("topic", "partition", "value", "timestamp", "headers", "more")
    time = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [
        row("a", 1, "x", None, None, 0),
        row("b", None, bytearray(b"y"), time, [("h", "1")], 0),
        row("a", 1, None, 5, [], 0),
    ]
    assert columns_of(*rows, topic=None) == [
        Columns("a", 1, [b"x", None], None, [(), ()], [77, 5]),
        Columns("b", None, [b"y"], None, [(("h", b"1"),)], [round(time.timestamp() * 1000)]),
    ]
    assert [part.topic for part in columns_of(*rows)] == ["t", "t"]  # the partitions differ


def test_many_rows_are_taken_in_steps() -> None:
    counts = [count for count, _ in in_columns(((str(number),) for number in range(ROWS + 1)), "t", lambda: 0)]
    assert counts == [ROWS, 1]


@pytest.mark.parametrize(
    ("row", "error", "said"),
    [
        ({"key": b"k"}, errors.ConfigError, "value"),
        (("a", "b", "c"), errors.ConfigError, r"\(key, value\)"),
        ({"value": 5}, errors.SerializationError, "cast"),
        ({"value": "v"}, errors.ConfigError, "topic"),
    ],
)
def test_a_row_that_cannot_be_a_record_says_why(row: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        columns_of(row, topic=None if said == "topic" else "t")


def test_a_row_without_a_value_among_others_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="some rows have none"):
        columns_of({"value": "v"}, {"key": "k"})


def test_secrets_are_read_where_the_client_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    (tmp_path / "secret").write_text("hunter3\n")
    given = {"a": "env:KAFKA_PASSWORD", "b": f"file:{tmp_path}/secret", "c": 5, "d": "host:9092"}
    assert resolved(given) == {"a": "hunter2", "b": "hunter3", "c": 5, "d": "host:9092"}
    with pytest.raises(errors.ConfigError, match=r"(?s)no variable NOWHERE.*cannot be read"):
        resolved({"a": "env:NOWHERE", "b": "file:/no/such/file"})


def test_options_are_checked_before_a_job_starts() -> None:
    with pytest.raises(errors.ConfigError, match="unknown option linger"):
        write_partition(topic="t", bootstrap_servers="h:1", linger=5)
    with pytest.raises(errors.ConfigError, match="needs bootstrap_servers"):
        write_partition(topic="t", config={"acks": "all"})
