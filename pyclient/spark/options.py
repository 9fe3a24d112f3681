"""The options of `format("pyclient")`: names and meaning of Spark's own Kafka source and sink, checked as a whole.

Spark hands options over with lower-case names and text values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeVar

from pyclient.errors import ConfigError
from pyclient.spark.formats import DECODABLE, FORMATS, Format, ddl_of, with_formats
from pyclient.spark.offsets import EARLIEST, LATEST, Bound, parse_offsets, parse_partitions
from pyclient.spark.writing import problems_of_transactions
from pyclient.types import TopicPartition

T = TypeVar("T")
C = TypeVar("C", bound=str)
Query = Literal["batch", "stream"]

COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns of the source and their Spark types; headers only with `includeHeaders` or if `columns` names them."""

_BOUNDS: Final = (
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
)  # fmt: skip
_TOPICS: Final = ("assign", "subscribe", "subscribePattern")
SOURCE: Final = (
    *_TOPICS, *_BOUNDS, "startingOffsetsByTimestampStrategy", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "includeHeaders", "columns",
    "pushFilters", "commitGroupId", "keyFormat", "keySchema", "valueFormat", "valueSchema", "mode", "confluentHeader",
)  # fmt: skip
SINK: Final = (
    "topic", "flushTimeoutMs", "includeHeaders", "checkpointLocation", "queryName", "exactlyOnce", "writeId",
)  # fmt: skip
_WRITE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_SOURCE_REFUSED: Final = {
    "auto.offset.reset": "use startingOffsets: a query keeps its own offsets",
    "enable.auto.commit": "offsets are in the checkpoint: use commitGroupId to show progress in a group",
    "key.deserializer": "keys are bytes: use keyFormat, or functions of DataFrames",
    "value.deserializer": "values are bytes: use valueFormat, or functions of DataFrames",
    "interceptor.classes": "they are classes of Java",
}
_SINK_REFUSED: Final = {
    "key.serializer": "keys are bytes or text: convert them with functions of DataFrames",
    "value.serializer": "values are bytes or text: convert them with functions of DataFrames",
}
_OF_JAVA: Final = frozenset({"key.serializer", "value.serializer"})
_SCHEMAS: Final = {
    "json": "a schema in Spark's DDL, such as id long, name string",
    "msgpack": "a schema in Spark's DDL, such as id long, name string",
    "avro": "an Avro schema as JSON, whose unions are of null and one type more",
}
_DURATION: Final = re.compile(r"\s*(\d+)\s*(ms|millis\w*|s|sec\w*|m|min\w*|h|hours?|d|days?)?\s*", re.IGNORECASE)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The partitions that a query reads: those assigned, all of the named topics, or of topics that match a pattern."""

    partitions: tuple[TopicPartition, ...] = ()
    names: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a query that reads."""

    topics: TopicChoice
    starting: Bound
    ending: Bound
    no_match_is_latest: bool
    fail_on_data_loss: bool
    poll_timeout: float
    retries: int
    retry_interval: float
    max_offsets: int | None
    min_offsets: int | None
    max_delay: float
    min_partitions: int | None
    max_records: int | None
    columns: tuple[str, ...]
    formats: tuple[Format, ...]
    push_filters: bool
    commit_group: str | None
    client: Mapping[str, str] = field(repr=False)
    """Options of `Consumer` by Kafka's names."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a query that writes; `topic` goes before a column of that name.

    `write_id` identifies a batch, or goes before the id of a streaming query, when rows are to be written exactly once.
    """

    topic: str | None
    flush_timeout: float
    exactly_once: bool
    write_id: str | None
    client: Mapping[str, str] = field(repr=False)
    """Options of `Producer` by Kafka's names."""


def schema_of(columns: Iterable[str], formats: Iterable[Format] = ()) -> str:
    """Return the schema of these columns of the source in Spark's DDL."""
    types = with_formats(COLUMNS, formats)
    return ", ".join(f"{name} {types[name]}" for name in columns)


