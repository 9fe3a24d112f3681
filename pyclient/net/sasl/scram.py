"""SCRAM (RFC 5802, RFC 7677): messages and keys, for both sides. No I/O.

As in Kafka, passwords are UTF-8 without SASLprep, and there is no channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple

from pyclient.errors import MalformedMessage

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism -> the name of its hash function."""

LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 1_000_000
"""A broker that asks for more would keep a core of every client busy for seconds."""

GS2_HEADER: Final = "n,,"
"""No channel binding, and no identity to act for."""
_BY_TOKEN: Final = "tokenauth"
"""Kafka's extension of a client that logs in by a delegation token (KIP-48)."""

_LONGEST: Final = 64 * 1024


class Keys(NamedTuple):
    """The keys that verify a password without containing it."""

    stored_key: bytes
    server_key: bytes


class ServerFirst(NamedTuple):
    """The first message of a server."""

    nonce: str
    salt: bytes
    iterations: int

    def encode(self) -> bytes:
        """Return the message."""
        return f"r={self.nonce},s={base64.b64encode(self.salt).decode()},i={self.iterations}".encode()

    @staticmethod
    def decode(message: bytes) -> ServerFirst:
        """Read the message; raise `MalformedMessage` if it is none, or demands an extension."""
        attributes = _attributes(message)
        if [name for name, _ in attributes[:3]] != ["r", "s", "i"]:
            raise MalformedMessage("the server's first SCRAM message has no nonce, salt and iterations in this order")
        nonce, salt, iterations = (value for _, value in attributes[:3])
        if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 12):
            raise MalformedMessage("the server's first SCRAM message has no number of iterations")
        return ServerFirst(nonce, _base64(salt), int(iterations))


class OtherIdentity(MalformedMessage):
    """A client's first message names an authorization id other than its user."""


class ClientFirst(NamedTuple):
    """The first message of a client. `bare` is the part that is signed."""

    user: str
    nonce: str
    extensions: tuple[tuple[str, str], ...]
    bare: str

    @staticmethod
    def of(user: str, nonce: str, *, by_token: bool = False) -> ClientFirst:
        """Return the message of a user; `by_token` if it is the id of a delegation token (KIP-48)."""
        name = user.replace("=", "=3D").replace(",", "=2C")
        extensions = ((_BY_TOKEN, "true"),) if by_token else ()
        bare = ",".join((f"n={name}", f"r={nonce}", *(f"{key}={value}" for key, value in extensions)))
        return ClientFirst(user, nonce, extensions, bare)

    @property
    def by_token(self) -> bool:
        """True if the user is the id of a delegation token."""
        return any(name == _BY_TOKEN and value.lower() == "true" for name, value in self.extensions)

    def encode(self) -> bytes:
        """Return the message."""
        return (GS2_HEADER + self.bare).encode()

    @staticmethod
    def decode(message: bytes) -> ClientFirst:
        """Read the message; raise `MalformedMessage` if it is none, binds a channel, or demands an extension."""
        text = _text(message)
        header, _, rest = text.partition(",")
        identity, _, bare = rest.partition(",")
        if header != "n" or not bare:
            raise MalformedMessage("the client's first SCRAM message does not begin with n,,")
        attributes = _attributes(bare.encode())
        if [name for name, _ in attributes[:2]] != ["n", "r"] or not attributes[1][1]:
            raise MalformedMessage("the client's first SCRAM message has no user and nonce in this order")
        user = _user(attributes[0][1])
        if identity and (not identity.startswith("a=") or _user(identity[2:]) != user):
            raise OtherIdentity("the client's first SCRAM message names another user to act for")
        return ClientFirst(user, attributes[1][1], tuple(attributes[2:]), bare)


