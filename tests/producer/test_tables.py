"""`send_many` of Arrow tables: columns by their names, from anywhere and from a consumer."""

from __future__ import annotations

import datetime

import pytest

from pyclient import Consumer, errors
from pyclient.records import partition_for_key

pa = pytest.importorskip("pyarrow")
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def rows(log):
    """Return the sent rows by partition."""
    return {
        partition: [(r.timestamp_ms, r.key, r.value, list(r.headers or ())) for r in records]
        for partition, records in log().items()
    }


def test_pandas_frame_is_refused_with_advice(make, topic, log):
    pandas = pytest.importorskip("pandas")
    client, frame = make(), pandas.DataFrame({"value": [b"a", b"b"]})
    with pytest.raises(TypeError, match=r"values is a DataFrame: give one of its columns, or all as a pyarrow\.Table"):
        client.send_many(topic, frame)
    client.result(client.send_many(topic, frame["value"], partition=0))
    client.result(client.send_many(topic, pa.Table.from_pandas(frame), partition=0))
    assert [record.value for record in log()[0]] == [b"a", b"b"] * 2


@pytest.mark.parametrize("kind", ["table", "table of chunks", "record batch"])
def test_table_with_all_columns_is_written_unchanged(make, topic, log, kind):
    headers = [[] if n % 3 else [("h", b"%d" % n), ("none", None)] for n in range(300)]
    batch = pa.record_batch(
        {
            "partition": pa.array([n * n % 3 for n in range(300)], pa.int32()),
            "timestamp": pa.array([1000 + n for n in range(300)], pa.timestamp("ms", "UTC")),
            "key": pa.array([None if n % 5 else b"k%d" % n for n in range(300)]),
            "value": pa.array([None if n == 7 else f"value {n}" for n in range(300)]),
            "headers": pa.array(
                [None if n == 1 else [{"name": k, "value": v} for k, v in row] for n, row in enumerate(headers)],
                HEADERS,
            ),
            "offset": pa.array(range(300)),
            "topic": ["elsewhere"] * 300,
            "leader_epoch": [0] * 300,
            "timestamp_type": [0] * 300,
        }
    )
    sent = batch.slice(1)
    if kind != "record batch":
        step = 299 if kind == "table" else 50
        sent = pa.Table.from_batches([sent.slice(start, step) for start in range(0, 299, step)])
    client = make(batch_size=1000)
    outcome = client.send_many(topic, sent)
    client.result(outcome)
    assert outcome.partitions == [n * n % 3 for n in range(1, 300)]
    expected = {0: [], 1: [], 2: []}
    for n in range(1, 300):
        value = None if n == 7 else b"value %d" % n
        expected[n * n % 3].append((1000 + n, None if n % 5 else b"k%d" % n, value, headers[n]))
    assert rows(log) == {partition: found for partition, found in expected.items() if found} | {
        partition: [] for partition in log() if not expected[partition]
    }


