"""GSSAPI without a KDC: brokers that break the protocol, errors that no test can cause, a library that is missing.

What a KDC and a broker do is tested with real ones, in tests/kafka/test_gssapi.py.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace
from typing import Any, Final

import pytest

from pyclient import Producer
from pyclient.config.kerberos import KerberosSettings
from pyclient.errors import ConfigError, MalformedMessage
from pyclient.net.sasl.exchanges import GssapiExchange
from pyclient.net.sasl.kerberos import KerberosFailure, KerberosLogin, failure_of

NO_CREDENTIALS, EXPIRED, FAILURE = 7 << 16, 11 << 16, 13 << 16
KERBEROS: Final = 2**32 - 1_765_328_384
OPTIONS: Final[dict[str, Any]] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


class Context:
    """A context that signs by writing `signed:` before a message, and is complete after `tokens`."""

    def __init__(self, *tokens: bytes, is_mutual: bool = True) -> None:
        self.tokens = list(tokens)
        self.is_mutual = is_mutual
        self.seen: list[bytes | None] = []

    @property
    def complete(self) -> bool:
        return not self.tokens

    def step(self, token: bytes | None) -> bytes:
        self.seen.append(token)
        return self.tokens.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"signed:" + message

    def unwrap(self, message: bytes) -> bytes:
        return message.removeprefix(b"signed:")


def test_exchange_sends_tokens_then_chooses_no_layer() -> None:
    context = Context(b"second", b"")
    exchange = GssapiExchange(context, b"first")
    assert exchange.first() == b"first"
    assert exchange.next(b"a") == b"second"
    assert exchange.next(b"b") == b""
    assert context.seen == [b"a", b"b"]
    assert exchange.next(b"signed:\x07\x00\xff\xff") == b"signed:\x01\x00\x00\x00"
    assert exchange.next(b"") is None


@pytest.mark.parametrize(
    ("context", "answers", "says"),
    [
        (Context(b""), [b""], "sent no token to prove its identity"),
        (Context(is_mutual=False), [b"signed:\x01\x00\x00\x00"], "did not prove its identity"),
        (Context(), [b"signed:\x06\x00\xff\xff"], "demands a security layer of GSSAPI"),
        (Context(), [b"signed:\x01\x00\x00"], "offer of security layers has 3 bytes, not 4"),
        (Context(), [b"signed:\x01\x00\x00\x00x"], "offer of security layers has 5 bytes, not 4"),
        (Context(), [b""], "offer of security layers has 0 bytes"),
        (Context(), [b"signed:\x01\x00\x00\x00", b"more"], "sent a GSSAPI message after its last one"),
    ],
)
def test_broker_that_breaks_the_exchange_is_refused(context: Context, answers: list[bytes], says: str) -> None:
    exchange = GssapiExchange(context, b"first")
    *before, last = answers
    for answer in before:
        exchange.next(answer)
    with pytest.raises(MalformedMessage, match=says):
        exchange.next(last)


def error_of(major: int, minor: int, text: str) -> Any:
    """Return an error as python-gssapi has them."""

    def statuses(code: int, is_major: bool) -> list[str]:
        return ["Unspecified GSS failure."] if is_major else [text]

    return SimpleNamespace(maj_code=major, min_code=minor, get_all_statuses=statuses)


@pytest.mark.parametrize(
    ("error", "says", "lasting"),
    [
        (error_of(FAILURE, KERBEROS + 37, "Clock skew too great"), "Clock skew too great: the clocks of this", True),
        (error_of(NO_CREDENTIALS, KERBEROS + 148, "KDC reply"), "KDC reply: the clocks of this machine, the KDC", True),
        (
            error_of(FAILURE, KERBEROS + 7, "Server a/b"),
            "Server a/b: the KDC has no such service: check sasl_kerb",
            True,
        ),
        (error_of(NO_CREDENTIALS, KERBEROS + 156, "Cannot"), "Cannot: check that the realm's KDC runs", False),
        (error_of(NO_CREDENTIALS, KERBEROS + 220, "Cannot"), "Cannot: check that the realm's KDC runs", False),
        (error_of(FAILURE, KERBEROS + 224, "No realm"), "No realm: check the realm in krb5.conf", True),
        (
            error_of(EXPIRED, 100_001, "Success"),
            "the ticket has expired: get one with `kinit alice@R` into the t",
            True,
        ),
        (error_of(FAILURE, KERBEROS + 32, "Ticket expired"), "the ticket has expired: get one with `kinit al", True),
        (error_of(NO_CREDENTIALS, 5, "No\ncache"), "there is no ticket (No cache): get one with `kinit alice@R`", True),
        (error_of(FAILURE, 99, "Other"), "Other", True),
        (error_of(FAILURE, 0, "unused"), "Unspecified GSS failure.", True),
    ],
)
def test_error_of_the_library_says_what_to_do(error: Any, says: str, lasting: bool) -> None:
    failure = failure_of(error, KerberosSettings(principal="alice@R"))
    assert str(failure).startswith(says)
    assert failure.lasting is lasting


def test_client_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'pyclient-kafka\[gssapi\]', which needs a C compiler"):
        Producer("localhost:9092", **OPTIONS)


class NeverError(Exception):
    """An error that is not raised."""


def test_library_that_does_not_answer_holds_up_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    library: Any = SimpleNamespace(
        exceptions=SimpleNamespace(GSSError=NeverError),
        MechType=SimpleNamespace(kerberos=None),
        Credentials=lambda **_: ended.wait(),
    )
    monkeypatch.setitem(sys.modules, "gssapi", library)
    login = KerberosLogin(KerberosSettings(), timeout=0.05)
    with pytest.raises(KerberosFailure, match=r"gave no answer within 0.05 s: check that the realm's KDC") as error:
        asyncio.run(login.prepare())
    ended.set()
    assert not error.value.lasting


def test_library_without_credential_stores_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise NotImplementedError("no stores")

    library: Any = SimpleNamespace(
        exceptions=SimpleNamespace(GSSError=NeverError), MechType=SimpleNamespace(kerberos=None), Credentials=refuse
    )
    monkeypatch.setitem(sys.modules, "gssapi", library)
    login = KerberosLogin(KerberosSettings(keytab="/k"), timeout=60)
    with pytest.raises(KerberosFailure, match="Kerberos' library cannot do this: no stores"):
        asyncio.run(login.prepare())
