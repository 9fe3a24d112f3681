"""The broker's side of SASL on one connection: which requests it may send, the exchange, and its session (KIP-368)."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import math
import secrets
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyclient import errors
from pyclient.net.sasl import scram
from pyclient.net.tasks import in_daemon_thread
from pyclient.protocol import framing
from pyclient.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from pyclient.broker_embedded.config.listeners import ListenerConfig
    from pyclient.broker_embedded.controller.delegation_tokens import Token, TokenLogins
    from pyclient.broker_embedded.controller.scram import Credential
    from pyclient.broker_embedded.network.oauth import OAuthServer, TokenValidator
    from pyclient.broker_embedded.scheduling.timers import Timer, Timers
    from pyclient.clock import Clock
    from pyclient.net.stream import FrameStream

log = logging.getLogger("pyclient.broker_embedded")

_SCRAM_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanism -> its number in the metadata log."""

HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
_API_VERSIONS: Final = 18
_NEWEST_VERSIONS: Final = ApiVersionsRequest.versions[1]
_LARGEST_FRAME: Final = 64 * 1024
"""Bytes of a request before the client is known."""
_SECONDS: Final = 30.0
"""Seconds within which a new connection must be authenticated."""
_BETWEEN: Final = 1.0
"""Seconds between the beginnings of two authentications of a client that has logged in (KIP-368)."""
_MOST_KEPT: Final = 1000
"""Delegation tokens whose keys are remembered: to derive them takes milliseconds."""

_OTHER_IDENTITY: Final = "Authentication failed: Client requested an authorization id that is different from username"


class Step(NamedTuple):
    """The outcome of one message of a client: `data` to send, and `user` once it is authenticated.

    `seconds` is the time until the token expires; None for credentials that do not expire. `by_token` is True for a
    delegation token.
    """

    data: bytes = b""
    user: str | None = None
    seconds: float | None = None
    by_token: bool = False


