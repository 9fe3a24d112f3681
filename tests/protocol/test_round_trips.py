"""Every version of every message round-trips; shorter, longer and malformed bytes are refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol_samples import all_messages, all_versions, filled, label, minimal, strategy_for, versions_of

from pyclient.errors import MalformedMessage, ProtocolError, TruncatedMessage
from pyclient.protocol import codec
from pyclient.protocol.fields import Message

EVERY_VERSION = [pytest.param(cls, version, id=label(cls, version)) for cls, version in all_versions()]
EVERY_MESSAGE = [pytest.param(cls, id=cls.__name__) for cls in all_messages()]

quick = settings(
    max_examples=5,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_message_round_trips(cls: type[Message], version: int) -> None:
    @quick
    @given(strategy_for(cls, version))
    def check(message: Any) -> None:
        encoded = codec.encode(message, version)
        assert codec.decode(cls, version, encoded) == message
        assert codec.decode(cls, version, memoryview(bytearray(b"front" + encoded)), 5) == message

    check()


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_message_with_every_field_set_round_trips(cls: type[Message], version: int) -> None:
    message = filled(cls, version)
    encoded = codec.encode(message, version)
    decoded = codec.decode(cls, version, encoded)
    assert decoded == message
    assert codec.encode(decoded, version) == encoded
    assert b"".join(codec.encode_parts(message, version)) == encoded


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_empty_message_round_trips(cls: type[Message], version: int) -> None:
    message = minimal(cls, version)
    encoded = codec.encode(message, version)
    assert codec.decode(cls, version, encoded) == message
    for size in range(len(encoded)):
        with pytest.raises((TruncatedMessage, MalformedMessage), match=f"^{label(cls, version)}\\b"):
            codec.decode(cls, version, encoded[:size])


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_every_shorter_prefix_is_refused_by_name(cls: type[Message], version: int) -> None:
    encoded = codec.encode(filled(cls, version), version)
    for size in range(len(encoded)):
        with pytest.raises((TruncatedMessage, MalformedMessage), match=f"^{label(cls, version)}\\b"):
            codec.decode(cls, version, encoded[:size])


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_bytes_after_last_field_are_refused_by_name(cls: type[Message], version: int) -> None:
    encoded = codec.encode(filled(cls, version), version)
    if cls.tolerant:
        assert codec.decode(cls, version, encoded + b"\0") == filled(cls, version)
    else:
        with pytest.raises(MalformedMessage, match=f"^{label(cls, version)}: 1 bytes are left over"):
            codec.decode(cls, version, encoded + b"\0")


HOSTILE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff", b"\xff\xff\xff\xff\xff\xff")


LARGE = 700
"""Bytes of a message of whose positions a fifth is tried: tracing long generated functions takes 6 ms a case."""


@pytest.mark.parametrize("cls", EVERY_MESSAGE)
def test_decoder_does_not_allocate_claimed_lengths(cls: type[Message]) -> None:
    first, last = cls.versions
    for version in {first, last}:
        encoded = codec.encode(filled(cls, version), version)
        codec.decode(cls, version, encoded)
        tracemalloc.start()
        try:
            for position in range(0, len(encoded), 1 if len(encoded) < LARGE else 5):
                for lie in HOSTILE[position % 2 :: 2]:
                    _accept_or_refuse(cls, version, encoded[:position] + lie + encoded[position + len(lie) :])
            assert tracemalloc.get_traced_memory()[1] < 1_000_000 + 64 * len(encoded)
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("cls", EVERY_MESSAGE)
def test_random_bytes_are_message_or_error(cls: type[Message]) -> None:
    @quick
    @given(st.sampled_from(versions_of(cls)), st.binary(max_size=200))
    def check(version: int, noise: bytes) -> None:
        _accept_or_refuse(cls, version, noise)

    check()


def _accept_or_refuse(cls: type[Message], version: int, data: bytes) -> None:
    try:
        decoded = codec.decode(cls, version, data)
    except ProtocolError as error:
        assert str(error).startswith(label(cls, version))
    else:
        assert type(decoded) is cls