class ClientFinal(NamedTuple):
    """The last message of a client. `without_proof` is the part that is signed."""

    nonce: str
    proof: bytes
    without_proof: str

    @staticmethod
    def decode(message: bytes) -> ClientFinal:
        """Read the message; raise `MalformedMessage` if it is none."""
        text = _text(message)
        attributes = _attributes(message)
        names = [name for name, _ in attributes]
        if names[:2] != ["c", "r"] or names[-1] != "p":
            raise MalformedMessage("the client's last SCRAM message has no channel, nonce and proof in this order")
        if _base64(attributes[0][1]).partition(b",")[0] != b"n":
            raise MalformedMessage("the client's last SCRAM message binds a channel")
        return ClientFinal(attributes[1][1], _base64(attributes[-1][1]), text.rpartition(",p=")[0])


def server_final(signature: bytes) -> bytes:
    """Return the last message of a server that accepts the proof."""
    return b"v=" + base64.b64encode(signature)


def signature_of(message: bytes) -> bytes:
    """Return the signature in the last message of a server; raise `MalformedMessage` with the error in it."""
    [(name, value), *_] = _attributes(message)
    if name == "e":
        raise MalformedMessage(f"the server ended SCRAM with the error {value!r:.200}")
    if name != "v":
        raise MalformedMessage("the server's last SCRAM message has no signature")
    return _base64(value)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the password after PBKDF2: milliseconds of CPU time for each ten thousand iterations."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def keys_of(mechanism: str, salted: bytes) -> Keys:
    """Return the keys of a salted password."""
    name = HASHES[mechanism]
    return Keys(hashlib.new(name, _client_key(name, salted)).digest(), hmac.digest(salted, b"Server Key", name))


def client_final(mechanism: str, salted: bytes, first: ClientFirst, answer: bytes, nonce: str) -> tuple[bytes, bytes]:
    """Return the client's last message, and the signature that the server must answer with.

    `answer` is the server's first message as it came, `nonce` the one in it.
    """
    without_proof = f"c={base64.b64encode(GS2_HEADER.encode()).decode()},r={nonce}"
    signed = auth_message(first.bare, answer, without_proof)
    name = HASHES[mechanism]
    stored, server = keys_of(mechanism, salted)
    proof = _xor(_client_key(name, salted), hmac.digest(stored, signed, name))
    message = f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    return message, hmac.digest(server, signed, name)


def verify(mechanism: str, keys: Keys, proof: bytes, signed: bytes) -> bytes | None:
    """Return the server's signature if the client's proof is right, else None."""
    name = HASHES[mechanism]
    signature = hmac.digest(keys.stored_key, signed, name)
    if len(proof) != len(signature):
        return None
    found = hashlib.new(name, _xor(proof, signature)).digest()
    return hmac.digest(keys.server_key, signed, name) if hmac.compare_digest(found, keys.stored_key) else None


def auth_message(first_bare: str, answer: bytes, without_proof: str) -> bytes:
    """Return what both sides sign."""
    return b",".join((first_bare.encode(), answer, without_proof.encode()))


def _client_key(name: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", name)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _text(message: bytes) -> str:
    if len(message) > _LONGEST:
        raise MalformedMessage(f"a SCRAM message has {len(message)} bytes")
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise MalformedMessage("a SCRAM message is not UTF-8") from None


def _attributes(message: bytes) -> list[tuple[str, str]]:
    """Return names and values; raise `MalformedMessage` for an unknown extension that must be understood (`m`)."""
    found = []
    for part in _text(message).split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.isalpha():
            raise MalformedMessage("a SCRAM message is not of name=value pairs")
        if name == "m":
            raise MalformedMessage("a SCRAM message demands an extension")
        found.append((name, value))
    return found


def _user(name: str) -> str:
    user = name.replace("=2C", ",").replace("=3D", "=")
    if user.replace("=", "=3D").replace(",", "=2C") != name or not user:
        raise MalformedMessage("a SCRAM message has an invalid user name")
    return user


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedMessage("a SCRAM message has invalid base64") from None
