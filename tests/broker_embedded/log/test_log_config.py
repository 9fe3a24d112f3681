"""Topic configs: Kafka's names and defaults, what they take, and where a broker's own settings come in."""

from __future__ import annotations

import dataclasses

import pytest

from pyclient import errors
from pyclient.broker_embedded.log.config import LogConfig, check_asked, field_of
from pyclient.config.options import render
from pyclient.config.topic import TOPIC_OPTIONS


def test_every_field_has_a_key_and_every_key_a_field() -> None:
    assert {field_of(name) for name in TOPIC_OPTIONS} == {field.name for field in dataclasses.fields(LogConfig)}


@pytest.mark.parametrize("name", TOPIC_OPTIONS)
def test_every_default_is_a_value_that_is_taken(name: str) -> None:
    key = TOPIC_OPTIONS[name]
    assert key.parse(render(key.default) or "") == key.default
    config = LogConfig.from_topic({name: render(key.default) or ""})
    assert config == LogConfig()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cleanup.policy", "keep"),
        ("cleanup.policy", "delete,keep"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "1e6"),
        ("max.message.bytes", "1_000"),
        ("max.message.bytes", str(2**31)),
        ("retention.ms", "-2"),
        ("retention.ms", "week"),
        ("retention.ms", str(2**63)),
        ("segment.bytes", "1048575"),
        ("segment.ms", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("message.timestamp.type", "createtime"),
        ("preallocate", "yes"),
        ("flush.messages", "0"),
        ("no.such.config", "1"),
        ("leader.replication.throttled.replicas", "none"),
        ("leader.replication.throttled.replicas", "*,0:1"),
        ("follower.replication.throttled.replicas", "0:1:2"),
        ("follower.replication.throttled.replicas", "-1:1"),
        ("local.retention.ms", "-3"),
        ("local.retention.bytes", "-3"),
        ("remote.log.copy.disable", "x"),
    ],
)
def test_impossible_values_are_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(errors.InvalidConfig, match=name.replace(".", r"\.")):
        LogConfig.from_topic({name: text})


@pytest.mark.parametrize(
    ("text", "replicas"), [("*", ("*",)), ("", ()), (" 0:1 , 2:3", ("0:1", "2:3")), ("10:2", ("10:2",))]
)
def test_throttled_replicas_are_all_or_pairs_of_numbers(text: str, replicas: tuple[str, ...]) -> None:
    name = "leader.replication.throttled.replicas"
    assert LogConfig.from_topic({name: text}).leader_replication_throttled_replicas == replicas


def test_no_topic_can_be_tiered() -> None:
    check_asked({"remote.storage.enable": "false", "remote.log.copy.disable": "true"})
    with pytest.raises(errors.InvalidConfig, match="no tiered storage"):
        check_asked({"remote.storage.enable": "true"})
    with pytest.raises(errors.InvalidConfig, match=r"remote\.storage\.enable is 'compact': it must be true or false"):
        check_asked({"remote.storage.enable": "compact"})
    assert LogConfig.from_topic({"remote.storage.enable": "true"}).remote_storage_enable  # as a log of Kafka's may say


def test_a_topic_overrides_the_brokers_defaults() -> None:
    broker = LogConfig.from_broker({"log.retention.hours": "2", "message.max.bytes": "77", "num.partitions": "3"})
    assert (broker.retention_ms, broker.max_message_bytes) == (7_200_000, 77)
    topic = LogConfig.from_topic({"retention.ms": "-1", "cleanup.policy": " compact , delete "}, broker)
    assert (topic.retention_ms, topic.max_message_bytes) == (-1, 77)
    assert topic.compacts
    assert topic.deletes


def test_finest_time_unit_wins() -> None:
    settings = {"log.retention.hours": "1", "log.retention.minutes": "3", "log.roll.hours": "1"}
    assert LogConfig.from_broker(settings).retention_ms == 180_000
    assert LogConfig.from_broker({**settings, "log.retention.ms": "5"}).retention_ms == 5
    assert LogConfig.from_broker({"log.retention.hours": "-1"}).retention_ms == -1
    assert LogConfig.from_broker(settings).segment_ms == 3_600_000
    with pytest.raises(errors.InvalidConfig, match=r"log\.retention\.hours"):
        LogConfig.from_broker({"log.retention.hours": "soon"})


def test_segments_may_be_small_for_tests() -> None:
    assert LogConfig.from_topic({"internal.segment.bytes": "100"}).segment_bytes == 100


def test_values_are_written_as_kafka_writes_them() -> None:
    written = {name: render(key.default) for name, key in TOPIC_OPTIONS.items()}
    assert written["cleanup.policy"] == "delete"
    assert written["preallocate"] == "false"
    assert written["min.cleanable.dirty.ratio"] == "0.5"
    assert written["flush.ms"] == "9223372036854775807"
