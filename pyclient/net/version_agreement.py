"""The first thing a new connection asks: which versions of which requests the broker knows (KIP-35, KIP-511)."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyclient
from pyclient.errors import ConnectionFailed, KafkaError, KafkaTimeout, ProtocolError, UnsupportedVersion, from_code
from pyclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from pyclient.net.connection import Connection

MAXIMUM: Final = {
    0: 11,  # Produce 12 is transactions V2, 13 topic ids
    1: 12,  # Fetch 13 is topic ids
    2: 8,
    8: 9,  # OffsetCommit 10 is topic ids
    9: 9,  # OffsetFetch 10 is topic ids
    10: 4,
    22: 4,
    24: 3,  # AddPartitionsToTxn 4 is between brokers
    26: 4,  # EndTxn 5 is transactions V2
    28: 4,  # TxnOffsetCommit 5 is transactions V2
}
"""API key -> the highest version asked for unless the caller says more: newer ones mean what nobody here does yet."""

_SOFTWARE_VERSION: Final = re.sub(r"[^a-zA-Z0-9.\-]", "-", pyclient.__version__)


async def agree_on_versions(connection: Connection, timeout: float) -> None:
    """Asks for the broker's versions in the newest form, and in the one it names if it does not know that."""
    highest = ApiVersionsRequest.versions[1]
    try:
        response = await _ask(connection, highest, timeout)
        if response.error_code == UnsupportedVersion.code:
            response = await _ask(connection, _listed_version(response, highest), timeout)
    except KafkaTimeout as error:
        raise ConnectionFailed(
            f"{connection.address} accepts connections but does not answer ApiVersions: it may not be a Kafka broker,"
            f" or it speaks TLS (then set security_protocol='SSL')"
        ) from error
    except KafkaError as error:
        raise ConnectionFailed(f"{connection.address}: {_explain(connection, error)}") from error
    if response.error_code:
        failure = from_code(response.error_code, "ApiVersions was refused")
        raise ConnectionFailed(f"{connection.address}: {failure!r}")
    connection.api_ranges = MappingProxyType(
        {
            api.api_key: (api.min_version, api.max_version)
            for api in response.api_keys
            if 0 <= api.min_version <= api.max_version
        }
    )
    connection.finalized_features = MappingProxyType(
        {feature.name: feature.max_version_level for feature in response.finalized_features}
    )


async def _ask(connection: Connection, version: int, timeout: float) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="pyclient", client_software_version=_SOFTWARE_VERSION)
    return await connection.request(request, version=version, timeout=timeout)


def _explain(connection: Connection, error: KafkaError) -> str:
    if isinstance(error, ProtocolError):
        return f"the answer to ApiVersions makes no sense, it may not be a Kafka broker ({error})"
    cause = connection.cause
    if isinstance(cause, ProtocolError):
        return str(cause)
    return (
        f"the connection ended before ApiVersions was answered ({cause or error}): it may not be a Kafka broker,"
        f" or it speaks TLS (then set security_protocol='SSL')"
    )


def _listed_version(response: ApiVersionsResponse, highest: int) -> int:
    """The ApiVersions version to fall back to: what the broker lists for it, else 0, which every broker answers."""
    for api in response.api_keys:
        if api.api_key == ApiVersionsRequest.api_key and 0 <= api.max_version < highest:
            return api.max_version
    return 0
