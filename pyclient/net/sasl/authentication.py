"""Authenticate a connection by SASL (SaslHandshake and SaslAuthenticate), with an error for each cause."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from pyclient.clock import Clock
from pyclient.config import ClientConfig
from pyclient.errors import (
    ConnectionFailed,
    IllegalSaslState,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
    from_code,
)
from pyclient.net.sasl.exchanges import Exchange, GssapiExchange, OAuthExchange, PlainExchange, ScramExchange
from pyclient.net.sasl.oauth import TokenSource
from pyclient.net.sasl.scram import salted_password
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.net.tasks import in_daemon_thread
from pyclient.protocol.fields import Request, Response
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from pyclient.net.sasl.kerberos import KerberosLogin

R = TypeVar("R", bound=Response)

log = logging.getLogger(__name__)

_NONCE_BYTES: Final = 24


class _Refused(Exception):
    """The broker refused what this client sent; its cause is the broker's error."""


class AuthenticatedConnection(Protocol):
    """A `Connection`, as far as logins need it."""

    address: str
    host: str

    @property
    def closed(self) -> bool:
        """True once the connection has ended; it is never reopened."""

    async def request_before_others(self, message: Request[R], *, timeout: float) -> R:
        """Send a request before those that are held back, and wait for its response."""

    def hold(self) -> None:
        """Hold requests back until `release`; only `request_before_others` sends."""

    def release(self) -> None:
        """Send the requests since `hold`, and later ones at once."""

    def end(self, reason: str) -> None:
        """End the connection at once; in-flight requests fail with `ConnectionFailed` and the reason."""


