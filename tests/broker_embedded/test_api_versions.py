"""ApiVersions: advertised versions and features, and unknown versions."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pyclient import errors
from pyclient.protocol import codec
from pyclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.versions import API_KEYS


def request(version: int, body: bytes = b"", *, api_key: int = 18, correlation_id: int = 7) -> bytes:
    """Return a request with the header of `version`."""
    tags = b"\0" if api_key == 18 and version >= 3 else b""
    return struct.pack(">hhih", api_key, version, correlation_id, -1) + tags + body


@pytest.mark.parametrize("version", range(5))
def test_served_version_is_answered(client: Any, version: int) -> None:
    wanted = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
    response = client.call(wanted, version)
    assert response.error_code == 0
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert ranges[API_KEYS["Produce"]] == (0, 13)  # librdkafka < 2.11.1 stops compressing when it starts above 0
    assert ranges[API_KEYS["Fetch"]] == (4, 18)
    assert ranges[18] == (0, 4)
    assert all(0 <= low <= high for low, high in ranges.values())


def test_unknown_version_is_answered_in_version_0(client: Any) -> None:
    for version in range(5, 128):
        client.send_frame(request(version, b"\x05what\x04ever\0"))
        frame = client.receive_frame()
        assert struct.unpack_from(">i", frame)[0] == 7
        response = codec.decode(ApiVersionsResponse, 0, frame, 4)
        assert response.error_code == errors.UnsupportedVersion.code
        [entry] = response.api_keys
        assert (entry.api_key, entry.min_version, entry.max_version) == (18, 0, 4)
    assert client.call(ApiVersionsRequest(), 0).error_code == 0


def test_negative_version_closes_connection(client: Any) -> None:
    client.send_frame(struct.pack(">hhih", 18, -1, 7, -1))
    assert client.is_closed()


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("raw", ""), ("a b", "1"), ("-raw", "1"), ("raw", "1.")])
def test_malformed_software_name_is_invalid_request(client: Any, name: str, version: str) -> None:
    wanted = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert client.call(wanted, 3).error_code == errors.InvalidRequest.code


@pytest.mark.parametrize("version", [3, 4])
def test_features_have_supported_and_finalized_levels(client: Any, version: int) -> None:
    wanted = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    response = client.call(wanted, version)
    finalized = {each.name: (each.min_version_level, each.max_version_level) for each in response.finalized_features}
    assert finalized == {
        "metadata.version": (30, 30),
        "group.version": (1, 1),
        "transaction.version": (2, 2),
        "eligible.leader.replicas.version": (1, 1),
    }
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    missing = ("share", "streams", "kraft")  # Kafka has them, too; here only level 0
    all_from_0 = {
        "group.version": (0, 1),
        "transaction.version": (0, 2),
        "eligible.leader.replicas.version": (0, 1),
        **{f"{name}.version": (0, 0) for name in missing},
    }
    from_0 = all_from_0 if version == 4 else {}  # older clients do not accept a minimum of 0
    assert supported == {"metadata.version": (7, 30), **from_0}
    assert response.finalized_features_epoch >= 0


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (API_KEYS["Metadata"], 14),
        (API_KEYS["Produce"], 2),
        (API_KEYS["Fetch"], 3),
        (API_KEYS["Fetch"], 19),
        (API_KEYS["AlterPartition"], 3),
        (4, 0),
        (999, 0),
        (-1, 0),
    ],
)
def test_unserved_api_or_version_closes_connection(client: Any, api_key: int, version: int) -> None:
    client.send_frame(request(version, b"\0" * 32, api_key=api_key))
    assert client.is_closed()


def test_truncated_request_closes_connection(client: Any, connect: Any, broker: Any) -> None:
    client.send_frame(request(1, b"\0\0\0\5\0\3ab", api_key=API_KEYS["Metadata"]))
    assert client.is_closed()
    assert connect(broker).call(MetadataRequest(topics=[]), 1).controller_id == 1
