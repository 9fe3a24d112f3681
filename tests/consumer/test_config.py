"""A consumer's options: names, values and conflicts."""

from __future__ import annotations

import dataclasses
import typing
from datetime import timedelta
from typing import Any

import pytest

from pyclient.assignment import ASSIGNORS, Assignor, assign_range
from pyclient.config import ClientOptions, resolve
from pyclient.consumer.config import (
    EARLIEST,
    LATEST,
    ConsumerConfig,
    ConsumerOptions,
    parse_duration_ms,
    reset_timestamp,
)
from pyclient.errors import ConfigError


def config(**options: Any) -> ConsumerConfig:
    return resolve(ConsumerConfig, {"bootstrap_servers": "localhost:9092", **options})


def test_defaults_are_kafkas() -> None:
    made = config(group_id="g")
    assert (made.auto_offset_reset, made.isolation_level, made.check_crcs) == ("latest", "read_uncommitted", True)
    assert (made.session_timeout_ms, made.heartbeat_interval_ms, made.max_poll_interval_ms) == (45_000, 3_000, 300_000)
    assert (made.fetch_max_bytes, made.max_partition_fetch_bytes, made.max_poll_records) == (52_428_800, 1_048_576, 500)
    assert [assignor.name for assignor in made.partition_assignment_strategy] == ["range", "cooperative-sticky"]
    assert not made.cooperative


def test_auto_commit_is_on_with_a_group_and_off_without() -> None:
    assert config(group_id="g").enable_auto_commit is True
    assert config().enable_auto_commit is False
    assert config(group_id="g", enable_auto_commit=False).enable_auto_commit is False


def test_kafka_style_dictionary_is_accepted() -> None:
    made = resolve(
        ConsumerConfig,
        {},
        {
            "bootstrap.servers": "a:1,b:2",
            "group.id": "g",
            "enable.auto.commit": "false",
            "auto.offset.reset": "smallest",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "fetch.wait.max.ms": "10",
        },
    )
    assert (made.auto_offset_reset, made.fetch_max_wait_ms, made.enable_auto_commit) == ("earliest", 10, False)
    assert made.cooperative


def test_each_protocol_has_its_own_options() -> None:
    classic = config()
    assert (classic.session_timeout_ms, classic.heartbeat_interval_ms) == (45_000, 3_000)
    assert classic.partition_assignment_strategy == (ASSIGNORS["range"], ASSIGNORS["cooperative-sticky"])
    made = config(group_id="g", group_protocol="CONSUMER", group_remote_assignor="range")
    assert (made.group_protocol, made.group_remote_assignor, made.session_timeout_ms) == ("consumer", "range", None)


def test_custom_assignor_is_accepted() -> None:
    own = Assignor("mine", assign_range)
    assert config(partition_assignment_strategy=own).partition_assignment_strategy == (own,)
    assert config(partition_assignment_strategy=["roundrobin", own]).partition_assignment_strategy == (
        ASSIGNORS["roundrobin"],
        own,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"auto_offset_reset": "oldest"}, "'earliest', 'latest', 'none'"),
        ({"auto_offset_reset": "by_duration:3 days"}, "ISO-8601"),
        ({"partition_assignment_strategy": "sticky-ish"}, "range, roundrobin, sticky, cooperative-sticky"),
        ({"partition_assignment_strategy": []}, "assignors"),
        ({"partition_assignment_strategy": "range,range"}, "named twice"),
        ({"group_id": ""}, "group_id=''"),
        ({"enable_auto_commit": True}, "needs a group_id"),
        ({"group_instance_id": "a"}, "needs a group_id"),
        ({"group_protocol": "newest"}, "'classic' or 'consumer'"),
        ({"group_protocol": "consumer", "session_timeout_ms": 45_000}, "group.consumer.session.timeout.ms"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 3_000}, "group.consumer.heartbeat.interval.ms"),
        ({"group_protocol": "consumer", "partition_assignment_strategy": "range"}, "group_remote_assignor"),
        ({"group_remote_assignor": "uniform"}, "group_protocol='consumer'"),
        ({"heartbeat_interval_ms": 45_000}, "session_timeout_ms=45000"),
        ({"fetch_max_wait_ms": 30_000}, "request_timeout_ms=30000"),
        ({"max_poll_records": 0}, "at least 1"),
        ({"fetch_min_bytes": 2**31}, "from 0 to 2147483647"),
        ({"max_partition_fetch_bytes": 2**31}, "from 1 to 2147483647"),
        ({"session_timeout_ms": 2**31}, "from 1 to 2147483647"),
        ({"max_poll_interval_ms": 2**31}, "from 1 to 2147483647"),
        ({"fetch_minbytes": 1}, "did you mean fetch_min_bytes"),
        ({"key_deserializer": "StringDeserializer"}, "callable"),
    ],
)
def test_invalid_option_is_refused_with_a_hint(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**options)


@pytest.mark.parametrize(("text", "ms"), [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("pt0.25s", 250)])
def test_durations_are_iso_8601(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "PT1D", "P-1D"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISO-8601"):
        parse_duration_ms(text)


def test_every_policy_has_its_timestamp() -> None:
    assert reset_timestamp("earliest", 5) == EARLIEST
    assert reset_timestamp("latest", 5) == LATEST
    assert reset_timestamp("none", 5) is None
    assert reset_timestamp("by_duration:PT1S", 5_000) == 4_000
    assert reset_timestamp("by_duration:P1D", 5_000) == 0


def test_auto_offset_reset_takes_a_timedelta() -> None:
    policy = config(auto_offset_reset=timedelta(days=1, milliseconds=250)).auto_offset_reset
    assert policy == "by_duration:PT86400.250000S"
    assert reset_timestamp(policy, 86_400_251) == 1
    with pytest.raises(ConfigError, match="auto_offset_reset="):
        config(auto_offset_reset=timedelta(seconds=-1))


def test_typed_keywords_are_the_options() -> None:
    named = {field.name for field in dataclasses.fields(ConsumerConfig)} - {"bootstrap_servers", "group_id"}
    assert set(typing.get_type_hints(ConsumerOptions)) == named
    assert set(typing.get_type_hints(ClientOptions)) <= named
