"""An admin client's calls about delegation tokens (KIP-48, KIP-373), and their value."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from pyclient import errors
from pyclient.errors import ConfigError, MalformedMessage, from_code
from pyclient.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from pyclient.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from pyclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from pyclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

if TYPE_CHECKING:
    from pyclient.admin.group_calls import Deadline
    from pyclient.cluster.client import ClusterClient

_DEFAULT: Final = -1
"""The time of a request that leaves it to the broker; a token that is to expire then is removed."""

_REASONS: Final = {
    errors.DelegationTokenAuthDisabled.code: "the brokers have no delegation.token.secret.key",
    errors.DelegationTokenExpired.code: "it has expired: create another one",
    errors.DelegationTokenNotFound.code: "no token has this HMAC: it was removed, or has expired",
    errors.DelegationTokenOwnerMismatch.code: "this client is neither its owner nor one of its renewers",
    errors.DelegationTokenRequestNotAllowed.code: "this client is anonymous, or logged in by a token: log in by SASL "
    "with a password, or show a certificate",
    errors.InvalidPrincipalType.code: "renewers are principals of type User",
}


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token (KIP-48): times are in milliseconds since 1970, principals texts like `User:alice`.

    `hmac` is its password. `requester` created the token; it is empty from brokers before 3.3.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    """The time of its expiry, unless it is renewed."""
    max_timestamp_ms: int
    """The latest time of its expiry, to which it can be renewed."""

    def client_options(self, mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-256") -> dict[str, Any]:
        """Return the options with which a client logs in by the token; `security_protocol` and TLS are not in them."""
        return {
            "sasl_mechanism": mechanism,
            "sasl_username": self.token_id,
            "sasl_password": base64.b64encode(self.hmac).decode(),
            "sasl_tokenauth": True,
        }


def principals_in(name: str, values: Iterable[str]) -> list[str]:
    """Return principals like `User:alice`. Raise `ConfigError` for anything else; `name` is that of the argument."""
    found = [values] if isinstance(values, str) else list(values)
    for each in found:
        if isinstance(values, str) or not isinstance(each, str) or not all(each.partition(":")):
            raise ConfigError(f"{name}: {each!r} is no principal: give principals like User:alice")
    return found


def hmac_in(given: bytes | str) -> bytes:
    """Return the HMAC of a token, also from its base64 text. Raise `ConfigError`, without the value, for others."""
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    try:
        return base64.b64decode(given, validate=True)
    except (TypeError, ValueError):  # it is a secret: neither the text nor the cause is shown
        raise ConfigError(
            "hmac: give the HMAC of the delegation token as bytes (DelegationToken.hmac) or as base64 text"
        ) from None


class DelegationTokenCalls:
    """The admin client's calls about delegation tokens."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def create(
        self, renewers: Sequence[str], owner: str | None, max_lifetime_ms: int | None, deadline: Deadline
    ) -> DelegationToken:
        """Create a token."""
        kind, _, name = (owner or "").partition(":")
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[CreatableRenewers(**_fields(renewer)) for renewer in renewers],
            max_lifetime_ms=_DEFAULT if max_lifetime_ms is None else max_lifetime_ms,
        )
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        _raise_error(response.error_code, "creating a delegation token", request.name)
        if not response.token_id or not response.hmac:
            raise MalformedMessage("the answer to CreateDelegationToken has neither an error nor a token")
        return _token(response, renewers, "_ms")

    async def renew(self, hmac: bytes, renew_period_ms: int | None, deadline: Deadline) -> int:
        """Renew a token; return when it expires."""
        period = _DEFAULT if renew_period_ms is None else renew_period_ms
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        _raise_error(response.error_code, "renewing a delegation token", request.name)
        return response.expiry_timestamp_ms

    async def expire(self, hmac: bytes, expiry_period_ms: int | None, deadline: Deadline) -> int:
        """Let a token expire, or remove it; return when it expires."""
        period = _DEFAULT if expiry_period_ms is None else expiry_period_ms
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        _raise_error(response.error_code, "expiring a delegation token", request.name)
        return response.expiry_timestamp_ms

    async def describe(self, owners: Sequence[str] | None, deadline: Deadline) -> list[DelegationToken]:
        """Return the tokens of some owners, or all."""
        asked = None if owners is None else [DescribeDelegationTokenOwner(**_fields(owner)) for owner in owners]
        request = DescribeDelegationTokenRequest(owners=asked)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        _raise_error(response.error_code, "describing delegation tokens", request.name)
        return [_token(token, [_principal(each) for each in token.renewers]) for token in response.tokens]


def _token(answer: Any, renewers: Iterable[str], unit: str = "") -> DelegationToken:
    requester = answer.token_requester_principal_name
    return DelegationToken(
        token_id=answer.token_id,
        hmac=bytes(answer.hmac),
        owner=_principal(answer),
        requester=f"{answer.token_requester_principal_type}:{requester}" if requester else "",
        renewers=tuple(renewers),
        issue_timestamp_ms=getattr(answer, f"issue_timestamp{unit}"),
        expiry_timestamp_ms=getattr(answer, f"expiry_timestamp{unit}"),
        max_timestamp_ms=getattr(answer, f"max_timestamp{unit}"),
    )


def _principal(answer: Any) -> str:
    return f"{answer.principal_type}:{answer.principal_name}"


def _fields(principal: str) -> dict[str, str]:
    kind, _, name = principal.partition(":")
    return {"principal_type": kind, "principal_name": name}


def _raise_error(code: int, what: str, api: str) -> None:
    if code:
        raise from_code(code, f"{what}: {_REASONS.get(code, 'it was refused')}", api)