@pytest.mark.parametrize("options", [{}, {"interceptors": [type("Quiet", (), {"on_send": lambda self, r: r})()]}])
def test_consumers_arrow_table_can_be_sent(make, cluster, topic, log, options):
    client = make(batch_size=500)
    for number in range(100):
        headers = {"trace": b"%d" % number} if number % 2 else None
        client.send(topic, b"%d" % number, key=b"%d" % (number % 9), headers=headers, timestamp_ms=5000 + number)
    client.flush()
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        parts, count = [], 0
        while count < 100:
            parts.append(consumer.poll(30).to_arrow())
            count += parts[-1].num_rows
    table, before = pa.concat_tables(parts), rows(log)
    other = make(**options)
    outcome = other.send_many(f"{topic}-copy", table)
    other.result(outcome)
    assert outcome.partitions == table.column("partition").to_pylist()
    with Consumer(
        f"{topic}-copy", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        found = {partition: [] for partition in before}
        while sum(map(len, found.values())) < 100:
            for r in consumer.poll(30):
                found[r.partition].append((r.timestamp_ms, r.key, r.value, list(r.headers or ())))
    assert found == before


def test_table_without_partition_column_uses_keys_and_arguments(make, topic, log):
    client = make()
    table = pa.table({"value": [b"%d" % n for n in range(50)], "key": [b"%d" % n for n in range(50)]})
    outcome = client.send_many(topic, table, timestamps_ms=range(50), headers=[{"n": b"x"}] * 50)
    client.result(outcome)
    assert outcome.partitions == [partition_for_key(b"%d" % n, 3) for n in range(50)]
    client.result(client.send_many(topic, table.drop_columns(["key"]), keys=[b"k"] * 50, partition=2, timestamps_ms=9))
    assert rows(log)[2][-50:] == [(9, b"k", b"%d" % n, []) for n in range(50)]


def test_tables_go_through_serializers(make, topic, log):
    client = make(value_serializer=lambda value: b"%d" % (value + 1))
    table = pa.table({"value": [1, 2], "partition": [1, 1], "timestamp": pa.array([7, 8]), "headers": pa.nulls(2)})
    client.result(client.send_many(topic, table))
    assert rows(log)[1] == [(7, None, b"2", []), (8, None, b"3", [])]


def test_timestamps_of_other_units_are_truncated_and_nulls_are_now(make, topic, log):
    client = make()
    moment = datetime.datetime(2020, 1, 1, 0, 0, 0, 1999, tzinfo=datetime.UTC)
    column = pa.array([moment, None], pa.timestamp("us", "UTC"))
    client.result(client.send_many(topic, pa.table({"value": [b"a", b"b"], "timestamp": column}), partition=0))
    first, second = rows(log)[0]
    assert first[0] == 1577836800001 and second[0] > first[0]


def test_an_empty_table_is_delivered_at_once(make, topic):
    client = make()
    empty = pa.table({name: pa.array([], kind) for name, kind in [("value", pa.binary()), ("partition", pa.int32())]})
    assert len(client.result(client.send_many(topic, empty))) == 0


@pytest.mark.parametrize(
    ("columns", "arguments", "says"),
    [
        ({"key": [b""]}, {}, "no column 'value': send_many takes value .required., key, headers, timestamp, partition"),
        ({"value": [b""], "colour": [1]}, {}, r"unknown columns \['colour'\]: send_many takes value"),
        ({"value": [b""], "key": [b""]}, {"keys": [b""]}, "keys=... was given, and the table .* has a column 'key'"),
        ({"value": [b""], "partition": [0]}, {"partition": 0}, "partition=... was given"),
        ({"value": [b""], "timestamp": [0]}, {"timestamps_ms": 0}, "timestamps_ms=... was given"),
        ({"value": [b"", b""], "partition": [0, None]}, {}, "the partition column .* has nulls"),
        ({"value": [b""], "partition": [-1]}, {}, "a partition is a number from 0 to 2147483647, not -1"),
        ({"value": [b""]}, {"keys": [b"", b""]}, "columns of one length"),
    ],
)
def test_ambiguous_table_is_refused(make, topic, columns, arguments, says):
    with pytest.raises(ValueError, match=says):
        make().send_many(topic, pa.table(columns), **arguments)


def test_a_table_with_a_column_twice_is_refused(make, topic):
    table = pa.Table.from_arrays([pa.array([b""])] * 2, names=["value", "value"])
    with pytest.raises(ValueError, match="2 columns 'value'"):
        make().send_many(topic, table)


@pytest.mark.parametrize("interceptors", [(), [type("Quiet", (), {"on_send": lambda self, r: r})()]])
@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"partition": ["a"]}, "the partition column for topic '{}' .* int32, not string"),
        ({"timestamp": ["a"]}, "the timestamp column for topic '{}' .* not string"),
        ({"timestamp": [-1]}, "not -1"),
        ({"headers": [1]}, "the headers column for topic '{}' .* not int64"),
        ({"headers": [[{"value": b""}]]}, "the headers column for topic '{}' "),
        ({"headers": [[{"name": None, "value": b""}]]}, "the headers column for topic '{}' .* null"),
        ({"headers": [[{"name": b"\xff", "value": b""}]]}, "the headers column for topic '{}' "),
        ({"partition": [0.5]}, "the partition column for topic '{}' .* not double"),
    ],
)
def test_a_column_that_cannot_be_read_is_named(make, topic, columns, says, interceptors):
    client = make(interceptors=list(interceptors)) if interceptors else make()
    with pytest.raises(errors.SerializationError, match=says.format(topic)):
        client.send_many(topic, pa.table({"value": [b""], **columns}))


@pytest.mark.parametrize("table", [False, True])
def test_arrow_values_and_keys_that_are_no_bytes_are_a_serialization_error(make, topic, table):
    client = make()
    with pytest.raises(errors.SerializationError, match=f"the value column for topic '{topic}' .* not int64"):
        client.send_many(topic, pa.table({"value": [1]}) if table else pa.array([1]))
    with pytest.raises(errors.SerializationError, match=f"the key column for topic '{topic}' .* not double"):
        client.send_many(topic, pa.array([b""]), pa.array([1.5]))