class Users:
    """The credentials of users: passwords for PLAIN, those in the metadata log for SCRAM, the keys for tokens."""

    def __init__(
        self,
        passwords: Mapping[str, str],
        credentials: Mapping[tuple[str, int], Credential],
        tokens: TokenValidator | None = None,
        delegation_tokens: TokenLogins | None = None,
        iterations: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        """`tokens` is needed by OAUTHBEARER only. `iterations` counts the credentials by mechanism and iterations."""
        self.tokens = tokens
        self.delegation_tokens = delegation_tokens
        self._keys_of_tokens: dict[tuple[str, str], scram.Keys] = {}
        self._passwords = passwords
        self._credentials = credentials
        self._iterations = {} if iterations is None else iterations  # a live mapping
        self._secret = secrets.token_bytes(32)

    def has_password(self, user: str, password: str) -> bool:
        """Return True if it is the user's; it takes as long for an unknown user."""
        known = self._passwords.get(user)
        right = hmac.compare_digest((known or self._secret.hex()).encode(), password.encode())
        return right and known is not None

    def credential(self, user: str, mechanism: str) -> tuple[bytes, int, scram.Keys | None]:
        """Return salt, iterations and keys. An unknown user has the same salt and iterations each time, and no keys."""
        number = _SCRAM_NUMBERS[mechanism]
        found = self._credentials.get((user, number))
        salt, iterations = self.salt_of(user), self._iterations_of(user, number)  # the same work for a known user
        if found is not None:
            return found.salt, found.iterations, scram.Keys(found.stored_key, found.server_key)
        return salt, iterations, None

    def salt_of(self, user: str) -> bytes:
        """Return the salt of a delegation token, or of an unknown user: the same each time."""
        return hmac.digest(self._secret, user.encode(), "sha256")[:16]

    def _iterations_of(self, user: str, mechanism: int) -> int:
        """Return the iterations of an unknown user: as frequent among unknown users as among those with credentials.

        By weighted rendezvous hashing, so that an added or removed user changes those of few unknown users.
        """
        best, chosen = -math.inf, scram.LEAST_ITERATIONS
        for (number, iterations), count in self._iterations.items():
            if number == mechanism:
                digest = hmac.digest(self._secret, f"{iterations} {user}".encode(), "sha256")
                score = math.log((int.from_bytes(digest[:6], "big") + 1) / 2**48) / count
                if score > best:
                    best, chosen = score, iterations
        return chosen

    def delegation_token(self, token_id: str) -> tuple[Token, bytes] | None:
        """Return a token and its HMAC; None for an unknown or expired one."""
        return None if self.delegation_tokens is None else self.delegation_tokens.find(token_id)

    def known_keys(self, token_id: str, mechanism: str) -> scram.Keys | None:
        """Return the keys of a delegation token, if they were derived before."""
        return self._keys_of_tokens.get((token_id, mechanism))

    def keep_keys(self, token_id: str, mechanism: str, keys: scram.Keys) -> None:
        """Remember the keys of a delegation token that exists."""
        while len(self._keys_of_tokens) >= _MOST_KEPT:
            self._keys_of_tokens.pop(next(iter(self._keys_of_tokens)))
        self._keys_of_tokens[token_id, mechanism] = keys


class PlainServer:
    """PLAIN: one message with user and password."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def next(self, message: bytes) -> Step:
        """Return the user, or raise `SaslAuthenticationFailed` with Kafka's words."""
        parts = message.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise errors.SaslAuthenticationFailed(text)
        identity, user, password = parts
        if not user or not password:
            what = "username" if not user else "password"
            raise errors.SaslAuthenticationFailed(f"Authentication failed: {what} not specified")
        if not self._users.has_password(user, password):
            raise errors.SaslAuthenticationFailed("Authentication failed: Invalid username or password")
        if identity not in ("", user):
            raise errors.SaslAuthenticationFailed(_OTHER_IDENTITY)
        return Step(user=user)


class ScramServer:
    """SCRAM: the client's first message, its proof, and the broker's own proof."""

    def __init__(self, mechanism: str, users: Users, nonce: str, *, phase: str = "authentication") -> None:
        """`nonce` is new for each exchange. `phase` is its name in errors."""
        self._mechanism = mechanism
        self._phase = phase
        self._users = users
        self._own = nonce
        self._keys: scram.Keys | None = None
        self._token: Token | None = None
        self._password = b""
        self._started: tuple[scram.ClientFirst, str, bytes] | None = None

    def next(self, message: bytes) -> Step:
        """Return the answer; raise `SaslAuthenticationFailed` for a wrong proof, and with it for an unknown user."""
        try:
            return self._first(message) if self._started is None else self._final(message, *self._started)
        except scram.OtherIdentity as error:
            raise errors.SaslAuthenticationFailed(_OTHER_IDENTITY) from error
        except errors.MalformedMessage as error:
            log.info("SASL %s: %s", self._mechanism, error)
            raise self._failure() from error

    @property
    def needs_keys(self) -> bool:
        """True if `derive_keys` has to be called before the client's proof is checked.

        Never for a delegation token that does not exist or has expired: a client that is not known yet must not make
        the broker compute, or keep, anything for a name that it made up.
        """
        return self._token is not None and self._keys is None

    def derive_keys(self) -> Callable[[], scram.Keys]:
        """Return a function for another thread: it derives the keys of the delegation token, which takes milliseconds.

        Hand its result to `keep_keys`.
        """
        assert self._token is not None
        text, salt = base64.b64encode(self._password).decode(), self._users.salt_of(self._token.token_id)
        mechanism = self._mechanism
        return lambda: scram.keys_of(mechanism, scram.salted_password(mechanism, text, salt, scram.LEAST_ITERATIONS))

    def keep_keys(self, keys: scram.Keys) -> None:
        """Take the keys of the delegation token, also for its next logins."""
        assert self._token is not None
        self._keys = keys
        self._users.keep_keys(self._token.token_id, self._mechanism, keys)

    def _first(self, message: bytes) -> Step:
        first = scram.ClientFirst.decode(message)
        if first.by_token:
            salt, iterations = self._users.salt_of(first.user), scram.LEAST_ITERATIONS
            found = self._users.delegation_token(first.user)
            if found is not None:
                self._token, self._password = found
                self._keys = self._users.known_keys(first.user, self._mechanism)
        else:
            salt, iterations, self._keys = self._users.credential(first.user, self._mechanism)
        nonce = first.nonce + self._own
        answer = scram.ServerFirst(nonce, salt, iterations).encode()
        self._started = first, nonce, answer
        return Step(answer)

    def _final(self, message: bytes, first: scram.ClientFirst, nonce: str, answer: bytes) -> Step:
        final = scram.ClientFinal.decode(message)
        signed = scram.auth_message(first.bare, answer, final.without_proof)
        unknown = scram.Keys(bytes(32), bytes(32))  # the same work for an unknown user
        signature = scram.verify(self._mechanism, self._keys or unknown, final.proof, signed)
        if self._keys is None or signature is None or final.nonce != nonce:
            raise self._failure()
        if self._token is None:
            return Step(scram.server_final(signature), first.user)
        if self._users.delegation_token(first.user) is None:  # it has ended since the first message
            raise self._failure()
        assert self._users.delegation_tokens is not None
        owner = self._token.owner.partition(":")[2]
        seconds = self._users.delegation_tokens.seconds_left(self._token)
        return Step(scram.server_final(signature), owner, seconds, by_token=True)

    def _failure(self) -> errors.SaslAuthenticationFailed:
        return errors.SaslAuthenticationFailed(
            f"Authentication failed during {self._phase} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )


class _Services(Protocol):
    @property
    def clock(self) -> Clock:
        """The node's clock."""

    @property
    def timers(self) -> Timers:
        """The node's timers."""


class SaslConnection(Protocol):
    """The connection of a client that logs in."""

    principal: str
    """The client's principal, like `User:alice`; set by the login."""
    token_authenticated: bool
    """True if the client logged in by a delegation token; set by the login."""

    @property
    def stream(self) -> FrameStream:
        """The frames of the connection."""

    @property
    def services(self) -> _Services:
        """The services of the node."""

    def close(self) -> None:
        """Close the socket."""

    def refuse(self, frame: memoryview, error: errors.BrokerError) -> None:
        """Answer a request that authentication does not allow with an error, after the delay; then close the socket."""

    def wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Read nothing more until `work` is done, which answers a frame itself."""


class SaslSession:
    """Decides what a client of a SASL listener may send: until it is known, and again when its time is over."""

    def __init__(self, connection: SaslConnection, users: Users, listener: ListenerConfig, delay: float) -> None:
        """Answer refusals after `delay` seconds."""
        self._delay = delay
        self._connection = connection
        self._users = users
        self._listener = listener
        self._lifetime = 0.0
        self._user: str | None = None
        self._mechanism: str | None = None
        self._exchange: PlainServer | ScramServer | OAuthServer | None = None
        self._bare = self._has_asked_versions = self._is_over = False
        self._began_again = -math.inf
        self._largest = connection.stream.frames.max_frame
        self._serve: Callable[[memoryview], None] = connection.stream.frames.on_frame
        self._timer: Timer | None = connection.services.timers.schedule(_SECONDS, self._too_late)
        self._guard()

    @property
    def user(self) -> str | None:
        """The name of the authenticated user; None before the login."""
        return self._user

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms that are offered."""
        return list(self._listener.mechanisms)

    @property
    def is_begun(self) -> bool:
        """Return True between a handshake and the end of its exchange."""
        return self._exchange is not None

    def may_begin(self) -> bool:
        """Return False if a client that has logged in may not begin again.

        Its session is without an end, or it began less than a second ago.
        """
        if self._user is None:
            return True
        if not self._lifetime:
            return False
        now = self._connection.services.clock.monotonic()
        if now - self._began_again < _BETWEEN:
            return False
        self._began_again = now
        return True

    def handshake(self, mechanism: str, *, bare: bool = False) -> bool:
        """Begin an exchange; return False for a mechanism that is not offered.

        With `bare` the messages come in frames without headers. If it is not the mechanism of the login, the next
        message ends the connection, as in Kafka.
        """
        if mechanism not in self._listener.mechanisms:
            return False
        self._guard()
        self._bare = bare
        if self._mechanism not in (None, mechanism):
            self._is_over = True
            return True
        self._mechanism = mechanism
        self._lifetime = self._listener.session_seconds(mechanism)
        self._exchange = self._new_exchange(mechanism)
        return True

    def _new_exchange(self, mechanism: str) -> PlainServer | ScramServer | OAuthServer:
        if mechanism == "PLAIN":
            return PlainServer(self._users)
        if mechanism != "OAUTHBEARER":
            phase = "authentication" if self._user is None else "re-authentication"
            return ScramServer(mechanism, self._users, secrets.token_urlsafe(24), phase=phase)
        from pyclient.broker_embedded.network.oauth import OAuthServer

        assert self._users.tokens is not None, "a listener that offers OAUTHBEARER has a validator"
        return OAuthServer(self._users.tokens, self._connection.stream.peername)

    async def next(self, message: bytes) -> tuple[bytes, int]:
        """Return the data that answer a message, and the milliseconds of the session, 0 while it has none.

        Raise `SaslAuthenticationFailed`, after which the connection has to be closed.
        """
        if self._exchange is None:
            raise errors.IllegalSaslState("SaslAuthenticate needs a SaslHandshake before it")
        step = await self._next_step(self._exchange, message)
        if step.user is None:
            return step.data, 0
        if self._user not in (None, step.user):
            text = f"Cannot change principals during re-authentication from User.{self._user}: User.{step.user}"
            raise errors.SaslAuthenticationFailed(text)
        if step.seconds is not None:  # the shorter of the two, as in Kafka; the token may have expired just now
            self._lifetime = max(0.001, min(step.seconds, self._lifetime or step.seconds))
        self._begin(step.user, by_token=step.by_token)
        return step.data, round(self._lifetime * 1000)

    async def _next_step(self, exchange: PlainServer | ScramServer | OAuthServer, message: bytes) -> Step:
        if isinstance(exchange, PlainServer) or (isinstance(exchange, ScramServer) and not exchange.needs_keys):
            return exchange.next(message)
        if isinstance(exchange, ScramServer):
            exchange.keep_keys(await in_daemon_thread("pyclient-scram", exchange.derive_keys()))
            step = exchange.next(message)
        else:
            step = Step(*await exchange.next(message))
        if self._connection.stream.closed:
            raise errors.IllegalSaslState("the connection was closed during the authentication")
        return step

    def _begin(self, user: str, *, by_token: bool) -> None:
        self._exchange = None
        if self._user is None:
            how = f"{self._mechanism} with a delegation token" if by_token else self._mechanism
            log.info("%s: authenticated as User:%s by %s", self._connection.stream.peername, user, how)
        self._user = user
        self._connection.principal = f"User:{user}"
        self._connection.token_authenticated = by_token
        frames = self._connection.stream.frames
        frames.max_frame, frames.on_frame = self._largest, self._serve
        self.end()
        if self._lifetime:  # afterwards no requests are taken but those to authenticate again
            self._timer = self._connection.services.timers.schedule(self._lifetime, self._guard)

    def end(self) -> None:
        """Cancel the deadline: the connection has ended, or its client is known."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def delay_refusal(self) -> None:
        """Wait before a refusal is answered, so that passwords cannot be tried fast. No request is served after it."""
        self._is_over = True
        self._guard()
        over = asyncio.Event()
        timer = self._connection.services.timers.schedule(self._delay, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def _too_late(self) -> None:
        log.info(
            "%s: closing the connection: it has not authenticated itself in time", self._connection.stream.peername
        )
        self._connection.close()

    def _guard(self) -> None:
        frames = self._connection.stream.frames
        frames.max_frame, frames.on_frame = _LARGEST_FRAME, self._on_frame

    def _on_frame(self, frame: memoryview) -> None:
        """Serve a request that the state allows; any other ends the connection, as in Kafka."""
        if self._is_over:
            log.info("%s: closing the connection: its authentication was refused", self._connection.stream.peername)
            self._connection.close()
            return
        if self._exchange is not None and self._bare:
            self._connection.wait_for(self._answer_bare(bytes(frame)))
            return
        try:
            header = framing.decode_request_header(frame)
        except (errors.ProtocolError, errors.UnsupportedVersion) as error:
            log.warning("%s: closing the connection: %s", self._connection.stream.peername, error)
            self._connection.close()
            return
        key = header.api_key
        if self._is_expected(key):
            self._has_asked_versions |= key == _API_VERSIONS and header.api_version <= _NEWEST_VERSIONS
            self._serve(frame)
            return
        state = "its session has ended" if self._user is not None else "it has not authenticated itself"
        log.info("%s: closing the connection: API %d while %s", self._connection.stream.peername, key, state)
        if self._exchange is not None:
            self._connection.refuse(frame, errors.IllegalSaslState(f"API {key} during an authentication"))
        else:
            self._connection.close()

    def _is_expected(self, key: int) -> bool:
        if self._exchange is not None:
            return key == AUTHENTICATE
        return key == HANDSHAKE or (key == _API_VERSIONS and self._user is None and not self._has_asked_versions)

    async def _answer_bare(self, message: bytes) -> None:
        """Answer a message that came without a header in the same way; a refusal only closes the connection."""
        try:
            data, _ = await self.next(message)
        except errors.BrokerError as error:
            log.info("%s: closing the connection: %s", self._connection.stream.peername, error)
            await self.delay_refusal()
            self._connection.close()
            return
        self._connection.stream.send([len(data).to_bytes(4, "big"), data])
