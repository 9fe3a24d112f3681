"""The table of APIs and the choice of a version."""

from __future__ import annotations

import subprocess
import sys

import pytest
from protocol_samples import all_messages

from pyclient.errors import UnsupportedVersion
from pyclient.protocol.fields import Request, Response
from pyclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pyclient.protocol.versions import API_KEYS, UnknownApi, api_name, is_flexible, negotiate, request_class

REQUESTS = [cls for cls in all_messages() if issubclass(cls, Request)]


def test_table_names_every_declared_request() -> None:
    assert {cls.name: cls.api_key for cls in REQUESTS} == API_KEYS
    assert {api_name(key): key for key in API_KEYS.values()} == API_KEYS


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.name)
def test_table_and_declaration_agree(cls: type[Request[Response]]) -> None:
    assert request_class(cls.api_key) is cls
    response = cls.response
    assert (response.name, response.api_key) == (cls.name, cls.api_key)
    assert (response.versions, response.flexible) == (cls.versions, cls.flexible)
    first, last = cls.versions
    for version in range(first, last + 1):
        assert is_flexible(cls.api_key, version) == (cls.flexible is not None and version >= cls.flexible)


@pytest.mark.parametrize("key", [-1, 4, 76, 999])
def test_unknown_api_key_raises_unknown_api(key: int) -> None:
    for lookup in (request_class, api_name, lambda key: is_flexible(key, 0)):
        with pytest.raises(UnknownApi, match=f"no API with key {key} is known") as caught:
            lookup(key)
        assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize(
    ("offered", "maximum", "version"),
    [((0, 11), None, 11), ((0, 99), None, 18), ((4, 4), None, 4), ((0, 99), 12, 12), ((18, 30), None, 18)],
)
def test_highest_common_version_is_taken(offered: tuple[int, int], maximum: int | None, version: int) -> None:
    assert negotiate(FetchRequest, {1: offered}, maximum) == version
    assert negotiate(FetchResponse, {1: offered}, maximum) == version


@pytest.mark.parametrize(("offered", "maximum"), [((0, 3), None), ((19, 30), None), ((13, 18), 12), ((9, 5), None)])
def test_negotiation_without_common_version_names_both_ranges(offered: tuple[int, int], maximum: int | None) -> None:
    ranges = f"offers versions {offered[0]} to {offered[1]}, this client 4 to {maximum or 18}"
    with pytest.raises(UnsupportedVersion, match=f"Fetch: the broker {ranges}"):
        negotiate(FetchRequest, {1: offered}, maximum)


def test_negotiation_names_api_that_broker_does_not_offer() -> None:
    with pytest.raises(UnsupportedVersion, match="the broker does not offer Fetch; this client supports 4 to 18"):
        negotiate(FetchRequest, {0: (3, 9)})


def test_message_modules_and_compilers_are_imported_on_first_use() -> None:
    script = """
import sys
from pyclient.protocol import codec, framing, versions
before = {name for name in sys.modules if name.startswith("pyclient.protocol.")}
assert not any(".messages." in name for name in before), before
assert "pyclient.protocol.encoding" not in before
versions.request_class(versions.API_KEYS["Fetch"])
loaded = {name for name in sys.modules if ".messages." in name}
assert loaded == {"pyclient.protocol.messages.fetch"}, loaded
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
