"""Options of `format("pyclient")`: Spark's names and rules, and errors that name everything that is wrong."""

from __future__ import annotations

import pytest

from pyclient import TopicPartition, errors
from pyclient.spark.offsets import Bound
from pyclient.spark.options import TopicChoice, sink_options, source_options, source_schema

SERVERS = {"kafka.bootstrap.servers": "h:9092"}
SUBSCRIBED = {**SERVERS, "subscribe": "t"}


def problems(given: dict[str, str], query: str = "batch") -> str:
    with pytest.raises(errors.ConfigError) as caught:
        source_options({name.lower(): value for name, value in given.items()}, query)  # type: ignore[arg-type]
    return str(caught.value)


def test_defaults_are_sparks() -> None:
    batch, stream = source_options(SUBSCRIBED, "batch"), source_options(SUBSCRIBED, "stream")
    assert (batch.starting, batch.ending) == (Bound("earliest"), Bound("latest"))
    assert stream.starting == Bound("latest")
    assert batch.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (batch.fail_on_data_loss, batch.poll_timeout, batch.retries) == (True, 120.0, 3)
    assert (batch.max_offsets, batch.min_offsets, batch.max_delay) == (None, None, 900.0)
    assert batch.client == {"bootstrap.servers": "h:9092", "client.id": "spark-kafka-relation"}


def test_every_option_is_read() -> None:
    given = {
        **SERVERS,
        "assign": '{"t": [0, 1]}',
        "startingoffsets": '{"t": {"0": 5, "1": -2}}',
        "failondataloss": "FALSE",
        "kafkaconsumer.polltimeoutms": "500",
        "fetchoffset.numretries": "0",
        "fetchoffset.retryintervalms": "7",
        "maxoffsetspertrigger": "100",
        "minoffsetspertrigger": "10",
        "maxtriggerdelay": "2h",
        "minpartitions": "4",
        "maxrecordsperpartition": "50",
        "groupidprefix": "mine",
        "includeheaders": "true",
        "pushfilters": "true",
        "commitgroupid": "lag",
        "kafka.max.partition.fetch.bytes": "1000",
    }
    read = source_options(given, "stream")
    assert read.topics == TopicChoice(partitions=(TopicPartition("t", 0), TopicPartition("t", 1)))
    assert read.starting == Bound("offsets", {TopicPartition("t", 0): 5, TopicPartition("t", 1): -2})
    assert (read.fail_on_data_loss, read.poll_timeout, read.retries, read.retry_interval) == (False, 0.5, 0, 0.007)
    assert (read.max_offsets, read.min_offsets, read.max_delay) == (100, 10, 7200.0)
    assert (read.min_partitions, read.max_records, read.push_filters, read.commit_group) == (4, 50, True, "lag")
    assert read.columns[-1] == "headers"
    assert read.client["client.id"] == "mine"
    assert read.client["max.partition.fetch.bytes"] == "1000"


def test_zero_retries_and_waits_are_taken_as_given() -> None:
    read = source_options({**SUBSCRIBED, "fetchOffset.numRetries": "0", "fetchOffset.retryIntervalMs": "0"}, "batch")
    assert (read.retries, read.retry_interval) == (0, 0.0)


def test_times_go_before_offsets_as_in_spark() -> None:
    times = {**SUBSCRIBED, "startingoffsets": "earliest", "startingoffsetsbytimestamp": '{"t": {"0": 9}}'}
    assert source_options(times, "batch").starting == Bound("times", {TopicPartition("t", 0): 9})
    assert source_options({**times, "startingtimestamp": "12"}, "batch").starting == Bound("time", time_ms=12)
    strategy = {**SUBSCRIBED, "startingoffsetsbytimestampstrategy": "latest"}
    assert source_options(strategy, "batch").no_match_is_latest


def test_topics_are_chosen_in_one_of_three_ways() -> None:
    assert source_options({**SERVERS, "subscribe": " b, a ,b"}, "batch").topics.names == ("b", "a")
    assert source_options({**SERVERS, "subscribepattern": "t.*"}, "batch").topics.pattern == "t.*"
    assert "none was given" in problems(SERVERS)
    assert "assign and subscribe were given" in problems({**SUBSCRIBED, "assign": '{"t": [0]}'})
    assert "names no topic" in problems({**SERVERS, "subscribe": " , "})
    assert "regular expression" in problems({**SERVERS, "subscribepattern": "("})


def test_all_problems_are_reported_at_once() -> None:
    text = problems(
        {
            "subscribe": "t",
            "assign": "{}",
            "startingOffset": "earliest",
            "minPartitions": "0",
            "failOnDataLoss": "maybe",
            "kafka.auto.offset.reset": "earliest",
            "kafka.value.deserializer": "x",
            "maxTriggerDelay": "soon",
            "columns": "value,size",
        }
    )
    for said in (
        "assign and subscribe",
        "unknown option startingoffset (did you mean startingOffsets?)",
        "minPartitions=0",
        "failOnDataLoss=maybe",
        "kafka.auto.offset.reset is not accepted: use startingOffsets",
        "kafka.value.deserializer is not accepted",
        "maxTriggerDelay=soon",
        "'size'",
        "kafka.bootstrap.servers is missing",
    ):
        assert said in text, said


