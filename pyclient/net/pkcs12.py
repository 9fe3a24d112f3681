"""Read PKCS12 stores of keys and authorities (`.p12`, `.pfx`) as PEM texts, which OpenSSL takes."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_JKS: Final = bytes.fromhex("feedfeed")
_DER: Final = 0x30  # a sequence, with which PKCS12 begins
_LONG: Final = 0x80  # the bit of a length of more than 127 bytes, which follows; texts have none


class KeyAndChain(NamedTuple):
    """A private key, encrypted with a `password` that was made for it alone, and its certificates, as a PEM text."""

    pem: str
    password: str

    def __repr__(self) -> str:
        return "KeyAndChain(<hidden>)"


def is_pkcs12(path: str) -> bool:
    """Return True if the file begins as PKCS12 does; False also if it cannot be read."""
    try:
        with open(path, "rb") as file:
            head = file.read(2)
            return len(head) == 2 and head[0] == _DER and head[1] >= _LONG
    except OSError:
        return False


def read_key_store(option: str, path: str, password: str | None) -> KeyAndChain:
    """Return key and certificates of a store. Raise `ConfigError`, which names `option` and the cause."""
    store = _load(option, path, password)  # first: its error says which package is missing
    from cryptography.hazmat.primitives import serialization

    if store.key is None or store.cert is None:
        raise ConfigError(f"{option}={path!r} holds no private key with its certificate")
    once = secrets.token_hex(16)
    encryption = serialization.BestAvailableEncryption(once.encode())
    key = store.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    chain = [store.cert, *store.additional_certs]
    certificates = [each.certificate.public_bytes(serialization.Encoding.PEM) for each in chain]
    return KeyAndChain(b"".join((key, *certificates)).decode(), once)


def read_trust_store(option: str, path: str, password: str | None) -> str:
    """Return the authorities of a store as a PEM text. Raise `ConfigError`, which names `option` and the cause."""
    store = _load(option, path, password)  # first: its error says which package is missing
    from cryptography.hazmat.primitives.serialization import Encoding

    found = [*([] if store.cert is None else [store.cert]), *store.additional_certs]
    if not found:
        raise ConfigError(f"{option}={path!r} holds no certificate")
    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in found).decode()


def _load(option: str, path: str, password: str | None) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{option}={path!r} is PKCS12, which needs the package cryptography ({error}): "
            "pip install 'pyclient-kafka[security]', or convert it to PEM with openssl pkcs12"
        ) from error
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{option}={path!r} cannot be read: {error.strerror or error}") from error
    if content.startswith(_JKS):
        raise ConfigError(
            f"{option}={path!r} is a JKS file: convert it with keytool -importkeystore -srckeystore FILE "
            "-destkeystore FILE.p12 -deststoretype PKCS12"
        )
    if b"-----BEGIN" in content:
        raise ConfigError(f"{option}={path!r} is a PEM file, not PKCS12: set the store's type to PEM")
    try:
        return load_pkcs12(content, password.encode() if password else None)
    except ValueError:
        what = "its password is wrong, or it is damaged" if password else "it needs a password, or it is damaged"
        raise ConfigError(f"{option}={path!r} cannot be read as PKCS12: {what}") from None
