"""TLS for the framed stream: an `ssl.SSLObject` between the socket's bytes and the frames; and a client's context."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyclient.config import ClientConfig
from pyclient.errors import ConfigError, ConnectionFailed
from pyclient.net.file_region import FileRegion
from pyclient.net.stream import FrameStream
from pyclient.net.tasks import shared

log = logging.getLogger(__name__)

_RECEIVE: Final = 64 * 1024
_NO_TLS: Final = "perhaps the port speaks no TLS: then set security_protocol='PLAINTEXT'"
_CLIENT_CERTIFICATE: Final = (
    "it demands a client certificate that it trusts (mutual TLS): set ssl_certfile and ssl_keyfile to one whose "
    "authority is in the broker's truststore"
)
_MEANINGS: Final = (
    (("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"), _NO_TLS),
    (
        ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"),
        "there is no TLS version that both sides take; this side takes 1.2 and 1.3 unless ssl_context says otherwise",
    ),
    (
        ("CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE_UNKNOWN", "ALERT_UNKNOWN_CA"),
        _CLIENT_CERTIFICATE,
    ),
    (
        (
            "ALERT_CERTIFICATE_EXPIRED",
            "ALERT_CERTIFICATE_REVOKED",
            "ALERT_UNSUPPORTED_CERTIFICATE",
            "ALERT_ACCESS_DENIED",
        ),
        "it does not accept this client's certificate: replace ssl_certfile",
    ),
    (
        ("ALERT_HANDSHAKE_FAILURE", "NO_SHARED_CIPHER", "INSUFFICIENT_SECURITY"),
        "there is no cipher that both sides take, or it demands a client certificate (ssl_certfile and ssl_keyfile)",
    ),
)
"""Words in the reasons of OpenSSL's errors, and the advice for a client; alerts are sent by the broker."""

_NOT_TLS: Final = b"\x15\x03\x03\x00\x02\x02\x46"
"""The alert `protocol_version`, for a client without TLS: OpenSSL itself sends none."""

