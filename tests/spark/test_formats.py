"""`valueFormat` and `keyFormat` in real Spark: decoded columns of batches and streams, and errors at planning."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import msgpack
import pytest
from fastavro import parse_schema, schemaless_writer

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.spark.conftest import create, needs_java, run_query

pytestmark = needs_java

ORDER = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
    ],
}


@pytest.fixture
def servers(kafka_cluster: EmbeddedCluster) -> str:
    return kafka_cluster.bootstrap_servers


def source(spark: Any, servers: str, topic: str, **options: str) -> Any:
    """Return a reader of a topic with options, by the session's `read` or `readStream`."""
    return spark.format("pyclient").options(**{"kafka.bootstrap.servers": servers, "subscribe": topic, **options})


def test_json_keys_and_avro_values_become_structs(spark: Any, servers: str) -> None:
    topic = create(servers, "formats-avro", 1)
    with Producer(servers) as producer:
        for number in range(3):
            stream = BytesIO()
            order = {"id": number, "tags": [f"t{number}"], "sizes": {"s": number}}
            schemaless_writer(stream, parse_schema(ORDER), order)
            producer.send(
                topic, b"\x00\x00\x00\x00\x01" + stream.getvalue(), key=b'\x00\x00\x00\x00\x02{"day": "2026-01-02"}'
            )
        producer.send(topic, None, key=b'\x00\x00\x00\x00\x02{"day": null}')
    options = {"valueFormat": "avro", "valueSchema": json.dumps(ORDER), "confluentHeader": "true"}
    df = source(spark.read, servers, topic, keyFormat="json", keySchema="day date", **options).load()
    assert df.schema["value"].dataType.simpleString() == "struct<id:bigint,tags:array<string>,sizes:map<string,int>>"
    rows = df.selectExpr("cast(key.day as string)", "value.id", "value.tags[0]", "value.sizes['s']", "offset").collect()
    assert sorted(map(tuple, rows), key=lambda row: row[-1]) == [
        *(("2026-01-02", number, f"t{number}", number, number) for number in range(3)),
        (None, None, None, None, 3),
    ]


def test_a_stream_decodes_and_malformed_values_are_null(spark: Any, servers: str, tmp_path: Path) -> None:
    topic = create(servers, "formats-stream", 1)
    with Producer(servers) as producer:
        producer.send_many(topic, [msgpack.packb({"id": 1, "name": "a"}), b"\xc1", None, msgpack.packb({"id": 2})])
    options = {"valueFormat": "msgpack", "valueSchema": "id long, name string", "mode": "permissive"}
    df = source(spark.readStream, servers, topic, startingOffsets="earliest", **options).load()
    query = df.select("offset", "value.*").writeStream.format("memory").queryName("formats_stream")
    run_query(query.option("checkpointLocation", str(tmp_path)))
    rows = spark.sql("select * from formats_stream order by offset").collect()
    assert [tuple(row) for row in rows] == [(0, 1, "a"), (1, None, None), (2, None, None), (3, 2, None)]


def test_a_malformed_value_is_named_by_its_offset(spark: Any, servers: str) -> None:
    from pyspark.errors import PySparkException

    topic = create(servers, "formats-failfast", 1)
    with Producer(servers) as producer:
        producer.send_many(topic, [b'{"id": 1}', None, b'{"id": "1"}'])
    df = source(spark.read, servers, topic, valueFormat="json", valueSchema="id long").load()
    with pytest.raises(PySparkException, match=f"the value of topic {topic}, partition 0, offset 2 is not json"):
        df.select("value.id").collect()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id lnog", "lnog"),
        ("id long, tags map<string, int>", "value.tags is map<string,int>, to which json cannot be decoded"),
        ("id long not null", "value.id is NOT NULL"),
    ],
)
def test_a_schema_that_is_not_possible_is_refused_at_planning(spark: Any, servers: str, schema: str, said: str) -> None:
    from pyspark.errors import PySparkException

    topic = create(servers, f"formats-refused-{abs(hash(schema))}", 1)
    with pytest.raises(PySparkException, match=said):
        source(spark.read, servers, topic, valueFormat="json", valueSchema=schema).load().collect()
