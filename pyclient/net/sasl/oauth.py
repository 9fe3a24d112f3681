"""A client's OAuth token: requested on demand, kept, and replaced before it expires."""

from __future__ import annotations

import asyncio
import base64
import binascii
import inspect
import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pyclient.clock import Clock, Rng
from pyclient.config.oidc import RefreshRules
from pyclient.errors import ConnectionFailed
from pyclient.net.tasks import in_daemon_thread, shared

log = logging.getLogger(__name__)

_AGAIN: Final = 10.0
"""Seconds for which a valid token is used without another attempt to replace it, after one failed."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750
_NAME: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]*")


class Token(NamedTuple):
    """A token; `until` is when it ends (seconds since 1970), None if that is not known."""

    value: str
    until: float | None
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Token(<hidden>, until={self.until})"


class TokenFailure(ConnectionFailed):
    """No token is available. The text contains no secret."""


class TokenSource:
    """Calls a function for tokens, which may be synchronous (then it runs in a thread) or asynchronous."""

    def __init__(
        self,
        provider: Callable[[], Any],
        clock: Clock,
        timeout: float,
        rules: RefreshRules,
        rng: Rng,
        is_outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        """`timeout` is the number of seconds that the provider may take; `rules` say when a token is replaced.

        `is_outdated` returns True if a newer token is available before the kept one expires.
        """
        self._provider = provider
        self._clock = clock
        self._timeout = timeout
        self._rules = rules
        self._rng = rng
        self._is_outdated = is_outdated
        self._token: Token | None = None
        self._refresh_at = 0.0
        self._asking: asyncio.Task[Token] | None = None

    async def get(self) -> Token:
        """Return a token that is valid for some time; connections that need one at the same time share one call.

        Raise `ConnectionFailed` if the provider fails and the last token has ended.
        """
        now = self._clock.time_ms() / 1000
        last = self._token
        is_valid = last is not None and (last.until is None or now < last.until)
        if last is not None and is_valid and now < self._refresh_at and not self._is_outdated():
            return last
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        try:
            token = await shared(self._asking)
        except ConnectionFailed as error:
            last = self._token
            if last is None or last.until is None or last.until <= now:
                raise
            log.warning("%s; using the last token, which expires in %.0f s", error, last.until - now)
            self._refresh_at = max(self._refresh_at, self._clock.time_ms() / 1000 + _AGAIN)
            return last
        return token

    async def _ask(self) -> Token:
        try:
            async with asyncio.timeout(self._timeout):
                given = await self._call()
        except TimeoutError:
            text = f"sasl_oauth_token_provider returned no token within {self._timeout:g} s"
            raise ConnectionFailed(text) from None
        except TokenFailure:
            raise
        except Exception as error:  # the user's own, whose text may quote a secret: it is the cause, and not shown
            text = f"sasl_oauth_token_provider failed with {type(error).__name__}, the cause of this error"
            raise ConnectionFailed(text) from error
        try:
            token = given if isinstance(given, Token) else read_token(given)
        except ValueError as error:
            raise ConnectionFailed(f"sasl_oauth_token_provider: {error}") from None
        now = self._clock.time_ms() / 1000
        if token.until is not None and token.until <= now:
            raise ConnectionFailed(f"the token expired {now - token.until:.0f} s ago")
        self._token = token
        self._refresh_at = (
            now if token.until is None else now + refresh_after(token.until - now, self._rules, self._rng.random())
        )
        return token

    async def _call(self) -> Any:
        if inspect.iscoroutinefunction(self._provider):
            return await self._provider()
        found = await in_daemon_thread("pyclient-oauth-token", self._provider)
        return await found if inspect.isawaitable(found) else found


def refresh_after(lifetime: float, rules: RefreshRules, chance: float) -> float:
    """Return the seconds after which a token that is valid for `lifetime` seconds is replaced, as Java's client does.

    `chance` is from 0 to 1. The minimum period and the buffer apply to tokens that have time for both (KIP-255).
    """
    after = lifetime * (rules.factor + rules.jitter * chance)
    if rules.min_period + rules.buffer <= lifetime:
        after = min(max(after, rules.min_period), lifetime - rules.buffer)
    return min(after, lifetime)


def read_token(given: Any) -> Token:
    """Return the token that a provider gave: a string, or a tuple of it, its end and the extensions.

    The end is in seconds since 1970; without it, that in the token is taken if it is a JWT. What confluent-kafka's
    callbacks return, (token, end, principal, extensions), is understood. Raise `ValueError` for anything else.
    """
    parts = (given,) if isinstance(given, str) else given
    if not isinstance(parts, tuple) or not 1 <= len(parts) <= 4:
        raise ValueError("a token provider returns a string, or (token, seconds since 1970 at which it ends)")
    value, until, extensions = parts[0], None if len(parts) < 2 else parts[1], parts[-1] if len(parts) > 2 else None
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise ValueError("the token is not of the characters that RFC 6750 allows")
    if until is None:
        until = end_of_jwt(value)
    elif isinstance(until, bool) or not isinstance(until, (int, float)):
        raise ValueError("the end of a token is a number of seconds since 1970")
    if len(parts) == 3 and not isinstance(extensions, Mapping):
        extensions = None  # the principal
    return Token(value, None if until is None else float(until), _extensions(extensions or {}))


def _extensions(given: Any) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError("the extensions of a token are a dictionary")
    for name, value in given.items():
        if not (isinstance(name, str) and isinstance(value, str) and _NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise ValueError(f"extension {name!r:.100} of a token: names are letters, values printable ASCII")
        if name == "auth":
            raise ValueError("an extension of a token may not be called auth")
    return dict(given)


def end_of_jwt(token: str) -> float | None:
    """Return when a JWT ends; None if it does not say so, or is none. The broker checks its signature."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, binascii.Error, KeyError, TypeError, RecursionError, OverflowError):
        return None