def source_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that a query reads, as its options `columns` and `includeHeaders` say."""
    options = _Options(given, SOURCE, _SOURCE_REFUSED)
    columns = options.columns()
    options.raise_problems()
    return columns


def source_schema(given: Mapping[str, str]) -> str:
    """Return the schema of what a query reads, in Spark's DDL, as its options choose columns and formats."""
    options = _Options(given, SOURCE, _SOURCE_REFUSED)
    columns = options.columns()
    formats = options.formats(columns)
    options.raise_problems()
    return schema_of(columns, formats)


def source_options(given: Mapping[str, str], query: Query) -> SourceOptions:
    """Return the options of a query that reads; raise one `ConfigError` with everything that is wrong with them."""
    options = _Options(given, SOURCE, _SOURCE_REFUSED)
    minimum, maximum = options.count("minOffsetsPerTrigger"), options.count("maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        options.problem(f"minOffsetsPerTrigger={minimum} is above maxOffsetsPerTrigger={maximum}")
    topics = options.topics()
    starting = options.bound("starting", "latest" if query == "stream" else "earliest")
    ending = options.bound("ending", "latest") if query == "batch" else Bound("latest")
    if query == "stream":
        for name in _BOUNDS[3:]:
            if options.text(name) is not None:
                options.problem(f"{name} is for batch queries: a stream has no end")
    else:
        options.check_batch(starting, ending)
    if topics.partitions:
        for name, bound in (("starting", starting), ("ending", ending)):
            options.check_same(f"the {name} offsets and assign", bound, topics.partitions)
    columns = options.columns()
    read = SourceOptions(
        topics=topics,
        starting=starting,
        ending=ending,
        no_match_is_latest=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        poll_timeout=options.count("kafkaConsumer.pollTimeoutMs", 1, 120_000) / 1000,
        retries=options.count("fetchOffset.numRetries", 0, 3),
        retry_interval=options.count("fetchOffset.retryIntervalMs", 0, 10) / 1000,
        max_offsets=maximum,
        min_offsets=minimum,
        max_delay=options.duration("maxTriggerDelay", 900.0),
        min_partitions=options.count("minPartitions"),
        max_records=options.count("maxRecordsPerPartition"),
        columns=columns,
        formats=options.formats(columns),
        push_filters=options.flag("pushFilters", False),
        commit_group=options.text("commitGroupId"),
        client=options.client("spark-kafka-source" if query == "stream" else "spark-kafka-relation"),
    )
    options.raise_problems()
    return read


def sink_options(given: Mapping[str, str], query: Query) -> SinkOptions:
    """Return the options of a query that writes; raise one `ConfigError` with everything that is wrong with them."""
    options = _Options(given, SINK, _SINK_REFUSED)
    flush_timeout = options.count("flushTimeoutMs", 1, 150_000) / 1000
    exactly_once, write_id = options.flag("exactlyOnce", False), options.text("writeId")
    if write_id is not None and not _WRITE_ID.fullmatch(write_id):
        options.problem(f"writeId={write_id} is not possible: it takes up to 200 letters, digits, dots, _ and -")
    if exactly_once and query == "batch" and write_id is None:
        options.problem("exactlyOnce needs writeId for a batch: a name of this write, by which a repetition is known")
    write = SinkOptions(options.text("topic"), flush_timeout, exactly_once, write_id, options.client(None))
    for problem in problems_of_transactions(write.client, flush_timeout) if exactly_once else ():
        options.problem(problem)
    options.raise_problems()
    return write


class _Options:
    """Reads options and gathers what is wrong with them."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str], refused: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._problems: list[str] = []
        names = {name.lower(): name for name in known}
        for name in self._given:
            if not name.startswith("kafka.") and name not in names and name != "path":
                near = _nearest(name, names.values())
                self.problem(f"unknown option {name}{near}; options of the Kafka client begin with kafka.")
            reason = refused.get(name.removeprefix("kafka.")) if name.startswith("kafka.") else None
            if reason is not None:
                self.problem(f"{name} is not accepted: {reason}")
        if not self._given.get("kafka.bootstrap.servers", "").strip():
            self.problem(
                "kafka.bootstrap.servers is missing, for example .option('kafka.bootstrap.servers', 'host:9092')"
            )
        self._refused = refused

    def problem(self, text: str) -> None:
        """Note something that is wrong."""
        self._problems.append(text)

    def raise_problems(self) -> None:
        """Raise `ConfigError` with everything that is wrong, if anything is."""
        if self._problems:
            raise ConfigError(*self._problems)

    def text(self, name: str) -> str | None:
        """Return an option's text without blanks around it, None if it is missing; note it if it is empty."""
        text = self._given.get(name.lower())
        if text is None:
            return None
        if not text.strip():
            self.problem(f"{name} is empty")
            return None
        return text.strip()

    def count(self, name: str, lowest: int = 1, default: Any = None) -> Any:
        """Return an option that is an integer from `lowest`, the default if it is missing or wrong."""
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or int(text) < lowest:
            self.problem(f"{name}={text} is not possible: it takes an integer from {lowest}")
            return default
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        """Return an option that is true or false."""
        text = self.choice(name, ("true", "false"))
        return default if text is None else text == "true"

    def choice(self, name: str, choices: tuple[C, ...]) -> C | None:
        """Return an option that has one of a few values, in lower case."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in choices:
            self.problem(f"{name}={text} is not possible: it takes {' or '.join(choices)}")
            return None
        return next(each for each in choices if each == text.lower())

    def duration(self, name: str, default: float) -> float:
        """Return an option such as `15m` or `500ms` in seconds; a number alone is milliseconds."""
        text = self.text(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text)
        if match is None:
            self.problem(f"{name}={text} is not possible: it takes a duration such as 500ms, 30s, 15m or 2h")
            return default
        unit = (match[2] or "ms").lower()
        short = "ms" if unit.startswith(("ms", "milli")) else unit[0]
        return int(match[1]) * _SECONDS[short]

    def topics(self) -> TopicChoice:
        """Return which partitions are read."""
        found = [name for name in _TOPICS if self._given.get(name.lower()) is not None]
        if len(found) != 1:
            given = f"{' and '.join(found)} were given" if found else "none was given"
            self.problem(f"exactly one of {', '.join(_TOPICS)} chooses the topics, and {given}")
            return TopicChoice()
        text = self.text(found[0])
        if text is None:
            return TopicChoice()
        if found[0] == "assign":
            return TopicChoice(partitions=self._read("assign", text, parse_partitions, '{"topic": [0, 1]}') or ())
        if found[0] == "subscribe":
            names = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
            if not names:
                self.problem(f"subscribe={text} names no topic")
            return TopicChoice(names=names)
        try:
            re.compile(text)
        except re.error as error:
            self.problem(f"subscribePattern={text} is not a regular expression that Python understands: {error}")
        return TopicChoice(pattern=text)

    def bound(self, side: str, default: Literal["earliest", "latest"]) -> Bound:
        """Return where the query begins or ends (`side` is "starting" or "ending")."""
        time = self.count(f"{side}Timestamp", 0)
        if time is not None:
            return Bound("time", time_ms=time)
        name = f"{side}OffsetsByTimestamp"
        text = self.text(name)
        if text is not None:
            times = self._read(name, text, lambda each: parse_offsets(each, 0), '{"topic": {"0": 1700000000000}}')
            return Bound("times", times)
        text = self.text(f"{side}Offsets")
        match (text or default).lower():
            case "earliest":
                return Bound("earliest")
            case "latest":
                return Bound("latest")
        offsets = self._read(
            f"{side}Offsets", text or "", lambda each: parse_offsets(each, EARLIEST), 'latest, or {"topic": {"0": 23}}'
        )
        return Bound("offsets", offsets)

    def check_batch(self, starting: Bound, ending: Bound) -> None:
        """Note what cannot be for a batch: a start at the latest offset, an end at the earliest, other partitions."""
        values = (starting.values or {}).values() if starting.kind == "offsets" else ()
        if starting.kind == "latest" or LATEST in values:
            self.problem("startingOffsets of a batch cannot be latest (-1): it would read nothing")
        values = (ending.values or {}).values() if ending.kind == "offsets" else ()
        if ending.kind == "earliest" or EARLIEST in values:
            self.problem("endingOffsets of a batch cannot be earliest (-2): it would read nothing")
        if starting.values and ending.values:
            self.check_same("the starting and the ending offsets", starting, tuple(ending.values))
            if starting.kind == ending.kind:
                for partition, start in starting.values.items():
                    end = ending.values.get(partition, start)
                    if 0 <= end < start:
                        self.problem(f"{partition} starts at {start}, after its end {end}")

    def check_same(self, what: str, bound: Bound, partitions: tuple[TopicPartition, ...]) -> None:
        """Note partitions that only one of two options names."""
        if bound.values is not None:
            odd = sorted(set(bound.values) ^ set(partitions))
            if odd:
                self.problem(f"{what} must name the same partitions; only one of them has {', '.join(map(str, odd))}")

    def columns(self) -> tuple[str, ...]:
        """Return the columns to read, in the order of the schema."""
        headers = self.flag("includeHeaders", False)
        text = self.text("columns")
        if text is None:
            return tuple(name for name in COLUMNS if name != "headers" or headers)
        wanted = {name.strip().lower() for name in text.split(",")}
        unknown = sorted(wanted - {name.lower() for name in COLUMNS})
        if unknown:
            self.problem(f"columns has {', '.join(map(repr, unknown))}: the source has {', '.join(COLUMNS)}")
        return tuple(name for name in COLUMNS if name.lower() in wanted or (name == "headers" and headers))

    def formats(self, columns: Iterable[str]) -> tuple[Format, ...]:
        """Return how the columns are encoded that are to be decoded."""
        permissive = self.choice("mode", ("permissive", "failfast")) == "permissive"
        header, found = self.flag("confluentHeader", False), []
        for column in DECODABLE:
            name, schema = self.choice(f"{column}Format", FORMATS), self.text(f"{column}Schema")
            if name is None or schema is None:
                if (name is None) != (schema is None):
                    self.problem(f"{column}Format and {column}Schema are given together, or neither of them")
                continue
            if column not in columns:
                self.problem(f"{column}Format is for the column {column}, which the option columns leaves out")
            ddl = self._read(f"{column}Schema", schema, partial(ddl_of, name), _SCHEMAS[name])
            found.append(Format(column, name, schema, ddl or "", permissive, header))
        for option in ("mode", "confluentHeader"):
            if not found and self.text(option) is not None:
                self.problem(f"{option} has no effect without keyFormat or valueFormat")
        return tuple(found)

    def client(self, client_id: str | None) -> dict[str, str]:
        """Return the options for the client, without their prefix."""
        found = {
            name.removeprefix("kafka."): text
            for name, text in self._given.items()
            if name.startswith("kafka.") and name.removeprefix("kafka.") not in (*self._refused, *_OF_JAVA)
        }
        if client_id is not None:  # partitions are assigned: no group is joined
            found.setdefault("client.id", self.text("groupIdPrefix") or client_id)
        return found

    def _read(self, name: str, text: str, parse: Callable[[str], T], example: str) -> T | None:
        try:
            return parse(text)
        except ValueError as error:
            self.problem(f"{name}={text:.200} is not possible: {error}; it takes {example}")
            return None


def _nearest(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    by_lower = {each.lower(): each for each in names}
    near = get_close_matches(name, by_lower, n=1, cutoff=0.7)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""
