"""A producer's options: Kafka's defaults, and conflicts that are refused."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from pyclient import errors, serialization
from pyclient.config import ClientOptions, resolve
from pyclient.producer.config import ProducerConfig, ProducerOptions
from pyclient.records.compression import Compression, compress


def config(**options):
    return resolve(ProducerConfig, {"bootstrap_servers": "localhost:9092", **options})


def test_the_defaults_are_kafkas_safe_ones():
    defaults = config()
    assert (defaults.acks, defaults.enable_idempotence, defaults.linger_ms, defaults.batch_size) == (-1, True, 5, 16384)
    assert (defaults.delivery_timeout_ms, defaults.max_in_flight_requests_per_connection) == (120_000, 5)
    assert (defaults.buffer_memory, defaults.max_block_ms, defaults.max_request_size) == (2**25, 60_000, 2**20)
    assert defaults.compression_type == "none" and defaults.retries == 2**31 - 1


def test_a_kafka_style_dictionary_moves_over_unchanged():
    given = {
        "bootstrap.servers": "a:1,b:2",
        "acks": "all",
        "linger.ms": "20",
        "compression.type": "lz4",
        "compression.lz4.level": "9",
        "max.in.flight.requests.per.connection": "3",
        "partitioner.adaptive.partitioning.enable": "false",
    }
    moved = resolve(ProducerConfig, {}, given)
    assert (moved.linger_ms, moved.compression_level, moved.max_in_flight_requests_per_connection) == (20, 9, 3)
    assert moved.bootstrap_servers == ("a:1", "b:2") and not moved.partitioner_adaptive_partitioning_enable


@pytest.mark.parametrize(("given", "stored"), [("all", -1), ("-1", -1), (-1, -1), (1, 1), ("0", 0), ("ALL", -1)])
def test_acks_accepts_every_spelling_of_kafka(given, stored):
    assert config(acks=given).acks == stored


@pytest.mark.parametrize(
    "options",
    [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"acks": 1, "max_in_flight_requests_per_connection": 6}],
)
def test_idempotence_is_disabled_by_default_and_conflicts_if_explicit(options):
    assert config(**options).enable_idempotence is False
    with pytest.raises(errors.ConfigError, match="enable_idempotence=True is not possible with"):
        config(enable_idempotence=True, **options)


@pytest.mark.parametrize("asked_for", [{}, {"enable_idempotence": True}])
def test_more_requests_in_flight_than_brokers_remember_are_refused(asked_for):
    with pytest.raises(errors.ConfigError, match="max_in_flight_requests_per_connection=6 is not possible"):
        config(max_in_flight_requests_per_connection=6, **asked_for)
    assert not config(max_in_flight_requests_per_connection=6, enable_idempotence=False).idempotent


def test_more_than_five_requests_in_flight_conflict_with_idempotence():
    with pytest.raises(errors.ConfigError, match=r"max_in_flight_requests_per_connection=6.*enable_idempotence=False"):
        config(max_in_flight_requests_per_connection=6)
    assert config(max_in_flight_requests_per_connection=6, enable_idempotence=False).enable_idempotence is False


def test_the_delivery_timeout_covers_linger_and_one_request():
    with pytest.raises(errors.ConfigError, match=r"at least linger_ms \+ request_timeout_ms = 30005"):
        config(delivery_timeout_ms=30_000)
    assert config(delivery_timeout_ms=30_000, linger_ms=0).delivery_timeout_ms == 30_000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"acks": 2}, "acks=2 is not possible: it takes 'all'"),
        ({"acks": True}, "acks=True"),
        ({"linger_ms": -1}, "linger_ms"),
        ({"compression_type": "rar"}, "none or gzip or snappy or lz4 or zstd"),
        ({"compression_gzip_level": 10}, "compression_gzip_level=10 is not possible: it takes a whole number from 1"),
        ({"compression_gzip_level": 0}, "compression_gzip_level=0"),
        ({"compression_lz4_level": 0}, "compression_lz4_level=0"),
        ({"compression_zstd_level": 23}, "compression_zstd_level=23"),
        ({"max_request_size": 2**31}, "max_request_size=2147483648"),
        ({"batch_size": 2**31}, "batch_size=2147483648"),
        ({"delivery_timeout_ms": 2**31}, "delivery_timeout_ms=2147483648"),
        ({"partitioner": "murmur2"}, "partitioner"),
        ({"value_serializer": 5}, "value_serializer"),
        ({"lingerms": 5}, "did you mean linger_ms"),
        ({"transactional_id": ""}, "transactional_id='' is not possible: it takes a text that is not empty"),
        ({"transactional_id": "x", "enable_idempotence": False}, "'x' is not possible with enable_idempotence=False"),
        ({"transactional_id": "x", "acks": 1}, "'x' is not possible with acks=1"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms=0"),
        ({"transaction_two_phase_commit_enable": True}, "two-phase commit (KIP-939) is not supported yet"),
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism is given, but security_protocol is PLAINTEXT"),
    ],
)
def test_impossible_or_unsupported_options_are_named(options, text):
    with pytest.raises(errors.ConfigError) as caught:
        config(**options)
    assert text in str(caught.value)


@pytest.mark.parametrize(("codec", "levels"), [("gzip", (1, 9, "-1")), ("lz4", (1, 17)), ("zstd", (-131_072, 0, 22))])
def test_accepted_compression_levels_exist_in_the_codec(codec, levels):
    for level in levels:
        chosen = config(compression_type=codec, **{f"compression_{codec}_level": level})
        assert compress(Compression.from_name(codec), b"x" * 100, chosen.compression_level)


def test_serializers_are_callables_or_have_serialize():
    assert config(key_serializer=serialization.json).key_serializer({"a": 1}) == serialization.json.serialize({"a": 1})
    assert config(value_serializer=bytes).serializes and not config().serializes


def test_keyword_arguments_and_options_are_the_same():
    names = {field.name for field in dataclasses.fields(ProducerConfig)} - {"bootstrap_servers"}
    assert set(typing.get_type_hints(ProducerOptions)) == names
    assert issubclass(ProducerOptions, dict) and set(typing.get_type_hints(ClientOptions)) <= names
