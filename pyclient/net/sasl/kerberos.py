"""Logins by Kerberos: tickets from a keytab or a ticket cache, and the causes of failures, by python-gssapi.

The library blocks and may ask a KDC (key distribution center): it is called in threads.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from pyclient.config.kerberos import KerberosSettings
from pyclient.errors import ConfigError, ConnectionFailed
from pyclient.net.sasl.exchanges import GssapiExchange
from pyclient.net.tasks import in_daemon_thread

T = TypeVar("T")

_NO_CREDENTIALS: Final = 7
_EXPIRED: Final = 11
"""Routine errors of GSS-API (RFC 2744), without their shift."""

_FIRST_CODE: Final = 2**32 - 1_765_328_384
"""The first number of Kerberos' own errors: those of RFC 4120, and from 128 on those of its libraries."""

_TICKET_EXPIRED: Final = 32
"""Kerberos' error if the KDC finds a ticket expired that the library took for valid; counted as in `_CAUSES`."""

_NO_KDC: Final = "check that the realm's KDC runs, and that krb5.conf (KRB5_CONFIG) has its address"
_NO_CLIENT: Final = "check the principal, sasl_kerberos_principal, and its state in the KDC's database"
_OTHER_KEY: Final = "the keytab has another key than the KDC: export the principal's keys to it again"
_NO_SERVICE: Final = (
    "the KDC has no such service: check sasl_kerberos_service_name, and that the broker's principal has the host name "
    "that it advertises"
)
_SKEW: Final = "the clocks of this machine, the KDC and the broker must agree within minutes: synchronise them"
_NO_REALM: Final = "check the realm in krb5.conf (KRB5_CONFIG): default_realm, realms and domain_realm"

_CAUSES: Final = {
    1: _NO_CLIENT,
    6: _NO_CLIENT,
    7: _NO_SERVICE,
    18: _NO_CLIENT,
    23: _NO_CLIENT,
    24: _OTHER_KEY,
    31: _OTHER_KEY,
    33: _SKEW,
    37: _SKEW,
    148: _SKEW,
    154: _NO_REALM,
    156: _NO_KDC,
    217: _NO_REALM,
    220: _NO_KDC,
    224: _NO_REALM,
}
"""Advice by Kerberos' error, counted from `_FIRST_CODE`."""
_TRANSIENT: Final = frozenset({_NO_KDC})

_LOCKS: Final[dict[tuple[int, str], threading.Lock]] = {}
"""By process and ticket cache in memory: one login gets the ticket for all, and none finds the cache half filled."""


class KerberosFailure(ConnectionFailed):
    """No ticket is available, or a token of the broker is not accepted. The text contains no secret."""


