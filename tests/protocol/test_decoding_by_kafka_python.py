"""kafka-python decodes our bytes to the same values."""

from __future__ import annotations

import pkgutil
import re
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from protocol_samples import all_messages, filled, label, versions_of

from pyclient.protocol import codec
from pyclient.protocol.fields import Message, Request, Response
from pyclient.protocol.messages.api_versions import ApiVersionsResponse
from pyclient.protocol.parts import fields_of

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    try:
        from kafka import protocol as other
    except ImportError:
        other = None


GIVEN_AS_SETS = "authorized_operations"


def peers() -> dict[str, Any]:
    """Return kafka-python's message classes by name."""
    if other is None:
        return {}
    found: dict[str, Any] = {}
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        for module in pkgutil.walk_packages(other.__path__, "kafka.protocol."):
            if not re.search("old|schemas|stubs", module.name):
                classes = vars(import_module(module.name)).values()
                found |= {each.__name__: each for each in classes if getattr(each, "valid_versions", None)}
    return found


def common() -> Iterator[Any]:
    known = peers()
    for cls in all_messages():
        if issubclass(cls, Request | Response) and cls.__name__ in known:
            peer = known[cls.__name__]
            for version in versions_of(cls):
                if version <= peer.max_version:
                    yield pytest.param(cls, peer, version, id=label(cls, version))


def test_kafka_python_knows_most_of_our_messages() -> None:
    if other is None:
        pytest.skip("kafka-python is not installed")
    assert len(list(common())) > 400


@pytest.mark.parametrize(("cls", "peer", "version"), list(common()))
def test_kafka_python_decodes_same_values(cls: type[Message], peer: Any, version: int) -> None:
    message = filled(cls, version)
    if isinstance(message, ApiVersionsResponse):
        message.error_code = 0  # kafka-python reads every other answer as v0
    read = peer.decode(codec.encode(message, version), version=version)
    assert list(differences(message, read, version, "")) == []


def differences(ours: Any, theirs: Any, version: int, path: str) -> Iterator[str]:
    for each in fields_of(type(ours)):
        if each.present_in(version) and not each.name.endswith(GIVEN_AS_SETS):
            one, other_one = getattr(ours, each.name), getattr(theirs, each.name)
            yield from compare(one, other_one, version, f"{path}.{each.name}")


def compare(ours: Any, theirs: Any, version: int, path: str) -> Iterator[str]:
    if hasattr(ours, "__fields__"):
        yield from differences(ours, theirs, version, path)
    elif isinstance(ours, list):
        if len(ours) != len(theirs):
            yield f"{path}: {len(ours)} items, {len(theirs)}"
        for index, (one, other_one) in enumerate(zip(ours, theirs, strict=False)):
            yield from compare(one, other_one, version, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {ours!r}, {theirs!r}"
