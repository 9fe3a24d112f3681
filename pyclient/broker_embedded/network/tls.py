"""The TLS context of a listener, from its options; made again when one of its files has changed."""

from __future__ import annotations

import logging
import ssl
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from pyclient.errors import ConfigError
from pyclient.net.tls import Pem, version_of

if TYPE_CHECKING:
    from pyclient.broker_embedded.config.listeners import ListenerConfig

log = logging.getLogger("pyclient.broker_embedded")

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_MODES: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")


class ServerContexts:
    """Makes the contexts of one listener. Raises `ConfigError` for options that cannot be used."""

    def __init__(self, listener: ListenerConfig) -> None:
        self._listener = listener
        self._seen = self._state()
        self._context = server_context(listener)

    def __repr__(self) -> str:
        return f"<ServerContexts of {self._listener.name}>"

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection: the last one that could be made."""
        state = self._state()
        if state != self._seen:
            self._seen = state
            try:
                self._context = server_context(self._listener)
            except ConfigError as error:
                log.warning("TLS files have changed and cannot be used, the former ones stay in use: %s", error)
            else:
                log.info("listener %s: TLS files have changed, new connections use them", self._listener.name)
        return self._context

    def _state(self) -> list[tuple[int, int, int] | None]:
        paths = (self._listener.text(each) for each in _FILES)
        return [version_of(path) for path in paths if path is not None]


def server_context(listener: ListenerConfig) -> ssl.SSLContext:
    """Return the context for a listener. Raise `ConfigError` naming the option and the listener."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = sorted(_VERSIONS[each] for each in str(listener.options["ssl.enabled.protocols"]).split(","))
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        ciphers = listener.text("ssl.cipher.suites")
        if ciphers is not None:
            context.set_ciphers(ciphers.replace(",", ":"))
    except ssl.SSLError:
        raise ConfigError(f"{_of(listener, 'ssl.cipher.suites')}: OpenSSL knows none of them") from None
    _load_key(listener, context)
    _load_authorities(listener, context)
    return context


def _load_key(listener: ListenerConfig, context: ssl.SSLContext) -> None:
    path = listener.text("ssl.keystore.location")
    chain, key = listener.text("ssl.keystore.certificate.chain"), listener.text("ssl.keystore.key")
    if path is None and (chain is None or key is None):
        raise ConfigError(
            f"listener {listener.name} is {listener.protocol} without a certificate: set ssl.keystore.type=PEM and "
            "ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    certificate = Pem("ssl.keystore.location" if path else "ssl.keystore.certificate.chain", path, chain)
    password = listener.text("ssl.key.password") or ""
    if path is not None and listener.is_pkcs12("keystore"):
        from pyclient.net.pkcs12 import read_key_store

        option = _of(listener, "ssl.keystore.location")
        text, password = read_key_store(option, path, listener.text("ssl.keystore.password"))
        certificate = Pem("ssl.keystore.location", None, text)
    with ExitStack() as stack:
        try:
            keyfile = None if path else stack.enter_context(Pem("ssl.keystore.key", None, key).file())
            certfile = stack.enter_context(certificate.file())
            context.load_cert_chain(certfile, keyfile, lambda: password)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"{_of(listener, certificate.shown)}: the certificate and its private key cannot be used: {error}"
            ) from error


def _load_authorities(listener: ListenerConfig, context: ssl.SSLContext) -> None:
    path, text = listener.text("ssl.truststore.location"), listener.text("ssl.truststore.certificates")
    mode = _MODES[str(listener.options["ssl.client.auth"])]
    if path is None and text is None:
        if mode is not ssl.CERT_NONE:
            raise ConfigError(
                f"{_of(listener, 'ssl.client.auth')} is {listener.options['ssl.client.auth']}: it needs "
                "ssl.truststore.type=PEM and ssl.truststore.location, the authorities of clients' certificates"
            )
        return
    option = _of(listener, "ssl.truststore.location" if path else "ssl.truststore.certificates")
    if path is not None and listener.is_pkcs12("truststore"):
        from pyclient.net.pkcs12 import read_trust_store

        text = read_trust_store(option, path, listener.text("ssl.truststore.password"))
        path = None
    try:
        context.load_verify_locations(cafile=path, cadata=text)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{option}: {error}") from error
    context.verify_mode = mode


def _of(listener: ListenerConfig, option: str) -> str:
    return f"{option} (listener {listener.name})"
