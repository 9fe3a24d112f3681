"""The client side of each SASL mechanism. No I/O: the caller sends and receives the messages."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from pyclient.errors import MalformedMessage
from pyclient.net.sasl import scram

Salted = Callable[[str, str, bytes, int], bytes]
"""`scram.salted_password`, or something that remembers its results."""

_NO_LAYER: Final = 1
_LAYER_BYTES: Final = 4  # a set of layers, and three bytes with the size of messages in them


class Exchange(Protocol):
    """One authentication."""

    def first(self) -> bytes:
        """Return the first message."""
        ...

    def next(self, answer: bytes) -> bytes | None:
        """Return the message that follows the broker's answer, None if it was the last.

        Raise `MalformedMessage` for an answer that the mechanism does not allow.
        """
        ...


class PlainExchange:
    """PLAIN (RFC 4616): the password itself, which only TLS protects."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        """Return user and password."""
        return f"\0{self._user}\0{self._password}".encode()

    def next(self, answer: bytes) -> bytes | None:
        """Return None: the broker accepted it."""
        return None


class ScramExchange:
    """SCRAM: both sides prove that they know the password, without sending it."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, salted: Salted, *, by_token: bool = False
    ) -> None:
        """`nonce` is random and new for each exchange. `by_token`: they are those of a delegation token."""
        self._mechanism = mechanism
        self._password = password
        self._salted = salted
        self._first = scram.ClientFirst.of(user, nonce, by_token=by_token)
        self._signature: bytes | None = None
        self._done = False

    def first(self) -> bytes:
        """Return user and nonce."""
        return self._first.encode()

    def next(self, answer: bytes) -> bytes | None:
        """Return the proof after the first answer; after the second one, check the broker's own proof."""
        if self._done:
            raise MalformedMessage("the broker sent a SCRAM message after its last one")
        if self._signature is None:
            return self._prove(answer)
        self._done = True
        if not hmac.compare_digest(scram.signature_of(answer), self._signature):
            raise MalformedMessage("the broker did not prove that it knows the password: it may be another's")
        return None

    def _prove(self, answer: bytes) -> bytes:
        server = scram.ServerFirst.decode(answer)
        own = self._first.nonce
        if not server.nonce.startswith(own) or server.nonce == own:
            raise MalformedMessage("the broker's nonce does not continue this client's")
        if not scram.LEAST_ITERATIONS <= server.iterations <= scram.MOST_ITERATIONS:
            raise MalformedMessage(
                f"the broker asks for {server.iterations} iterations of SCRAM, which must be"
                f" {scram.LEAST_ITERATIONS} to {scram.MOST_ITERATIONS}"
            )
        salted = self._salted(self._mechanism, self._password, server.salt, server.iterations)
        message, self._signature = scram.client_final(self._mechanism, salted, self._first, answer, server.nonce)
        return message


class OAuthExchange:
    """OAUTHBEARER (RFC 7628): a token, and extensions for the broker."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        self.refusal = ""
        """The broker's reason for refusing the token, which it sends in a challenge before the error."""

    def first(self) -> bytes:
        """Return the token."""
        pairs = "".join(f"{name}={value}\x01" for name, value in self._extensions.items())
        return f"n,,\x01auth=Bearer {self._token}\x01{pairs}\x01".encode()

    def next(self, answer: bytes) -> bytes | None:
        """Return None if the broker accepted the token, else the message that has it send its error."""
        if not answer:
            return None
        if self.refusal:
            raise MalformedMessage("the broker answered a refused token twice")
        self.refusal = _status_of(answer)
        return b"\x01"


class SecurityContext(Protocol):
    """A security context of GSS-API (RFC 2743) with the key that client and broker share after its last token."""

    @property
    def complete(self) -> bool:
        """Return True if no further token of the broker is needed."""
        ...

    @property
    def is_mutual(self) -> bool:
        """Return True if the broker has proved its identity, too."""
        ...

    def step(self, token: bytes | None) -> bytes:
        """Return the token that follows the broker's, empty if there is none."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Return `message` with a signature."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """Return what the broker has signed."""
        ...


class GssapiExchange:
    """GSSAPI (RFC 4752): tokens until the context is complete, then what protects the messages that follow: nothing.

    The authorization id is empty, so that the client is the principal of its ticket.
    """

    def __init__(self, context: SecurityContext, token: bytes) -> None:
        """`token` is the context's first one."""
        self._context = context
        self._token = token
        self._done = False

    def first(self) -> bytes:
        """Return the token with the ticket."""
        return self._token

    def next(self, answer: bytes) -> bytes | None:
        """Return the next token, then the choice of no security layer; None after that.

        Raise `ConnectionFailed` for a token that the context does not accept.
        """
        if self._done:
            if answer:
                raise MalformedMessage("the broker sent a GSSAPI message after its last one")
            return None
        if self._context.complete:
            return self._choose_layer(answer)
        if not answer:
            raise MalformedMessage("the broker sent no token to prove its identity: it may be another's")
        return self._context.step(answer)

    def _choose_layer(self, answer: bytes) -> bytes:
        if not self._context.is_mutual:
            raise MalformedMessage("the broker did not prove its identity: it may be another's")
        offer = self._context.unwrap(answer)
        if len(offer) != _LAYER_BYTES:
            raise MalformedMessage(f"the broker's offer of security layers has {len(offer)} bytes, not {_LAYER_BYTES}")
        if not offer[0] & _NO_LAYER:
            raise MalformedMessage("the broker demands a security layer of GSSAPI, which Kafka's protocol has not")
        self._done = True
        return self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)))


def _status_of(answer: bytes) -> str:
    try:
        said = json.loads(answer)
        return str(said["status"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"
