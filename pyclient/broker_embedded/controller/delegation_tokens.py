"""Delegation tokens in the metadata log (KIP-48, KIP-373): the rights to create, renew, expire and see them. Pure.

A principal is a text like `User:alice`, a time is in milliseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient import errors
from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.controller.features import METADATA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask

SECRET_KEY: Final = "delegation.token.secret.key"
USER: Final = "User"
"""The only type of principal that may renew tokens."""
_MOST_RENEWERS: Final = 1000
"""Renewers of a token. Kafka has no such limit; without one, a client could fill the memory of every node."""
_MOST_NAME_BYTES: Final = 32_767
"""Bytes of a principal's name: version 1 of DescribeDelegationToken cannot encode more."""
_MOST_REMOVED: Final = 1000
"""Expired tokens that are removed at once; the others are removed the next time."""
_SUPPORTED_SINCE: Final = 14
"""metadata.version 3.6-IV2."""


class Token(NamedTuple):
    """A token as the metadata have it: without its HMAC, which follows from the secret key."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int

    def belongs_to_any(self, principals: Set[str]) -> bool:
        """Return True if its owner, its requester or a renewer is among them."""
        return not principals.isdisjoint((self.owner, self.requester, *self.renewers))

    def is_over(self, now: int) -> bool:
        """Return True if it has expired."""
        return now > min(self.max_timestamp, self.expiry_timestamp)


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The options of delegation tokens; `secret` is the same on all nodes."""

    secret: bytes = field(repr=False)
    max_lifetime_ms: int
    expiry_time_ms: int

    @staticmethod
    def of(config: BrokerConfig) -> TokenSettings:
        """Return the settings. Raise `DelegationTokenAuthDisabled` without a secret key."""
        secret = config.text(SECRET_KEY)
        if not secret:
            raise errors.DelegationTokenAuthDisabled(f"there are no delegation tokens without {SECRET_KEY}")
        return TokenSettings(
            secret.encode(),
            config.integer("delegation.token.max.lifetime.ms"),
            config.integer("delegation.token.expiry.time.ms"),
        )

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token, which is its password."""
        import hmac  # imported on first use to keep the broker's start fast

        return hmac.digest(self.secret, token_id.encode(), "sha512")


def check_supported(features: Mapping[str, int]) -> None:
    """Raise `UnsupportedVersion` if the metadata.version has no tokens."""
    level = features.get(METADATA_VERSION, 0)
    if level < _SUPPORTED_SINCE:
        raise errors.UnsupportedVersion(f"metadata.version {level} has no delegation tokens, {_SUPPORTED_SINCE} has")


def renewer_of(kind: str, name: str) -> str:
    """Return the principal of a renewer. Raise `InvalidPrincipalType` for one that is no user."""
    if kind != USER:
        raise errors.InvalidPrincipalType(f"a renewer is of type {kind!r}: it must be {USER}")
    return f"{kind}:{name}"


def check_size(owner: str, renewers: Sequence[str]) -> None:
    """Raise `InvalidRequest` for more renewers, or a longer name, than a token may have."""
    if len(renewers) > _MOST_RENEWERS:
        raise errors.InvalidRequest(f"the token has {len(renewers)} renewers: {_MOST_RENEWERS} are the most")
    longest = max(len(name.encode()) for name in (owner, *renewers))
    if longest > _MOST_NAME_BYTES:
        raise errors.InvalidRequest(f"a principal has {longest} bytes: {_MOST_NAME_BYTES} are the most")


def create(
    settings: TokenSettings,
    token_id: str,
    *,
    owner: str,
    requester: str,
    renewers: Iterable[str],
    max_lifetime_ms: int,
    now: int,
) -> Token:
    """Return a new token."""
    lifetime = min(settings.max_lifetime_ms, max_lifetime_ms) if max_lifetime_ms > 0 else settings.max_lifetime_ms
    last = _sum(now, lifetime)
    expiry = min(last, _sum(now, settings.expiry_time_ms))
    return Token(token_id, owner, requester, tuple(renewers), now, last, expiry)


def find(settings: TokenSettings, tokens: Mapping[str, Token], hmac: bytes) -> IncrementalTask[Token]:
    """Return the token with an HMAC. Raise `DelegationTokenNotFound`. `tokens` may change between two steps."""
    from hmac import compare_digest

    for token_id in list(tokens):
        if compare_digest(settings.hmac(token_id), hmac):
            if token_id in tokens:
                return tokens[token_id]
            break
        yield None
    raise errors.DelegationTokenNotFound("no delegation token has this HMAC")


def renew(settings: TokenSettings, token: Token, principal: str, period_ms: int, now: int) -> Token:
    """Return the token with a later end: after `period_ms`, if that is positive.

    Raise `DelegationTokenExpired` or, for a token that is still valid, `DelegationTokenOwnerMismatch`.
    """
    _check_valid(token, now)
    _check_may_change(token, principal)
    period = min(settings.expiry_time_ms, period_ms) if period_ms > 0 else settings.expiry_time_ms
    return token._replace(expiry_timestamp=min(token.max_timestamp, _sum(now, period)))


def expire(token: Token, principal: str, period_ms: int, now: int) -> Token | None:
    """Return the token that ends after `period_ms`; None, to remove it, if that is negative.

    Raise `DelegationTokenOwnerMismatch` or, for a period that is not negative, `DelegationTokenExpired`. The order of
    the checks is Kafka's: the principal first, and a token that has expired can still be removed.
    """
    _check_may_change(token, principal)
    if period_ms < 0:
        return None
    _check_valid(token, now)
    return token._replace(expiry_timestamp=min(token.max_timestamp, _sum(now, period_ms)))


def _check_valid(token: Token, now: int) -> None:
    if token.is_over(now):
        raise errors.DelegationTokenExpired(f"delegation token {token.token_id} has expired")


def _check_may_change(token: Token, principal: str) -> None:
    if principal not in (token.owner, *token.renewers):
        raise errors.DelegationTokenOwnerMismatch(
            f"{principal} is neither owner nor renewer of delegation token {token.token_id}"
        )


def _sum(time: int, period: int) -> int:
    """Return the time after a period, at most the largest that a record can hold."""
    return min(time + period, 2**63 - 1)


def is_visible(
    token: Token,
    owners: Set[str] | None,
    principal: str,
    may: Callable[[AclOperation, ResourceType, str], bool],
) -> bool:
    """Return True if a client sees a token. `owners` are those that it asked for, None: all; `may` are its rights."""
    if owners is not None and not token.belongs_to_any(owners):
        return False
    return (
        token.belongs_to_any({principal})
        or may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def removals(tokens: Iterable[Token], now: int) -> list[Any]:
    """Return the records that remove expired tokens: at most so many as are appended at once."""
    return [removal_of(token) for token in islice((each for each in tokens if each.is_over(now)), _MOST_REMOVED)]


def record_of(token: Token) -> Any:
    """Return the record of a new or changed token."""
    from pyclient.protocol.messages.metadata_log import DelegationTokenRecord  # imported where tokens are used

    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=token.expiry_timestamp,
        token_id=token.token_id,
    )


def removal_of(token: Token) -> Any:
    """Return the record that removes a token."""
    from pyclient.protocol.messages.metadata_log import RemoveDelegationTokenRecord

    return RemoveDelegationTokenRecord(token_id=token.token_id)


def token_in(record: Any) -> Token:
    """Return the token of a record."""
    return Token(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


class TokenLogins:
    """The logins of tokens: `tokens` are those of the metadata, which change; `now` returns the time."""

    def __init__(self, config: BrokerConfig, tokens: Mapping[str, Token], now: Callable[[], int]) -> None:
        self._settings = TokenSettings.of(config) if config.text(SECRET_KEY) else None
        self._tokens = tokens
        self._now = now

    def find(self, token_id: str) -> tuple[Token, bytes] | None:
        """Return a token and its HMAC; None for one that does not exist or has expired."""
        token = self._tokens.get(token_id)
        if self._settings is None or token is None or token.is_over(self._now()):
            return None
        return token, self._settings.hmac(token_id)

    def seconds_left(self, token: Token) -> float:
        """Return how long a token is still valid."""
        known = self._tokens.get(token.token_id, token)  # it may have been renewed meanwhile
        return (min(known.max_timestamp, known.expiry_timestamp) - self._now()) / 1000
