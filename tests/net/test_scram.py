"""SCRAM: the example of RFC 7677, both sides against each other, and messages that a peer must not send."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.errors import MalformedMessage
from pyclient.net.sasl import scram
from pyclient.net.sasl.exchanges import ScramExchange

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

USERS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


def exchange(user: str = "user", password: str = "pencil", mechanism: str = "SCRAM-SHA-256") -> ScramExchange:
    return ScramExchange(mechanism, user, password, NONCE, scram.salted_password)


def test_example_of_rfc_7677() -> None:
    client = exchange()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.next(SERVER_FIRST) == CLIENT_FINAL
    assert client.next(SERVER_FINAL) is None


def serve(mechanism: str, password: str, first: bytes, salt: bytes, nonce: str) -> tuple[bytes, scram.ClientFirst]:
    """Return a server's first message, and the client's that it answers."""
    asked = scram.ClientFirst.decode(first)
    return scram.ServerFirst(asked.nonce + nonce, salt, 4096).encode(), asked


def finish(mechanism: str, password: str, salt: bytes, asked: scram.ClientFirst, answer: bytes, final: bytes) -> bytes:
    """Return a server's last message; an error in it for a wrong proof."""
    found = scram.ClientFinal.decode(final)
    keys = scram.keys_of(mechanism, scram.salted_password(mechanism, password, salt, 4096))
    signed = scram.auth_message(asked.bare, answer, found.without_proof)
    signature = scram.verify(mechanism, keys, found.proof, signed)
    return b"e=invalid-proof" if signature is None else scram.server_final(signature)


@settings(max_examples=30)
@given(st.sampled_from(sorted(scram.HASHES)), USERS, USERS, USERS, st.binary(min_size=1, max_size=30))
def test_both_sides_agree_exactly_on_the_right_password(
    mechanism: str, user: str, password: str, other: str, salt: bytes
) -> None:
    for stored in {password, other}:
        client = exchange(user, password, mechanism)
        answer, asked = serve(mechanism, stored, client.first(), salt, "x")
        assert asked.user == user
        final = client.next(answer)
        assert final is not None
        said = finish(mechanism, stored, salt, asked, answer, final)
        if stored == password:
            assert client.next(said) is None
        else:
            with pytest.raises(MalformedMessage, match="invalid-proof"):
                client.next(said)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (SERVER_FIRST.replace(NONCE.encode(), b"another"), "does not continue this client's"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), "does not continue this client's"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "asks for 4095 iterations"),
        (SERVER_FIRST.replace(b"4096", b"1000001"), "asks for 1000001 iterations"),
        (SERVER_FIRST.replace(b"4096", b"99999999999999999999"), "no number of iterations"),
        (SERVER_FIRST.replace(b"4096", b"-1"), "no number of iterations"),
        (SERVER_FIRST.replace(b"4096", "٤٠٩٦".encode()), "no number of iterations"),
        (b"m=x," + SERVER_FIRST, "demands an extension"),
        (b"e=other-error", "no nonce, salt and iterations"),
        (b"", "not of name=value pairs"),
        (b"\xff", "not UTF-8"),
        (SERVER_FIRST.replace(b"W22Z", b"!!!!"), "invalid base64"),
        (b"r" * 70_000, "has 70000 bytes"),
    ],
)
def test_first_message_of_a_server_is_checked(answer: bytes, says: str) -> None:
    client = exchange()
    client.first()
    with pytest.raises(MalformedMessage, match=says):
        client.next(answer)


@pytest.mark.parametrize("answer", [b"v=" + base64.b64encode(bytes(32)), b"v=", b"x=1", b"e=unknown-user", b""])
def test_server_that_does_not_know_the_password_is_refused(answer: bytes) -> None:
    client = exchange()
    client.first()
    client.next(SERVER_FIRST)
    with pytest.raises(MalformedMessage):
        client.next(answer)


def test_messages_after_the_last_one_are_refused() -> None:
    client = exchange()
    client.first()
    client.next(SERVER_FIRST)
    client.next(SERVER_FINAL)
    with pytest.raises(MalformedMessage, match="after its last one"):
        client.next(SERVER_FINAL)


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.text(alphabet="n,=rcpavie2CD3biws", max_size=40).map(str.encode))
def test_arbitrary_messages_raise_nothing_else(message: bytes) -> None:
    for decode in (scram.ClientFirst.decode, scram.ClientFinal.decode, scram.ServerFirst.decode, scram.signature_of):
        with contextlib.suppress(MalformedMessage):
            decode(message)


@pytest.mark.parametrize(
    "message",
    [b"y,,n=u,r=x", b"p=tls-unique,,n=u,r=x", b"n,a=other,n=u,r=x", b"n,,n=a=b,r=x", b"n,,n=u,r=", b"n,,r=x,n=u"],
)
def test_first_message_of_a_client_is_checked(message: bytes) -> None:
    with pytest.raises(MalformedMessage):
        scram.ClientFirst.decode(message)


def test_a_replayed_proof_is_refused_with_another_nonce() -> None:
    keys = scram.keys_of("SCRAM-SHA-256", scram.salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096))
    client = exchange()
    answer, asked = serve("SCRAM-SHA-256", "pencil", client.first(), b"salt", "first")
    final = scram.ClientFinal.decode(client.next(answer) or b"")
    again, _ = serve("SCRAM-SHA-256", "pencil", client.first(), b"salt", "second")
    signed = scram.auth_message(asked.bare, again, final.without_proof)
    assert scram.verify("SCRAM-SHA-256", keys, final.proof, signed) is None
    assert scram.verify("SCRAM-SHA-256", keys, b"", signed) is None