class KerberosLogin:
    """Begins the logins of one client's connections.

    Each acquires the credentials again. Tickets from a keytab are kept in this process's memory, and are replaced
    when half of their lifetime is over; those of a ticket cache are managed by another program, such as kinit.
    """

    def __init__(self, settings: KerberosSettings, timeout: float) -> None:
        """`timeout` is the number of seconds that a call of the library may take. Raise `ConfigError` without it."""
        self._gssapi = _library()
        self._settings = settings
        self._timeout = timeout

    @property
    def principal(self) -> str:
        """The principal as part of an error's text; empty if the keytab or the ticket cache decides."""
        return f" as principal {self._settings.principal!r}" if self._settings.principal else ""

    async def prepare(self) -> None:
        """Get a ticket if the last one is about to expire. Raise `KerberosFailure`."""
        await self.in_thread(self._credentials)

    async def begin(self, host: str) -> GssapiExchange:
        """Return an exchange with the broker at `host`, whose first token is made. Raise `KerberosFailure`."""
        return await self.in_thread(lambda: self._begin(host))

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, which uses the library; raise `KerberosFailure` for the library's errors."""
        try:
            async with asyncio.timeout(self._timeout):
                return await in_daemon_thread("pyclient-kerberos", lambda: self._explained(call))
        except TimeoutError:
            raise KerberosFailure(f"Kerberos' library gave no answer within {self._timeout:g} s: {_NO_KDC}") from None

    def _explained(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except NotImplementedError as error:  # a Kerberos without stores of credentials
            raise KerberosFailure(f"Kerberos' library cannot do this: {error}", lasting=True) from error
        except self._gssapi.exceptions.GSSError as error:  # its texts are those of this thread
            raise failure_of(error, self._settings) from error

    def _begin(self, host: str) -> GssapiExchange:
        gssapi, settings = self._gssapi, self._settings
        service = gssapi.Name(f"{settings.service_name}@{host}", gssapi.NameType.hostbased_service)
        flag = gssapi.RequirementFlag
        with self._alone():
            context = _Context(
                gssapi.SecurityContext(
                    name=service,
                    creds=self._taken(),
                    mech=gssapi.MechType.kerberos,
                    flags=flag.mutual_authentication | flag.integrity | flag.out_of_sequence_detection,
                    usage="initiate",
                ),
                flag.mutual_authentication,
            )
            return GssapiExchange(context, context.step(None))

    def _credentials(self) -> None:
        with self._alone():
            self._taken()

    def _taken(self) -> Any:
        """Return the credentials with a ticket that is valid; the library asks the KDC for one if there is a keytab."""
        gssapi, settings = self._gssapi, self._settings
        name = settings.principal and gssapi.Name(settings.principal, gssapi.NameType.kerberos_principal)
        store = {} if settings.ticket_cache is None else {"ccache": settings.ticket_cache}
        if settings.keytab is not None:
            store = {"client_keytab": settings.keytab, "ccache": _memory_cache(settings)}
        credentials = gssapi.Credentials(
            name=name or None, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store or None
        )
        _ = credentials.lifetime  # raises for an expired ticket, and has the library get one by the keytab
        return credentials

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other logins from the same ticket cache in memory."""
        if self._settings.keytab is None:
            yield
            return
        lock = _LOCKS.setdefault((os.getpid(), _memory_cache(self._settings)), threading.Lock())
        if not lock.acquire(timeout=self._timeout):
            raise KerberosFailure(f"another login has waited for the KDC for {self._timeout:g} s: {_NO_KDC}")
        try:
            yield
        finally:
            lock.release()


class _Context:
    """A context of python-gssapi as `SecurityContext`."""

    def __init__(self, context: Any, mutual: int) -> None:
        self._context = context
        self._mutual = mutual

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def is_mutual(self) -> bool:
        return bool(self._context.actual_flags & self._mutual)

    def step(self, token: bytes | None) -> bytes:
        return self._context.step(token) or b""

    def wrap(self, message: bytes) -> bytes:
        wrapped: bytes = self._context.wrap(message, False).message
        return wrapped

    def unwrap(self, message: bytes) -> bytes:
        unwrapped: bytes = self._context.unwrap(message).message
        return unwrapped


def failure_of(error: Any, settings: KerberosSettings) -> KerberosFailure:
    """Return the failure that an error of python-gssapi is: what the library says, and what to do about it."""
    routine, code = error.maj_code >> 16 & 0xFF, error.min_code - _FIRST_CODE
    advice = _CAUSES.get(code)
    if routine == _EXPIRED or code == _TICKET_EXPIRED:
        said, advice = "the ticket has expired", _without_ticket(settings)
    elif routine == _NO_CREDENTIALS and advice is None:
        said, advice = f"there is no ticket ({_said(error)})", _without_ticket(settings)
    else:
        said = _said(error)
    return KerberosFailure(f"{said}: {advice}" if advice else said, lasting=advice not in _TRANSIENT)


def _without_ticket(settings: KerberosSettings) -> str:
    if settings.keytab is not None:
        path = settings.keytab.removeprefix("FILE:")
        if not os.access(path, os.R_OK):
            return f"the keytab {path!r} cannot be read: check sasl_kerberos_keytab and the file's owner"
        whose = "any principal" if settings.principal is None else f"the principal {settings.principal!r}"
        return f"check that the keytab {path!r} has keys of {whose} (klist -k)"
    whose = "" if settings.principal is None else f" {settings.principal}"
    cache = f"the ticket cache {settings.ticket_cache!r}" if settings.ticket_cache else "the ticket cache (KRB5CCNAME)"
    return f"get one with `kinit{whose}` into {cache}, or give sasl_kerberos_keytab"


def _said(error: Any) -> str:
    """Return the library's texts on one line: Kerberos' own ones, or else those of GSS-API."""
    texts = error.get_all_statuses(error.min_code, False) if error.min_code else ()
    texts = texts or error.get_all_statuses(error.maj_code, True)
    return " ".join(" ".join(texts).split())[:500]


def _memory_cache(settings: KerberosSettings) -> str:
    """Return the name of the ticket cache in memory for a keytab and a principal; a changed keytab has another one."""
    path = (settings.keytab or "").removeprefix("FILE:")
    try:
        status = os.stat(path)
        version = f"{status.st_ino} {status.st_mtime_ns}"
    except OSError:
        version = ""
    named = f"{settings.principal}\0{path}\0{version}".encode()
    return f"MEMORY:pyclient-{hashlib.sha256(named).hexdigest()[:32]}"


def _library() -> Any:
    """Return python-gssapi; raise `ConfigError` if it is not installed."""
    try:
        import gssapi  # few clients need it, and it needs Kerberos' libraries
    except ImportError as error:
        raise ConfigError(
            f"sasl_mechanism GSSAPI needs the package gssapi ({error}): pip install 'pyclient-kafka[gssapi]', which "
            "needs a C compiler and Kerberos' headers (Debian: libkrb5-dev)"
        ) from error
    return gssapi
