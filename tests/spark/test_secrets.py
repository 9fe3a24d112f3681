"""Passwords given as text are in no plan of Spark: not in `explain`, and not in what its UI shows of queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.spark import write
from tests.spark.conftest import needs_java, run_query

pytestmark = needs_java

SECRET = "hunter2-of-the-jks"


def plans_of(spark: Any) -> list[str]:
    """Return the plans of the queries that the session has run, as Spark's UI shows them."""
    store = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001  # Python has no way to it
    runs = store.executionsList()
    return [runs.apply(number).physicalPlanDescription() for number in range(runs.size())]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Yield a cluster that asks for a password."""
    with EmbeddedCluster(security="SASL_PLAINTEXT", users={"alice": SECRET}) as made:
        yield made


def test_passwords_are_in_no_plan(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = {"bootstrap_servers": cluster.bootstrap_servers, **cluster.client_options("alice")}
    assert SECRET in client.values()
    options = {f"kafka.{name.replace('_', '.')}": value for name, value in client.items()}
    with Admin(**client) as admin:
        admin.create_topics([NewTopic("source"), NewTopic("sink")])
    with Producer(**client) as producer:
        producer.send("source", b"v")
    before = len(plans_of(spark))

    source, sink = {**options, "subscribe": "source", "startingOffsets": "earliest"}, {**options, "topic": "sink"}
    df = spark.read.format("pyclient").options(**source).load().select("value")
    df.explain(extended=True)
    df.write.format("pyclient").options(**sink).mode("append").save()
    write(df, topic="sink", **client)
    stream = spark.readStream.format("pyclient").options(**source).load().select("value")
    stream.explain(extended=True)
    query = stream.writeStream.format("pyclient").options(**sink, checkpointLocation=str(tmp_path))
    query = run_query(query)
    query.explain(extended=True)
    plans = [capsys.readouterr().out, *plans_of(spark)[before:]]

    with Consumer(**client) as consumer:
        assert consumer.end_offsets([TopicPartition("sink", 0)]) == {("sink", 0): 3}
    for part in ("RelationV2", "BatchScan", "AppendData", "MapInArrow", "PythonStreamingWrite"):
        assert any(part in plan for plan in plans), part
    assert [plan for plan in plans if SECRET in plan] == []
