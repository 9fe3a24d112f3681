"""Records as Spark's Arrow batches and back: the source's exact types, and the sink's columns checked and grouped."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyclient.errors import SerializationError

if TYPE_CHECKING:
    from pyclient.consumer import Records
    from pyclient.spark.decoding import Decoder

_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
_OF_RECORDS: Final = {"timestampType": "timestamp_type"}
_OF_PARTITION: Final = ("topic", "partition")
SINK_COLUMNS: Final = ("value", "key", "headers", "timestamp", "partition", "topic")
_FEWEST: Final = 1024
_WANTED: Final = {
    "value": "binary or string",
    "key": "binary or string",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp, or bigint (epoch milliseconds)",
    "headers": "array<struct<key:string,value:binary>>",
}


@lru_cache(32)
def schema_of(names: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema that Spark expects for these columns of the source."""
    return pa.schema([(name, _TYPES[name]) for name in names])


def to_spark(
    records: Records[Any, Any], names: tuple[str, ...], stop: int, decoders: tuple[Decoder, ...] = ()
) -> pa.RecordBatch:
    """Return the records below offset `stop`, of one partition, as a batch of the source's columns.

    Raise `SerializationError` for a key or value that a decoder cannot decode.
    """
    of_records = [name for name in names if name not in _OF_PARTITION]
    wanted = dict.fromkeys([*(_OF_RECORDS.get(name, name) for name in of_records), "offset"])
    table = records.to_arrow(list(wanted)).combine_chunks()
    offsets = table.column("offset")
    if table.num_rows and offsets[-1].as_py() >= stop:
        table = table.slice(0, pc.sum(pc.less(offsets, stop)).as_py())
    columns = []
    for name in names:
        if name in _OF_PARTITION:
            columns.append(_of_partition(records, name, table.num_rows))
            continue
        column = table.column(_OF_RECORDS.get(name, name))
        array = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        columns.append(array if array.type == _TYPES[name] else array.cast(_TYPES[name]))
    schema = schema_of(names)
    for decoder in decoders:
        index = names.index(decoder.format.column)
        columns[index] = _decode(decoder, columns[index], records, offsets)
        schema = schema.set(index, pa.field(names[index], decoder.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_partition(records: Records[Any, Any], name: str, rows: int) -> pa.Array:
    """Return the column of a value that all rows have, a view of one that is kept."""
    if not rows:
        return pa.array([], _TYPES[name])
    size = 1 << max(rows - 1, _FEWEST - 1).bit_length()
    return _repeated(getattr(records.partitions()[0], name), name, size).slice(0, rows)


@lru_cache(16)
def _repeated(value: str | int, name: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, _TYPES[name]), rows)


def _decode(decoder: Decoder, values: pa.Array, records: Records[Any, Any], offsets: pa.ChunkedArray) -> pa.Array:
    from pyclient.spark.decoding import Malformed

    try:
        return decoder.decode(values)
    except Malformed as error:
        partition, offset, form = records.partitions()[0], offsets[error.row], decoder.format
        raise SerializationError(
            f"the {form.column} of topic {partition.topic}, partition {partition.partition}, offset {offset} is not "
            f"{form.name} of the type {form.ddl}: {error.reason}; with mode=PERMISSIVE it is null"
        ) from error


def check_sink(types: dict[str, str], topic: str | None) -> None:
    """Raise one `SerializationError` with everything that keeps a DataFrame from being written.

    `types` has Spark's simple name of each column's type, such as `array<struct<key:string,value:binary>>`. Other
    columns than those of the sink are ignored.
    """
    problems = []
    if "value" not in types:
        problems.append(f"it has no column value, only {', '.join(types) or 'none at all'}")
    if topic is None and "topic" not in types:
        problems.append("there is no topic: give the option topic, or a column topic")
    for name, wanted in _WANTED.items():
        given = types.get(name)
        if given is not None and given != "void" and not _fits(name, given):
            problems.append(f"column {name} is {given}: it takes {wanted}, for example by cast()")
    if problems:
        raise SerializationError("the DataFrame cannot be written to Kafka: " + "; ".join(problems))


def _fits(name: str, given: str) -> bool:
    match name:
        case "value" | "key":
            return given in ("binary", "string")
        case "topic":
            return given == "string"
        case "partition":
            return given in ("int", "smallint", "tinyint", "bigint")
        case "timestamp":
            return given in ("timestamp", "timestamp_ntz", "bigint")
    return given in (
        "array<struct<key:string,value:binary>>",
        "array<struct<key:string,value:string>>",
        "array<struct<name:string,value:binary>>",
        "array<struct<name:string,value:string>>",
    )


def groups(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of a batch for each topic, as tables that `send_many` takes; rows keep their order.

    Raise `SerializationError` for a row without a topic.
    """
    table = pa.Table.from_batches([batch]).select([name for name in SINK_COLUMNS if name in batch.schema.names])
    if topic is not None:
        rows = table.drop_columns(["topic"]) if "topic" in table.column_names else table
        yield from ((topic, part) for part in _by_chosen_partition(rows))
        return
    topics = table.column("topic")
    if topics.null_count:
        raise SerializationError(f"{topics.null_count} of {len(topics)} rows have no topic: the column topic is null")
    rows = table.drop_columns(["topic"])
    names = pc.unique(topics).to_pylist()
    for name in names:
        chosen = rows if len(names) == 1 else rows.filter(pc.equal(topics, name))
        yield from ((name, part) for part in _by_chosen_partition(chosen))


def _by_chosen_partition(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows whose partition is given, and those whose partition the producer chooses."""
    if "partition" not in rows.column_names:
        yield rows
        return
    partitions = rows.column("partition")
    if not partitions.null_count:
        yield rows
        return
    for chosen, part in ((True, rows.filter(pc.is_valid(partitions))), (False, rows.filter(pc.is_null(partitions)))):
        if part.num_rows:
            yield part if chosen else part.drop_columns(["partition"])
