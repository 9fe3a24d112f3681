"""Build a client's TLS context from its ssl_ options, with errors that explain unusable files."""

from __future__ import annotations

import ssl
from pathlib import Path

from pyclient.config import ClientConfig
from pyclient.errors import ConfigError

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_TRUSTED_CERTIFICATE = b"-----BEGIN TRUSTED CERTIFICATE-----"  # OpenSSL's own form, of authorities
_KEY = b"PRIVATE KEY-----"
_PEM = "it has to be a PEM file (openssl and keytool convert others, such as DER, PKCS #12 and JKS)"


def client_context(config: ClientConfig) -> ssl.SSLContext:
    """Return the TLS context for the ssl_ options; raise `ConfigError` with the file that cannot be used, and why."""
    if config.ssl_context is not None:
        return config.ssl_context
    try:
        context = ssl.create_default_context(cafile=config.ssl_cafile)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(_authorities_problem(config, error)) from error
    context.check_hostname = config.ssl_check_hostname
    if config.ssl_certfile is not None:
        try:
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, lambda: config.ssl_password or "")
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError(_certificate_problem(config, config.ssl_certfile, error)) from error
    return context


def _authorities_problem(config: ClientConfig, error: Exception) -> str:
    where = f"ssl_cafile={config.ssl_cafile!r}"
    content = _content(config.ssl_cafile)
    if isinstance(content, OSError):
        return f"{where} cannot be read: {content.strerror or content}"
    if _CERTIFICATE not in content and _TRUSTED_CERTIFICATE not in content:
        return f"{where} holds no certificate of an authority: {_PEM}"
    return f"{where} cannot be used: {error}"


def _certificate_problem(config: ClientConfig, certfile: str, error: Exception) -> str:
    """Return the first problem with the certificate or its key: OpenSSL's own error is little more than "PEM lib"."""
    files = [("ssl_certfile", certfile)]
    if config.ssl_keyfile is not None:
        files.append(("ssl_keyfile", config.ssl_keyfile))
    contents = []
    for name, path in files:
        content = _content(path)
        if isinstance(content, OSError):
            return f"{name}={path!r} cannot be read: {content.strerror or content}"
        contents.append(content)
    where = f"{files[-1][0]}={files[-1][1]!r}"
    if _CERTIFICATE not in contents[0]:
        return f"ssl_certfile={certfile!r} holds no certificate: {_PEM}"
    if _KEY not in contents[-1]:
        advice = "give the key's file as ssl_keyfile" if config.ssl_keyfile is None else _PEM
        return f"{where} holds no private key: {advice}"
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"the private key in {where} does not belong to the certificate in ssl_certfile={certfile!r}"
    if b"ENCRYPTED" in contents[-1]:
        if not config.ssl_password:
            return f"the private key in {where} is encrypted: give its password as ssl_password"
        return f"the private key in {where} cannot be decrypted with ssl_password: is that the key's password?"
    return f"{where} cannot be used: {error}"


def _content(path: str | None) -> bytes | OSError:
    try:
        return Path(path or "").read_bytes()
    except OSError as error:
        return error
