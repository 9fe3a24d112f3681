"""Negotiate API versions on a new connection (KIP-35, KIP-511)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from pyclient.errors import (
    ConnectionFailed,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
    from_code,
)
from pyclient.protocol.fields import Request, Response
from pyclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pyclient.version import __version__

R = TypeVar("R", bound=Response)

MAXIMUM: Final = {
    0: 11,  # Produce 12 is transactions V2, 13 topic ids
    1: 12,  # Fetch 13 is topic ids
    2: 8,
    8: 9,  # OffsetCommit 10 is topic ids
    9: 9,  # OffsetFetch 10 is topic ids
    10: 4,
    22: 5,  # InitProducerId 6 is two-phase commit
    24: 3,  # AddPartitionsToTxn 4 is between brokers
    26: 4,  # EndTxn 5 is transactions V2
    28: 4,  # TxnOffsetCommit 5 is transactions V2
}
"""API key -> the highest version used unless the caller asks for more: newer ones need features not implemented."""

_SOFTWARE_VERSION: Final = re.sub(r"[^a-zA-Z0-9.\-]", "-", __version__)


class NegotiatingConnection(Protocol):
    """A `Connection`, as far as the negotiation needs it: it sets the two attributes that begin empty."""

    address: str
    api_ranges: Mapping[int, tuple[int, int]]
    finalized_features: Mapping[str, int]

    @property
    def cause(self) -> BaseException | None:
        """The error that ended the connection."""

    @property
    def encrypted(self) -> bool:
        """True if the connection uses TLS."""

    @property
    def authenticates(self) -> bool:
        """True if the connection uses SASL."""

    async def request(self, message: Request[R], *, timeout: float | None = None, version: int | None = None) -> R:
        """Send a request and wait for its response."""


async def negotiate_versions(connection: NegotiatingConnection, timeout: float) -> None:
    """Send ApiVersions in its newest version, and again in the version that the broker lists if it rejects that."""
    highest = ApiVersionsRequest.versions[1]
    try:
        response = await _ask(connection, highest, timeout)
        if response.error_code == UnsupportedVersion.code:
            response = await _ask(connection, _listed_version(response, highest), timeout)
    except KafkaTimeout as error:
        text = f"accepts connections but does not answer ApiVersions: {_likely_cause(connection)}"
        raise ConnectionFailed(f"{connection.address} {text}") from error
    except KafkaError as error:
        text, lasting = _explain(connection, error)
        raise ConnectionFailed(f"{connection.address}: {text}", lasting=lasting) from error
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


async def requires_sasl(connection: NegotiatingConnection, timeout: float) -> bool:
    """Return True if the listener requires SASL; raise `KafkaError` if that cannot be found out.

    A listener without SASL answers SaslHandshake with ILLEGAL_SASL_STATE; an unknown API ends the connection.
    """
    if SaslHandshakeRequest.api_key not in connection.api_ranges:
        return False
    response = await connection.request(SaslHandshakeRequest(mechanism="PLAIN"), timeout=timeout)
    return response.error_code in (0, UnsupportedSaslMechanism.code)


async def _ask(connection: NegotiatingConnection, version: int, timeout: float) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="pyclient", client_software_version=_SOFTWARE_VERSION)
    return await connection.request(request, version=version, timeout=timeout)


def _explain(connection: NegotiatingConnection, error: KafkaError) -> tuple[str, bool]:
    """Return why ApiVersions failed, and True if retrying cannot help."""
    if isinstance(error, ProtocolError):
        return f"invalid ApiVersions response, it may not be a Kafka broker ({error})", True
    cause = connection.cause
    if isinstance(cause, ProtocolError):
        return str(cause), True
    if isinstance(cause, ConnectionFailed) and cause.lasting:
        return str(cause), True
    advice = _likely_cause(connection)
    return f"the connection ended before ApiVersions was answered ({cause or error}): {advice}", False


def _likely_cause(connection: NegotiatingConnection) -> str:
    if connection.encrypted:
        return "it may demand a client certificate (ssl_certfile and ssl_keyfile), or not be a Kafka broker"
    protocol = "SASL_SSL" if connection.authenticates else "SSL"
    return f"it may not be a Kafka broker, or it speaks TLS (then set security_protocol={protocol!r})"


def _listed_version(response: ApiVersionsResponse, highest: int) -> int:
    """Return the ApiVersions version to fall back to: the one the broker lists, else 0, which every broker supports."""
    for api in response.api_keys:
        if api.api_key == ApiVersionsRequest.api_key and 0 <= api.max_version < highest:
            return api.max_version
    return 0