class Authenticator:
    """Authenticates all connections of one client; it remembers what several of them need.

    That is the OAuth token, and SCRAM's salted password: hundreds of connections cost the work of one.
    """

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        assert config.sasl_mechanism is not None
        self._mechanism: str = config.sasl_mechanism
        self._user, self._password = config.login or ("", "")
        self._by_token = config.logs_in_by_token
        self._plain_protocol = "SSL" if config.uses_tls else "PLAINTEXT"
        self.timeout = config.socket_connection_setup_timeout_ms / 1000
        """Seconds that each request of an authentication may take, and a second authentication as a whole."""
        self._salted: tuple[tuple[bytes, int], bytes] | None = None
        self._tokens = _token_source(config, clock, self.timeout)
        self._kerberos = _kerberos_login(config, self.timeout)

    async def authenticate(self, connection: AuthenticatedConnection) -> float:
        """Authenticate a connection, or do so again.

        Return the seconds after which the broker wants it again (KIP-368), 0 if never. Raise `ConnectionFailed`, a
        `lasting` one if another attempt would end the same way.
        """
        address = connection.address
        try:
            return await self._authenticate(connection)
        except _Refused as refusal:
            raise ConnectionFailed(f"{address}: {refusal}", lasting=True) from refusal.__cause__
        except ConnectionFailed as error:
            text = str(error)
            reason = text.partition(": ")[2] if text.startswith(address) else text
            raise ConnectionFailed(f"{address}: {self._login_text}: {reason}", lasting=error.lasting) from error
        except UnsupportedVersion as error:
            raise ConnectionFailed(f"{address}: the broker serves no SASL", lasting=True) from error
        except ProtocolError as error:
            raise ConnectionFailed(f"{address}: {self._login_text}: {error}", lasting=True) from error
        except KafkaTimeout as error:
            raise ConnectionFailed(f"{address}: {self._login_text}: no answer within {self.timeout:g} s") from error

    async def prepare(self) -> None:
        """Get a token or a ticket if one is needed, while requests are still sent. Raise `ConnectionFailed`."""
        if self._tokens is not None:
            await self._tokens.get()
        if self._kerberos is not None:
            await self._kerberos.prepare()

    @property
    def _login_text(self) -> str:
        if self._kerberos is not None:
            return f"SASL {self._mechanism}{self._kerberos.principal}"
        kind = "delegation token" if self._by_token else "user"
        return f"SASL {self._mechanism}" + (f" as {kind} {self._user!r}" if self._user else "")

    async def _authenticate(self, connection: AuthenticatedConnection) -> float:
        # before the handshake: it may take long, and brokers wait only so long
        exchange = await self._begin(connection.host)
        await self._handshake(connection)
        message: bytes | None = exchange.first()
        while message is not None:
            response = await self._ask(connection, SaslAuthenticateRequest(auth_bytes=message))
            if response.error_code:
                self._refused(exchange, response.error_code, response.error_message)
            answer = bytes(response.auth_bytes)
            message = await self._next(exchange, answer)
        return max(0.0, float(response.session_lifetime_ms) / 1000)

    async def _begin(self, host: str) -> Exchange:
        if self._kerberos is not None:
            return await self._kerberos.begin(host)
        if self._tokens is not None:
            token = await self._tokens.get()
            return OAuthExchange(token.value, token.extensions)
        if self._mechanism == "PLAIN":
            return PlainExchange(self._user, self._password)
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return ScramExchange(self._mechanism, self._user, self._password, nonce, self._salt, by_token=self._by_token)

    async def _handshake(self, connection: AuthenticatedConnection) -> None:
        answer = await self._ask(connection, SaslHandshakeRequest(mechanism=self._mechanism))
        code = answer.error_code
        if not code:
            return
        if code == UnsupportedSaslMechanism.code:
            offered = ", ".join(sorted(answer.mechanisms)) or "none"
            text = (
                f"the broker does not offer SASL {self._mechanism}: set sasl_mechanism to one that it offers: {offered}"
            )
        elif code == IllegalSaslState.code:
            text = f"its listener is without SASL: set security_protocol={self._plain_protocol!r}, or use another port"
        else:
            text = f"SaslHandshake was refused: {from_code(code, '')!r}"
        raise _Refused(text) from from_code(code, text)

    async def _ask(self, connection: AuthenticatedConnection, request: Request[Any]) -> Any:
        return await connection.request_before_others(request, timeout=self.timeout)

    async def _next(self, exchange: Exchange, answer: bytes) -> bytes | None:
        """Return the exchange's next message. SCRAM's key derivation and Kerberos' library run in a thread."""
        if self._kerberos is not None:
            return await self._kerberos.in_thread(lambda: exchange.next(answer))
        if isinstance(exchange, ScramExchange):
            return await in_daemon_thread("pyclient-scram", lambda: exchange.next(answer))
        return exchange.next(answer)

    def _salt(self, mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        known = self._salted
        if known is not None and known[0] == (salt, iterations):
            return known[1]
        salted = salted_password(mechanism, password, salt, iterations)
        self._salted = (salt, iterations), salted
        return salted

    def _refused(self, exchange: Exchange, code: int, message: str | None) -> None:
        """Raise the broker's error."""
        error = from_code(code, message or "no reason given")
        text = f"{self._login_text} was refused by the broker: {_printable(message or repr(error))}"
        if isinstance(exchange, OAuthExchange):
            text += f" ({exchange.refusal})" if exchange.refusal else ""
        elif isinstance(exchange, GssapiExchange) and code == SaslAuthenticationFailed.code:
            text += ": check that the broker's keytab has the current key of its principal, and that the clocks agree"
        elif code == SaslAuthenticationFailed.code:
            text += ": check sasl_username and sasl_password"
            text += ", and that the delegation token has not expired" if self._by_token else ""
        raise _Refused(text) from error


def _token_source(config: ClientConfig, clock: Clock, timeout: float) -> TokenSource | None:
    """Return where the tokens of OAUTHBEARER come from; None for another mechanism. Raise `ConfigError`."""
    settings, provider = config.oidc, config.sasl_oauth_token_provider
    if settings is None and provider is None:
        return None
    rules, rng = config.refresh_rules, SURROUNDINGS.get().new_rng()
    if provider is not None:
        return TokenSource(provider, clock, timeout, rules, rng)
    assert settings is not None  # the config has one of them only
    from pyclient.net.sasl.oidc import TokenEndpoint, TokenFile  # few clients need its modules

    if settings.is_file:
        file = TokenFile(settings)
        return TokenSource(file.get, clock, timeout, rules, rng, file.is_outdated)
    endpoint = TokenEndpoint(settings, clock, rng, timeout)
    return TokenSource(endpoint.get, clock, timeout + 1, rules, rng)  # its own error, within `timeout`, says more


def _kerberos_login(config: ClientConfig, timeout: float) -> KerberosLogin | None:
    """Return what gets tickets for GSSAPI; None for another mechanism. Raise `ConfigError` without its library."""
    settings = config.kerberos
    if settings is None:
        return None
    from pyclient.net.sasl.kerberos import KerberosLogin  # few clients need its library

    return KerberosLogin(settings, timeout)


def _printable(text: str) -> str:
    """Return what a broker said, on one line and not too long."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:500])


class Session:
    """An authenticated session. Before it expires the connection authenticates again, while other requests wait."""

    SHARE: Final = 0.85
    """Of the session's time; Java's client takes 85 to 95 %."""
    LEAST: ClassVar[float] = 1.0
    """Seconds between two authentications: sessions of milliseconds must not keep client and broker busy."""

    def __init__(self, connection: AuthenticatedConnection, authenticator: Authenticator, lifetime: float) -> None:
        """`lifetime` is that of the session, in seconds."""
        self._connection = connection
        self._authenticator = authenticator
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._schedule(lifetime)

    def _schedule(self, lifetime: float) -> None:
        if lifetime > 0 and not self._connection.closed:
            self._timer = asyncio.get_running_loop().call_later(self.pause(lifetime), self._begin)

    @classmethod
    def pause(cls, lifetime: float) -> float:
        """Return the seconds until the next authentication in a session of `lifetime` seconds."""
        return max(cls.LEAST, lifetime * cls.SHARE)

    def _begin(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        connection, seconds = self._connection, self._authenticator.timeout
        try:
            await self._authenticator.prepare()  # has its own timeout; if it fails, the last token may still be valid
            async with asyncio.timeout(seconds):
                connection.hold()
                lifetime = await self._authenticator.authenticate(connection)
        except TimeoutError:
            connection.end(f"it could not authenticate again within {seconds:g} s")
            return
        except Exception as error:  # also for a bug: held requests must not wait for ever
            if not isinstance(error, KafkaError):
                log.exception("%r: authenticating again failed unexpectedly", connection)
            connection.end(f"it could not authenticate again: {error}")
            return
        connection.release()
        self._schedule(lifetime)

    def end(self) -> None:
        """Authenticate no more: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