_OTHER_NAME: Final = "connect by a name in its certificate, or set ssl_check_hostname=False"
_ADVICE_BY_VERIFY_CODE: Final = {
    9: "check this machine's clock, or wait until it is valid",
    10: "the broker needs a new one",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
_ENCRYPT: Final = 64 * 1024  # plaintext bytes per step, so that few encrypted bytes are queued
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_TRUSTED_CERTIFICATE = b"-----BEGIN TRUSTED CERTIFICATE-----"  # OpenSSL's own form, of authorities
_KEY = b"PRIVATE KEY-----"
_PEM = "it has to be a PEM file (openssl and keytool convert others, such as DER, PKCS #12 and JKS)"


class TlsEnd(NamedTuple):
    """One end of a TLS connection: of a server, or of a client, which checks that the server is `server_hostname`."""

    context: ssl.SSLContext
    server_hostname: str | None = None
    server_side: bool = False


class TlsStream(FrameStream):
    """A framed stream inside TLS. Messages sent before the handshake has ended are queued until then."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        end: TlsEnd,
        *,
        max_frame: int,
        on_frame: Callable[[memoryview], None],
        on_closed: Callable[[BaseException | None], None],
        pause_above: int | None = None,
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = end.context.wrap_bio(self._incoming, self._outgoing, end.server_side, end.server_hostname)
        self._ready: asyncio.Future[None] = loop.create_future()
        self._raw = memoryview(b"")  # encrypted bytes that the kernel did not accept yet
        self.heard = False
        """True once the peer has sent a byte."""
        self._head_sent = 0  # plaintext bytes of the queue's head that are encrypted already
        super().__init__(
            loop, sock, max_frame=max_frame, on_frame=on_frame, on_closed=on_closed, pause_above=pause_above
        )
        self._shake_hands()

    async def handshake(self) -> None:
        """Wait until the TLS handshake has succeeded; raise `ConnectionFailed` with the reason if it fails."""
        await shared(self._ready)

    @property
    def established(self) -> bool:
        """True once the handshake has succeeded."""
        return self._ready.done() and self._ready.exception() is None

    def peer_certificate(self) -> dict[str, Any] | None:
        """Return the peer's verified certificate as `ssl` shows it; None if it has sent none."""
        return self._tls.getpeercert() or None

    def _shake_hands(self) -> None:
        if self._ready.done():
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
            return
        else:
            self._ready.set_result(None)
        self._flush()

    def _fail(self, error: ssl.SSLError) -> None:
        self._send_pending_alert(_NOT_TLS if self._tls.server_side and not self._ready.done() else b"")
        text, lasting = _explain(error)
        failure = ConnectionFailed(f"TLS failed: {text}", lasting=lasting)
        failure.__cause__ = error
        self.close(failure)

    # -- receiving

    def _receive(self) -> bool:
        try:
            data = self._sock.recv(_RECEIVE)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.close(ConnectionFailed(f"{self.peername}: {error.strerror or error}"))
            return False
        if data:
            self.heard = True
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        self._shake_hands()
        if self._ready.done() and not self.closed:
            self._decrypt()
        if not data and not self.closed:
            self._on_end()
        return len(data) == _RECEIVE

    def _decrypt(self) -> None:
        while not self.frames.paused:
            space = self.frames.space()
            try:
                count: int = self._tls.read(len(space), space)  # type: ignore[assignment]  # an int, given a buffer
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                self._on_end()
                return
            except ssl.SSLEOFError:
                self.close(ConnectionFailed(f"{self.peername} closed the connection without ending TLS"))
                return
            except ssl.SSLError as error:
                self._fail(error)
                return
            if count == 0:
                self._on_end()
                return
            self._deliver(self.frames.received, count)
        if self._outgoing.pending and not self.closed:
            self._flush()

    def _has_backlog(self) -> bool:
        return self.frames.backlog or self._tls.pending() > 0 or self._incoming.pending > 0

    def _deliver_backlog(self) -> None:
        super()._deliver_backlog()
        if self._ready.done() and not self.closed:
            self._decrypt()

    # -- sending

    def _send_at_once(self, message: bytes) -> int:
        """Write nothing and return 0: only encrypted bytes may reach the socket."""
        return 0

    def _write_out(self) -> bool:
        while True:
            if not self._raw:
                self._raw = memoryview(self._outgoing.read())
                self.pending += len(self._raw)
            if not self._raw:
                if not self.queue or not self._ready.done() or not self._encrypt():
                    return False
                continue
            try:
                sent = self._sock.send(self._raw)
            except (BlockingIOError, InterruptedError):
                return True
            self.pending -= sent
            self._raw = self._raw[sent:]

    def _encrypt(self) -> bool:
        """Encrypt the next piece of the queue; return False if TLS has to read first."""
        head = self.queue[0]
        start = self._head_sent
        if isinstance(head, FileRegion):
            piece = memoryview(head.read(start, _ENCRYPT))
        else:
            piece = memoryview(head)[start : start + _ENCRYPT]  # type: ignore[arg-type]  # bytes-like
        try:
            written = self._tls.write(piece) if piece else 0
        except ssl.SSLWantReadError:
            return False
        self.pending -= written
        self._head_sent += written
        if self._head_sent == len(head):
            self._head_sent = 0
            self.queue.popleft()
            if isinstance(head, FileRegion):
                head.release()
        return True

    # -- closing

    def close(self, error: BaseException | None = None) -> None:
        """Send TLS's close_notify if the socket accepts it at once, and close."""
        if self.closed:
            return
        if self._ready.done() and not self._raw:
            with contextlib.suppress(ssl.SSLError):  # the peer's close_notify is missing; ours is in `_outgoing`
                self._tls.unwrap()
            self._send_pending_alert()
        super().close(error)
        if not self._ready.done():
            self._ready.set_exception(error or ConnectionFailed(f"{self.peername} closed the connection during TLS"))
            self._ready.exception()  # marks it as retrieved: on_closed reports it, too

    def _send_pending_alert(self, otherwise: bytes = b"") -> None:
        with contextlib.suppress(OSError):  # the peer may be disconnected
            self._sock.send(self._outgoing.read() or otherwise)


def _explain(error: ssl.SSLError) -> tuple[str, bool]:
    """Return the meaning of a TLS error with advice, and True if retrying cannot help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _ADVICE_BY_VERIFY_CODE.get(error.verify_code, "trust its authority with ssl_cafile")
        return f"its certificate is not accepted: {error.verify_message}; {advice}", True
    if isinstance(error, ssl.SSLEOFError):
        return f"it closed the connection during the handshake; {_NO_TLS}", False
    reason = error.reason or ""
    for words, meaning in _MEANINGS:
        if any(word in reason for word in words):
            return f"{meaning} ({error})", True
    return str(error), "ALERT" in reason


# -- context


class ContextSource:
    """A client's TLS context; made again when one of its files has changed, so that new connections use what is there.

    Raises `ConfigError` like `client_context`.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._seen = self._state()
        self._context = client_context(config)

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection: the last one that could be made."""
        state = self._state()
        if state != self._seen:
            self._seen = state
            try:
                self._context = client_context(self._config)
            except ConfigError as error:
                log.warning("TLS files have changed and cannot be used, the former ones stay in use: %s", error)
            else:
                log.info("TLS files have changed: new connections use them")
        return self._context

    def _state(self) -> list[tuple[int, int, int] | None]:
        files = (self._config.ssl_cafile, self._config.ssl_certfile, self._config.ssl_keyfile)
        return [version_of(path) for path in files if path is not None]


def version_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Pem(NamedTuple):
    """A PEM text or the file that has it; `name` is the option."""

    name: str
    path: str | None
    text: str | None

    @property
    def shown(self) -> str:
        """Return the option, and the file if it is one."""
        return self.name if self.path is None else f"{self.name}={self.path!r}"

    def content(self) -> bytes:
        """Return the text; raise `ConfigError` if the file cannot be read."""
        if self.path is None:
            return (self.text or "").encode()
        try:
            return Path(self.path).read_bytes()
        except OSError as error:
            raise ConfigError(f"{self.shown} cannot be read: {error.strerror or error}") from error

    @contextlib.contextmanager
    def file(self) -> Iterator[str]:
        """Return a path to read it from, since the standard library loads keys from files only.

        A text is in a file that only this user can read, and on Linux in memory.
        """
        if self.path is not None:
            yield self.path
            return
        in_memory = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")
        descriptor, name = (os.memfd_create("pyclient-pem"), "") if in_memory else tempfile.mkstemp("pyclient-pem")
        try:
            with open(descriptor, "wb") as file:
                file.write(self.content())
                file.flush()
                yield name or f"/proc/self/fd/{descriptor}"
        finally:
            if name:
                os.unlink(name)


def _pem(config: ClientConfig, file_option: str, text_option: str) -> Pem | None:
    path, text = getattr(config, file_option), getattr(config, text_option)
    if path is None and text is None:
        return None
    return Pem(file_option if text is None else text_option, path, text)


def client_context(config: ClientConfig) -> ssl.SSLContext:
    """Return the TLS context for the ssl_ options; raise `ConfigError` with the option that cannot be used, and why."""
    if config.ssl_context is not None:
        return config.ssl_context
    authorities = _authorities(config)
    certificate, password = _certificate(config)
    key = _pem(config, "ssl_keyfile", "ssl_key_pem")
    try:
        path, text = (None, None) if authorities is None else authorities[1:]
        context = ssl.create_default_context(cafile=path, cadata=text)
    except (OSError, ssl.SSLError, ValueError) as error:
        assert authorities is not None
        raise ConfigError(_authorities_problem(authorities, error)) from error
    context.check_hostname = config.ssl_check_hostname
    if certificate is not None:
        try:
            with contextlib.ExitStack() as stack:
                keyfile = None if key is None else stack.enter_context(key.file())
                certfile = stack.enter_context(certificate.file())
                context.load_cert_chain(certfile, keyfile, lambda: password or "")
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError(_certificate_problem(certificate, key, password, error)) from error
    return context


def _authorities(config: ClientConfig) -> Pem | None:
    """Return the authorities to trust, those of a PKCS12 store as a text. Raise `ConfigError`."""
    path = config.ssl_cafile
    if path is not None and (config.ssl_truststore_type == "PKCS12" or _is_pkcs12(path, config.ssl_truststore_type)):
        from pyclient.net.pkcs12 import read_trust_store

        return Pem("ssl_cafile", None, read_trust_store("ssl_cafile", path, config.ssl_truststore_password))
    return _pem(config, "ssl_cafile", "ssl_ca_pem")


def _certificate(config: ClientConfig) -> tuple[Pem | None, str | None]:
    """Return the certificate and its key's password; those of a PKCS12 store are in a text. Raise `ConfigError`."""
    path = config.ssl_certfile
    if path is not None and (config.ssl_keystore_type == "PKCS12" or _is_pkcs12(path, config.ssl_keystore_type)):
        from pyclient.net.pkcs12 import read_key_store

        store = read_key_store("ssl_certfile", path, config.ssl_keystore_password)
        return Pem("ssl_certfile", None, store.pem), store.password
    return _pem(config, "ssl_certfile", "ssl_certificate_pem"), config.ssl_password


def _is_pkcs12(path: str, given: str | None) -> bool:
    """Return True if a store of no `given` type is PKCS12 by its content."""
    if given is not None:
        return False
    from pyclient.net.pkcs12 import is_pkcs12

    return is_pkcs12(path)


def _authorities_problem(source: Pem, error: Exception) -> str:
    content = source.content()
    if _CERTIFICATE not in content and _TRUSTED_CERTIFICATE not in content:
        return f"{source.shown} holds no certificate of an authority: {_what(source)}"
    return f"{source.shown} cannot be used: {error}"


def _certificate_problem(certificate: Pem, key: Pem | None, password: str | None, error: Exception) -> str:
    """Return the first problem with the certificate or its key: OpenSSL's own error is little more than "PEM lib"."""
    holder = certificate if key is None else key
    content, secret = certificate.content(), holder.content()
    if _CERTIFICATE not in content:
        return f"{certificate.shown} holds no certificate: {_what(certificate)}"
    if _KEY not in secret:
        option = "the key's file as ssl_keyfile" if certificate.path is not None else "the key as ssl_key_pem"
        return f"{holder.shown} holds no private key: {f'give {option}' if key is None else _what(holder)}"
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"the private key in {holder.shown} does not belong to the certificate in {certificate.shown}"
    if b"ENCRYPTED" in secret:
        if not password:
            return f"the private key in {holder.shown} is encrypted: give its password as ssl_password"
        return f"the private key in {holder.shown} cannot be decrypted with ssl_password: is that the key's password?"
    where = holder.shown if key is None else f"{certificate.shown} or {holder.shown}"
    return f"the certificate or the private key in {where} is damaged or of a kind that OpenSSL does not use: {error}"


def _what(source: Pem) -> str:
    return _PEM if source.path is not None else "it has to be a text in PEM, with its BEGIN and END lines"
