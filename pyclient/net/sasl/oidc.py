"""Tokens from an identity server, by client credentials (KIP-768, KIP-1258) or an assertion (KIP-1139), or a file."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.config.oidc import OidcSettings
from pyclient.config.urls import is_readable_by_others
from pyclient.errors import ConfigError
from pyclient.net.http_request import HttpAnswer, Unreachable, path_of, request, shown
from pyclient.net.sasl.assertion import AssertionSource
from pyclient.net.sasl.oauth import Token, TokenFailure, end_of_jwt, read_token
from pyclient.net.tasks import in_daemon_thread

log = logging.getLogger(__name__)

_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_HIDDEN: Final = "<hidden>"
_JWT_BEARER_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_JWT_BEARER_CLIENT: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class TokenFile:
    """A file with a token, which another program replaces."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._path = path_of(settings.url)
        self._seen: tuple[int, int, int] | None = None

    async def get(self) -> Token:
        """Return the token in the file. Raise `TokenFailure`."""
        self._seen = self._state()
        try:
            answer = await in_daemon_thread("pyclient-oauth-token", lambda: request(self._settings.url, timeout=0))
            token = read_token(answer.body.decode("ascii").strip())
        except Unreachable as error:
            raise TokenFailure(f"the token cannot be read: {error}") from None
        except ValueError:
            raise TokenFailure(f"{shown(self._settings.url)}: the file has no token") from None
        return token._replace(extensions=dict(self._settings.extensions))

    def is_outdated(self) -> bool:
        """Return True if the file has changed since it was read."""
        return self._state() != self._seen

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


class _OutOfTime(TokenFailure):
    """The server did not answer in time."""


class TokenEndpoint:
    """An identity server that this client asks with its id and secret, or with an assertion."""

    def __init__(self, settings: OidcSettings, clock: Clock, rng: Rng, timeout: float) -> None:
        """`timeout` is the number of seconds for one token, with retries.

        Raise `ConfigError` for bad authorities, or if assertions cannot be signed.
        """
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._timeout = timeout
        self._backoff = Backoff(settings.backoff, settings.longest_backoff)
        self._context = _context(settings)
        self._assertions = None if settings.assertion is None else AssertionSource(settings.assertion)
        if is_readable_by_others(settings.url):
            text = "%s is not https: the client's secret or assertion, and tokens, can be read on their way"
            log.warning(text, shown(settings.url))

    async def get(self) -> Token:
        """Return a new token. Raise `TokenFailure`, a `lasting` one if another attempt would end the same way.

        A server that cannot be reached or is overloaded is asked again until the time is over.
        """
        until = self._clock.monotonic() + self._timeout
        failures, last = 0, None
        while True:
            try:
                return await self._ask(max(0.001, until - self._clock.monotonic()))
            except _OutOfTime as failure:  # raise the failure before it: the last attempt may have had no time
                raise (last or failure) from None
            except TokenFailure as failure:
                last = failure
                delay = self._backoff.delay(failures, self._rng)
                if failure.lasting or self._clock.monotonic() + delay >= until:
                    raise
                log.info("%s; asking again in %.1f s", failure, delay)
            failures += 1
            await asyncio.sleep(delay)

    async def _ask(self, seconds: float) -> Token:
        url = self._settings.url
        try:
            async with asyncio.timeout(seconds):
                assertion = await self._assertion()
                body, headers = self._body(assertion), self._headers()
                answer = await in_daemon_thread(
                    "pyclient-oauth-token",
                    lambda: request(
                        url,
                        timeout=seconds,
                        body=body,
                        headers=headers,
                        context=self._context,
                        connect_timeout=self._settings.connect_timeout,
                        read_timeout=self._settings.read_timeout,
                    ),
                )
        except TimeoutError:
            raise _OutOfTime(f"{shown(url)} gave no token within {seconds:.3g} s") from None
        except Unreachable as error:
            raise TokenFailure(f"the identity server cannot be reached: {error}") from None
        if answer.status != 200:
            raise self._refused(answer, assertion)
        return self._token(answer.body)

    async def _assertion(self) -> str:
        """Return an assertion for one request; "" if the client has a secret."""
        source = self._assertions
        if source is None:
            return ""
        now = self._clock.time_ms() / 1000
        return await in_daemon_thread("pyclient-oauth-token", lambda: source.get(now))

    def _body(self, assertion: str) -> bytes:
        settings = self._settings
        form = {"grant_type": "client_credentials"}
        if settings.by_jwt_bearer:
            form = {"grant_type": _JWT_BEARER_GRANT, "assertion": assertion}
        elif assertion:
            form |= {"client_assertion_type": _JWT_BEARER_CLIENT, "client_assertion": assertion}
            form |= {"client_id": settings.client_id} if settings.client_id else {}
        if settings.scope is not None:
            form["scope"] = settings.scope
        return urlencode(form).encode()

    def _headers(self) -> Mapping[str, str]:
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        if self._assertions is not None:
            return headers
        names = self._settings.client_id, self._settings.client_secret
        if self._settings.encodes_header:
            names = quote_plus(names[0]), quote_plus(names[1])
        return {**headers, "Authorization": "Basic " + base64.b64encode(":".join(names).encode()).decode()}

    def _token(self, body: bytes) -> Token:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            raise self._failure("the answer is no JSON: is this the URL of its token endpoint?", lasting=True) from None
        value = found.get("access_token") if isinstance(found, dict) else None
        if not isinstance(value, str) or not value:
            raise self._failure("the answer has no access_token", lasting=True)
        until, seconds = end_of_jwt(value), found.get("expires_in")
        if until is None and isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
            until = self._clock.time_ms() / 1000 + seconds
        try:
            return read_token((value, until, dict(self._settings.extensions)))
        except ValueError as error:
            raise self._failure(str(error), lasting=True) from None

    def _refused(self, answer: HttpAnswer, assertion: str) -> TokenFailure:
        """Return the error of a status, with what the server says about it (RFC 6749, 5.2)."""
        text = f"HTTP status {answer.status}"
        if 300 <= answer.status < 400:
            text += ", a redirect, which is not followed: give the URL to which it leads"
        said = [each for name in ("error", "error_description") if (each := _field(answer.body, name))]
        if said:
            text += f": {self._without_secrets(', '.join(said), assertion)}"
        return self._failure(text, lasting=answer.status not in _TRANSIENT)

    def _without_secrets(self, text: str, assertion: str) -> str:
        """Return what a server says without the secret or the assertion, if it quotes them."""
        secret = self._settings.client_secret
        for form in (secret, quote_plus(secret), assertion, assertion.rpartition(".")[2]):
            if form:
                text = text.replace(form, _HIDDEN)
        return "".join(letter if letter.isprintable() else "?" for letter in text[:500])

    def _failure(self, reason: str, *, lasting: bool = False) -> TokenFailure:
        client = f" to client {self._settings.client_id!r}" if self._settings.client_id else ""
        return TokenFailure(f"{shown(self._settings.url)} gave no token{client}: {reason}", lasting=lasting)


def _field(body: bytes, name: str) -> str:
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) else ""


def _context(settings: OidcSettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.ca_file, cadata=settings.ca_pem)
    except (OSError, ValueError) as error:
        name = "https_ca_location" if settings.ca_file is not None else "https_ca_pem"
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"{name} cannot be used: {reason}") from None
