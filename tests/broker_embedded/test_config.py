"""The broker's options: names, values, profiles, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.config.broker import BROKER_OPTIONS, PROFILES, REASONS, SERVED_OPTIONS, refusal
from pyclient.config.options import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    REFUSED,
    STRING,
    WITHOUT_EFFECT,
    Option,
    render,
    table_of,
)
from pyclient.errors import ConfigError

IGNORED = {name: option for name, option in BROKER_OPTIONS.items() if option.support is WITHOUT_EFFECT}


def build(settings: dict[str, Any] | None = None, **options: Any) -> BrokerConfig:
    return BrokerConfig.build(settings, data_dir="/data", **options)


def test_defaults_are_kafka_s() -> None:
    config = build(profile="kafka")
    assert config.integer("num.partitions") == 1
    assert config.integer("group.initial.rebalance.delay.ms") == 3000
    assert config.integer("offsets.topic.num.partitions") == 50
    assert config.integer("log.segment.bytes") == 1 << 30
    assert config.integer("log.retention.hours") == 168
    assert config.boolean("auto.create.topics.enable") is True
    assert config.text("log.dirs") == "/data"


def test_the_test_profile_is_quick() -> None:
    config = build()
    assert config.profile == "test"
    assert config.seconds("group.initial.rebalance.delay.ms") == 0
    assert config.integer("offsets.topic.num.partitions") <= 4


def test_a_setting_wins_over_the_profile() -> None:
    assert build({"group.initial.rebalance.delay.ms": "50"}).seconds("group.initial.rebalance.delay.ms") == 0.05


def test_settings_are_texts_or_values() -> None:
    config = build({"num.partitions": 3, "auto.create.topics.enable": False, "log.cleaner.min.cleanable.ratio": "0.25"})
    assert config.integer("num.partitions") == 3
    assert config.boolean("auto.create.topics.enable") is False
    assert config.explicit["auto.create.topics.enable"] == "false"


def test_the_finest_unit_sets_a_topic_s_default() -> None:
    config = build({"log.retention.hours": 2, "log.retention.minutes": 7, "log.roll.hours": 1})
    assert config.log_defaults().retention_ms == 7 * 60_000
    assert config.log_defaults().segment_ms == 3_600_000


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num.partition", 1, "did you mean num.partitions"),
        ("nonsense", 1, "unknown broker option"),
        ("num.partitions", 0, "at least 1"),
        ("num.partitions", "three", "whole number"),
        ("num.partitions", 2**31, "fit Kafka's type int"),
        ("num.partitions", None, "must be a text, a number or a bool"),
        ("num.partitions", [1], "must be a text, a number or a bool"),
        ("auto.create.topics.enable", "ja", "true or false"),
        ("compression.type", "zip", "zstd"),
        ("log.cleanup.policy", "delete,never", "delete or compact"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "from 0 to 1"),
        ("log.dirs", "/elsewhere", "has to be the first"),
        ("listeners", "PLAINTEXT:9092", "must be like SASL_SSL://"),
        ("sasl.kerberos.service.name", "kafka", "OAUTHBEARER with a JWKS are served"),
        ("ssl.provider", "x", "OpenSSL"),
        ("zookeeper.connect", "x", "KRaft"),
        ("controller.quorum.voters", "1@h:1,2@h:2", "must be odd"),
        ("controller.quorum.voters", "2@h:1", "must be one of the voters"),
        ("controller.quorum.voters", "1@h:1,1@h:2,2@h:3", "twice"),
        ("controller.quorum.voters", "1@h:1,2@h:1,3@h:3", "twice"),
        ("controller.quorum.voters", "h:1", "like 1@host:port"),
        ("controller.quorum.voters", "1@h", "not host:port"),
        ("controller.quorum.bootstrap.servers", "h:1", "own entry must have its node.id"),
        ("controller.quorum.bootstrap.servers", "1@h:1,h", "not host:port"),
        ("controller.listener.names", "A,B", "one such listener"),
        ("process.roles", "zookeeper", "broker, controller, or both"),
        ("process.roles", "broker", "controller.quorum.voters"),
        ("max.connection.creation.rate", "0", "at least 1"),
        ("remote.log.storage.system.enable", "true", "no tiered storage"),
        ("create.topic.policy.class.name", "a.B", "plug-ins"),
        ("replication.quota.windows.num", "11", "unknown broker option"),
    ],
)
def test_an_impossible_setting_names_itself_and_what_is_allowed(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build({name: value})
    assert name in str(raised.value)
    assert expected in str(raised.value)


def test_settings_of_kafka_s_machinery_are_taken() -> None:
    texts = {name: text for name, option in IGNORED.items() if (text := render(option.default)) is not None}
    del texts["broker.id"]
    taken, plain = build(texts), build()
    assert (taken.explicit, taken.values, taken.ignored) == (plain.explicit, plain.values, texts)
    assert {
        "metadata.max.idle.interval.ms",
        "transaction.state.log.load.buffer.size",
        "metric.reporters",
    } <= IGNORED.keys()


def test_options_without_effect_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    build({"num.io.threads": 3, "num.partitions": 3, "background.threads": 3})
    [line] = caplog.messages
    assert line.endswith(": background.threads, num.io.threads")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto.leader.rebalance.enable", "ja"),
        ("replica.lag.time.max.ms", "soon"),
        ("offsets.commit.required.acks", "32768"),
        ("log.cleaner.io.max.bytes.per.second", "much"),
        ("num.io.threads", None),
    ],
)
def test_settings_of_kafka_s_machinery_have_types(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        build({name: value})


def test_the_old_name_of_the_node_s_id_is_taken() -> None:
    assert build({"broker.id": 7}).integer("node.id") == 7
    assert build({"broker.id": "7", "node.id": 7}).integer("node.id") == 7
    with pytest.raises(ConfigError, match=r"broker\.id is 7 and node\.id 8"):
        build({"broker.id": 7, "node.id": 8})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"group.min.session.timeout.ms": 5000, "group.max.session.timeout.ms": 4000},
            r"group\.min\.session\.timeout\.ms",
        ),
        ({"group.consumer.session.timeout.ms": 60_001}, r"60001\) is above group\.consumer\.max\.session"),
        ({"group.consumer.heartbeat.interval.ms": 49}, r"min\.heartbeat\.interval\.ms \(50\) is above"),
        ({"group.consumer.assignment.interval.ms": 15_001}, r"15001\) is above group\.consumer\.max\.assignment"),
        (
            {"group.consumer.min.assignment.interval.ms": 2, "group.consumer.max.assignment.interval.ms": 1},
            r"min\.assignment\.interval\.ms \(2\) is above group\.consumer\.max",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        build(settings)


@pytest.mark.parametrize("options", [{"profile": "production"}, {"port": -1}, {"port": 65536}])
def test_impossible_places_and_profiles_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build(**options)


def test_every_profile_is_possible() -> None:
    for profile in PROFILES:
        build(profile=profile)


def test_no_option_is_declared_twice() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        table_of(Option("a", INT, 1, ""), Option("a", INT, 2, ""))
    for name, option in BROKER_OPTIONS.items():
        assert bool(refusal(name)) is (option.support is REFUSED)
        assert option.reason == (refusal(name) or "")
    assert not REASONS.keys() & SERVED_OPTIONS.keys()


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (Option("a", BOOLEAN, None, ""), " TRUE ", True),
        (Option("a", INT, None, "", 0), "12", 12),
        (Option("a", DOUBLE, None, "", 0, 1), "0.5", 0.5),
        (Option("a", STRING, None, ""), "x", "x"),
        (Option("a", LIST, None, "", choices=("x", "y")), "x, y", "x,y"),
    ],
)
def test_a_text_becomes_a_value_and_a_text_again(setting: Option, text: str, value: Any) -> None:
    assert setting.parse(text) == value
    assert setting.parse(render(value) or "") == value


@pytest.mark.parametrize("text", ["nan", "inf", "-0.1", "1.1", ""])
def test_a_number_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a is"):
        Option("a", DOUBLE, None, "", 0, 1).parse(text)


def test_every_default_is_a_possible_value() -> None:
    for setting in SERVED_OPTIONS.values():
        if setting.default is not None:
            assert setting.parse(render(setting.default) or "") == setting.default


def test_the_roles_and_the_voters_of_a_node() -> None:
    assert build().quorum.voters == {}
    assert build().cluster_id is None
    voters = "1@a:9093, 2@[::1]:9094,3@c:9095"
    first = build({"controller.quorum.voters": voters})
    assert first.quorum.voters == {1: ("a", 9093), 2: ("::1", 9094), 3: ("c", 9095)}
    assert first.quorum.is_broker
    assert first.quorum.is_controller
    observer = build({"controller.quorum.voters": voters, "process.roles": "broker", "node.id": 4})
    assert observer.quorum.is_broker
    assert not observer.quorum.is_controller
    assert first.cluster_id == observer.cluster_id != build({"controller.quorum.voters": "1@a:9093"}).cluster_id
    assert len(first.cluster_id or "") == 22


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"controller.quorum.voters": "1@a:1,2@b:2"}, "an even number survives no more failures than one voter less"),
        ({"controller.quorum.voters": "1@a:1,1@b:2,3@c:3"}, "names node 1 twice"),
        ({"controller.quorum.voters": "1@a:1,2@a:1,3@c:3"}, "names the address a:1 twice"),
        ({"controller.quorum.voters": "1"}, r"must look like 1@host:port"),
        ({"controller.quorum.voters": "2@a:1"}, "node.id 1 has the role controller and must be one of the voters"),
        ({"process.roles": "broker"}, "a node with one role belongs to a cluster"),
        ({"process.roles": "broker,broker"}, "it must be broker, controller, or both"),
        ({"controller.quorum.bootstrap.servers": "a:1"}, "a controller's own entry must have its node.id"),
        (
            {"controller.quorum.bootstrap.servers": "1@a:1", "controller.quorum.voters": "1@a:1"},
            "are both set: static voters have no bootstrap servers",
        ),
    ],
)
def test_impossible_quorum_is_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        build(settings)


def test_a_voter_is_a_controller() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles must then have the role controller"):
        build({"controller.quorum.voters": "1@h:1", "process.roles": "broker"})