@pytest.mark.parametrize(
    ("given", "query", "said"),
    [
        ({"startingOffsets": "latest"}, "batch", "cannot be latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "batch", "cannot be latest"),
        ({"endingOffsets": "earliest"}, "batch", "cannot be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "batch", "cannot be earliest"),
        ({"endingOffsets": "latest"}, "stream", "a stream has no end"),
        ({"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":2}}'}, "batch", "same partitions"),
        ({"startingOffsets": '{"t":{"0":3}}', "endingOffsets": '{"t":{"0":2}}'}, "batch", "after its end"),
        ({"startingOffsets": "newest"}, "batch", "not JSON"),
        ({"startingTimestamp": "now"}, "batch", "integer from 0"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "stream", "is above"),
        ({"maxOffsetsPerTrigger": "1" * 30}, "stream", "integer from 1"),
        ({"commitGroupId": " "}, "stream", "empty"),
    ],
)
def test_invalid_option_is_refused(given: dict[str, str], query: str, said: str) -> None:
    assert said in problems({**SUBSCRIBED, **given}, query)


@pytest.mark.parametrize("query", ["batch", "stream"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("auto.offset.reset", "use startingOffsets"),
        ("enable.auto.commit", "use commitGroupId to show progress in a group"),
        ("key.deserializer", "keys are bytes: use keyFormat"),
        ("value.deserializer", "values are bytes: use valueFormat"),
        ("interceptor.classes", "they are classes of Java"),
    ],
)
def test_client_option_the_source_sets_itself_is_refused(name: str, reason: str, query: str) -> None:
    text = problems({**SUBSCRIBED, f"kafka.{name}": "x"}, query)
    assert f"kafka.{name} is not accepted: " in text
    assert reason in text


@pytest.mark.parametrize("query", ["batch", "stream"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [("key.serializer", "keys are bytes or text: convert"), ("value.serializer", "values are bytes or text: convert")],
)
def test_client_option_the_sink_sets_itself_is_refused(name: str, reason: str, query: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        sink_options({**SERVERS, "topic": "t", f"kafka.{name}": "x"}, query)  # type: ignore[arg-type]
    assert f"kafka.{name} is not accepted: {reason}" in str(caught.value)


def test_java_serializers_are_left_out_of_a_sources_client() -> None:
    given = {**SUBSCRIBED, "kafka.key.serializer": "x", "kafka.value.serializer": "x"}
    assert source_options(given, "batch").client == source_options(SUBSCRIBED, "batch").client


def test_offsets_and_assign_name_the_same_partitions() -> None:
    given = {**SERVERS, "assign": '{"t": [0, 1]}', "startingOffsets": '{"t": {"0": 1}}'}
    assert "only one of them has t-1" in problems(given)


def test_columns_prune_the_schema() -> None:
    assert source_schema({**SERVERS, "columns": "offset, VALUE"}) == "value binary, offset bigint"
    assert source_schema({**SERVERS, "includeheaders": "true"}).endswith(
        ", headers array<struct<key:string,value:binary>>"
    )
    assert source_schema({**SERVERS, "columns": "headers"}) == "headers array<struct<key:string,value:binary>>"


def test_formats_are_in_the_schema() -> None:
    given = {**SERVERS, "columns": "key,value", "keyformat": "AVRO", "keyschema": '"long"', "valueformat": "json"}
    assert source_schema({**given, "valueschema": "id long"}) == "key bigint, value struct<id long>"
    (key, value) = source_options({**given, "subscribe": "t", "valueschema": "id long"}, "batch").formats
    assert (key.name, value.name, value.permissive, value.confluent_header) == ("avro", "json", False, False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"valueFormat": "json"}, "valueFormat and valueSchema are given together"),
        ({"keySchema": "id long"}, "keyFormat and keySchema are given together"),
        (
            {"valueFormat": "csv", "valueSchema": "id long"},
            "valueFormat=csv is not possible: it takes json or msgpack or avro",
        ),
        ({"valueFormat": "avro", "valueSchema": "id long"}, "an Avro schema is JSON, and this is not"),
        ({"valueFormat": "avro", "valueSchema": '["int", "string"]'}, "a union of other types than null and one more"),
        ({"mode": "PERMISSIVE"}, "mode has no effect without keyFormat or valueFormat"),
        ({"confluentHeader": "true"}, "confluentHeader has no effect"),
        ({"valueFormat": "json", "valueSchema": "id long", "mode": "DROPMALFORMED"}, "it takes permissive or failfast"),
        ({"valueFormat": "json", "valueSchema": "id long", "columns": "key"}, "which the option columns leaves out"),
    ],
)
def test_invalid_format_options_are_refused(given: dict[str, str], said: str) -> None:
    assert said in problems({**SUBSCRIBED, **given})


@pytest.mark.parametrize(
    ("text", "seconds"), [("500", 0.5), ("500ms", 0.5), ("30s", 30), ("15m", 900), ("2 hours", 7200), ("1 day", 86400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert source_options({**SUBSCRIBED, "maxtriggerdelay": text}, "stream").max_delay == seconds


def test_the_sink_takes_sparks_options() -> None:
    given = {**SERVERS, "topic": "t", "kafka.acks": "all", "checkpointlocation": "/c", "queryname": "q"}
    read = sink_options(given, "batch")
    assert (read.topic, read.client) == ("t", {"bootstrap.servers": "h:9092", "acks": "all"})
    with pytest.raises(errors.ConfigError, match="unknown option topics"):
        sink_options({**SERVERS, "topics": "t"}, "batch")


def test_options_do_not_show_what_the_client_gets() -> None:
    given = {**SUBSCRIBED, "kafka.ssl.key.password": "hunter2"}
    assert "hunter2" not in repr(source_options(given, "batch"))
    assert "hunter2" not in repr(sink_options({**SERVERS, "kafka.ssl.key.password": "hunter2"}, "batch"))
