"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768) on the broker: read a client's message and have its token validated."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.network.jwks import JwksKeys, KeySetSource, NoKeys
from pyclient.broker_embedded.network.jwt_validation import Accepted, InvalidToken, TokenRules, UnknownKey, accept

if TYPE_CHECKING:
    from pyclient.broker_embedded.config.listeners import ListenerConfig
    from pyclient.clock import Clock

log = logging.getLogger("pyclient.broker_embedded")

_REFUSED: Final = '{"status":"invalid_token"}'
_HEADER: Final = re.compile(r"n,(?:a=((?:[^=,\0]|=2C|=3D)+))?,")
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_BEARER: Final = re.compile(r"bearer +([-_~+/.A-Za-z0-9]+=*)", re.IGNORECASE)


class Authenticated(NamedTuple):
    """The user that a message has authenticated, the seconds until its token expires, and the answer (`data`)."""

    data: bytes
    user: str | None = None
    seconds: float | None = None


class TokenValidator:
    """Validates the tokens that clients of one listener send."""

    def __init__(self, listener: ListenerConfig, clock: Clock) -> None:
        """`clock` is compared with the times in tokens."""
        self._rules = TokenRules.of(listener)
        self._keys = JwksKeys(KeySetSource.of(listener), clock)
        self._clock = clock

    def __repr__(self) -> str:
        return f"<TokenValidator {self._keys!r}>"

    async def validate(self, token: str) -> Accepted:
        """Return the user of a token. Raise `InvalidToken`, also if there are no keys to verify it with."""
        try:
            try:
                return accept(token, await self._keys.get(), self._rules, self.now())
            except UnknownKey as unknown:
                try:
                    return accept(token, await self._keys.renewed(), self._rules, self.now())
                except NoKeys:
                    raise unknown from None
        except NoKeys as error:
            raise InvalidToken(str(error)) from None

    def now(self) -> float:
        """Return the seconds since 1970."""
        return self._clock.time_ms() / 1000


class OAuthServer:
    """OAUTHBEARER: one message with the token; a refused one is answered, and the client's next message ends it."""

    def __init__(self, tokens: TokenValidator, peer: str) -> None:
        """`peer` is the client's address, for the log."""
        self._tokens = tokens
        self._peer = peer
        self._was_refused = False

    async def next(self, message: bytes) -> Authenticated:
        """Return the user, or the answer that refuses the token; raise `SaslAuthenticationFailed` in Kafka's words."""
        if self._was_refused:
            raise errors.SaslAuthenticationFailed(_REFUSED)
        token, identity = _read(message)
        try:
            accepted = await self._tokens.validate(token)
        except InvalidToken as error:
            log.info("%s: SASL OAUTHBEARER: the token is refused: %s", self._peer, error)
            self._was_refused = True
            return Authenticated(_REFUSED.encode())
        if identity not in ("", accepted.user):
            raise errors.SaslAuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({identity}) that is different from the "
                f"token's principal name ({accepted.user})"
            )
        return Authenticated(b"", accepted.user, accepted.until - self._tokens.now())


def _read(message: bytes) -> tuple[str, str]:
    """Return the token and the authorization id of a client's first message. Raise `SaslAuthenticationFailed`."""
    try:
        head, *pairs = message.decode().split("\x01")
    except UnicodeDecodeError:
        raise _malformed() from None
    header = _HEADER.fullmatch(head)
    if header is None or pairs[-2:] != ["", ""]:
        raise _malformed()
    found = [_PAIR.fullmatch(pair) for pair in pairs[:-2]]
    values = {pair[1]: pair[2] for pair in found if pair is not None}
    bearer = _BEARER.fullmatch(values.get("auth", ""))
    if len(values) < len(found) or bearer is None:
        raise _malformed()
    return bearer[1], (header[1] or "").replace("=2C", ",").replace("=3D", "=")


def _malformed() -> errors.SaslAuthenticationFailed:
    return errors.SaslAuthenticationFailed(
        "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
    )
