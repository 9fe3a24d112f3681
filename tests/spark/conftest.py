"""One Spark session for all tests, since it takes seconds to start, and what they need of a cluster."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Admin, NewTopic
from pyclient.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker_embedded.conftest import RawClient
from tests.waiting import until

needs_java = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),  # a test that is cut off takes the session of all others with it
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),  # pyspark 4.3's own
]
if not (shutil.which("java") or os.environ.get("JAVA_HOME")) and os.environ.get("PYCLIENT_REQUIRE_ALL") != "1":
    needs_java.append(pytest.mark.skip(reason="Spark needs Java, and there is none here"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.log.level", "ERROR").config("spark.sql.shuffle.partitions", "2")
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    yield session
    session.stop()


def create(servers: str, topic: str, partitions: int) -> str:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1)])
    return topic


def run_query(writer: Any) -> Any:
    """Run a streaming query on the records there are. Return it when it has ended.

    On a busy machine its first Python worker may take longer than the ten seconds that Spark waits for one: then the
    query, which has done nothing, is started again.
    """
    from pyspark.errors import StreamingQueryException

    while True:
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(240)
        except StreamingQueryException as error:
            if not _is_too_slow(query, error):
                raise
        else:
            return query


def begun(writer: Any, has_begun: Callable[[], object]) -> Any:
    """Start a streaming query without an end, again if `run_query` would. Return it once it works or has failed.

    It works once it reports progress or `has_begun()`, which looks for an effect of the query.
    """
    while True:
        query = writer.start()
        until(lambda query=query: has_begun() or query.recentProgress or not query.isActive)
        if query.isActive or not _is_too_slow(query, query.exception()):
            return query


def _is_too_slow(query: Any, error: object) -> bool:
    return not query.recentProgress and "Python worker failed to connect back" in str(error)


def data_source(options: dict[str, str]) -> Any:
    """Return the data source as Spark's planner makes it."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    from pyclient.spark.data_source import KafkaDataSource

    return KafkaDataSource(CaseInsensitiveDict(options))


def schema_of(columns: str) -> Any:
    """Return a schema in DDL as Spark gives it, without asking Spark's JVM."""
    from pyspark.sql import types

    named = {
        "binary": types.BinaryType,
        "bigint": types.LongType,
        "int": types.IntegerType,
        "string": types.StringType,
        "timestamp": types.TimestampType,
    }
    columns_and_types = [column.split(" ") for column in columns.split(", ")]
    return types.StructType([types.StructField(name, named[kind]()) for name, kind in columns_and_types])


def delete_records(servers: str, topic: str, before: int) -> None:
    """Delete the records of partition 0 before an offset, as retention does."""
    client = RawClient(servers)
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000)
    [answer] = client.call(request, 2).topics[0].partitions
    client.close()
    assert (answer.error_code, answer.low_watermark) == (0, before)
