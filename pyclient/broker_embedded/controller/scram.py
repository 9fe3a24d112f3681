"""SCRAM credentials in the metadata log (KIP-554): validation and derivation. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors

if TYPE_CHECKING:
    from pyclient.protocol.messages.metadata_log import UserScramCredentialRecord

MECHANISMS: Final[dict[int, str]] = {1: "sha256", 2: "sha512"}
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384

Key = tuple[str, int]
"""A user and a mechanism."""


class Credential(NamedTuple):
    """A stored credential: it verifies a password without containing it."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


def check_name(name: str, mechanism: int) -> None:
    """Raise `UnacceptableCredential` for an empty name, `UnsupportedSaslMechanism` for an unknown mechanism."""
    if not name:
        raise errors.UnacceptableCredential("the user name must not be empty")
    if mechanism not in MECHANISMS:
        raise errors.UnsupportedSaslMechanism(f"unknown SCRAM mechanism {mechanism}")


def check_iterations(iterations: int) -> None:
    """Raise `UnacceptableCredential` for too few or too many."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise errors.UnacceptableCredential(
            f"{iterations} iterations: must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}"
        )


def record_of_password(name: str, mechanism: int, password: str) -> UserScramCredentialRecord:
    """Derive a credential with a new salt, as the fewest iterations allow."""
    import hashlib
    import secrets

    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, MIN_ITERATIONS)
    return record_of(name, mechanism, iterations=MIN_ITERATIONS, salt=salt, salted_password=salted)


def is_of(credential: Credential, mechanism: int, password: str) -> bool:
    """Return True if a credential is that of the password."""
    import hashlib
    import hmac

    algorithm = MECHANISMS[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), credential.salt, credential.iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    return hmac.compare_digest(hashlib.new(algorithm, client_key).digest(), credential.stored_key)


def record_of(
    name: str, mechanism: int, *, iterations: int, salt: bytes, salted_password: bytes
) -> UserScramCredentialRecord:
    """Derive a credential (RFC 5802) and return its record."""
    import hashlib  # imported on first use to keep the broker's start fast
    import hmac

    from pyclient.protocol.messages.metadata_log import UserScramCredentialRecord

    algorithm = MECHANISMS[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", algorithm),
        iterations=iterations,
    )
