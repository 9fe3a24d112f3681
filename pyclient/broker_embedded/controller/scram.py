"""SCRAM credentials in the metadata log (KIP-554): which are allowed, and what is kept of a password. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors

if TYPE_CHECKING:
    from pyclient.protocol.messages.metadata_log import UserScramCredentialRecord

MECHANISMS: Final[dict[int, str]] = {1: "sha256", 2: "sha512"}
FEWEST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384

Key = tuple[str, int]
"""A user and a mechanism."""


class Credential(NamedTuple):
    """What is kept: enough to check a password, not the password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


def check_name(name: str, mechanism: int) -> None:
    """Raise `UnacceptableCredential` or `UnsupportedSaslMechanism`."""
    if not name:
        raise errors.UnacceptableCredential("the name of a user is empty")
    if mechanism not in MECHANISMS:
        raise errors.UnsupportedSaslMechanism(f"there is no SCRAM mechanism {mechanism}")


def check_iterations(iterations: int) -> None:
    """Raise `UnacceptableCredential` for too few or too many."""
    if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise errors.UnacceptableCredential(
            f"{iterations} iterations: there must be from {FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
        )


def record_of(
    name: str, mechanism: int, *, iterations: int, salt: bytes, salted_password: bytes
) -> UserScramCredentialRecord:
    """The record that keeps a credential (RFC 5802)."""
    import hashlib  # by whoever needs them: a node's start does not
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
