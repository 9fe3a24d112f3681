"""Validation of tokens: signatures, times, issuer, audience, user, and tokens that were changed."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OKPKey, RSAKey

from pyclient.broker_embedded.network.jwt_validation import (
    LONGEST,
    InvalidToken,
    TokenRules,
    UnknownKey,
    accept,
    key_set_of,
)
from tests.identity_server import ISSUER, Signer, claims_of, encoded

NOW: Final = time.time()
"""The time of all tests: they may run long after the claims and the token were made."""
RULES: Final = TokenRules(frozenset({"kafka", "other"}), ISSUER, "scope", "sub", 30.0)
SIGNER: Final = Signer()
TOKEN: Final = SIGNER.token()
RSA: Final = RSAKey.generate_key(2048)


def keys_of(*signers: Signer) -> Any:
    return key_set_of(json.dumps({"keys": [each.public for each in signers]}).encode())


KEYS: Final = keys_of(SIGNER)


def refused(token: str, rules: TokenRules = RULES, keys: Any = KEYS, now: float | None = None) -> str:
    with pytest.raises(InvalidToken) as caught:
        accept(token, keys, rules, NOW if now is None else now)
    return str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("RS256", RSA),
        ("PS512", RSA),
        ("ES256", ECKey.generate_key("P-256")),
        ("ES384", ECKey.generate_key("P-384")),
        ("Ed25519", OKPKey.generate_key("Ed25519")),
    ],
)
def test_token_is_accepted_by_each_algorithm(algorithm: str, key: Any) -> None:
    signer = Signer(key, "k", algorithm)
    accepted = accept(signer.token("bob", exp=int(NOW) + 600), keys_of(SIGNER, signer), RULES, NOW)
    assert accepted == ("bob", int(NOW) + 600)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["x", "other"]},
        {"scope": ["read", "write"]},
        {"scope": "read write"},
        {"nbf": int(NOW) + 20},
        {"exp": NOW - 20},
        {"unknown": {"a": [None]}},
    ],
)
def test_claims_that_are_accepted(changes: dict[str, Any]) -> None:
    assert accept(SIGNER.token(**changes), KEYS, RULES, NOW).user == "alice"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"exp": NOW - 40}, "it expired"),
        ({"exp": None}, "'exp', a time, is missing"),
        ({"exp": "soon"}, "'exp', a time, is missing or no number"),
        ({"exp": True}, "'exp', a time, is missing or no number"),
        ({"exp": 1e300}, "no time in seconds"),
        ({"exp": 10**400}, "no time in seconds"),
        ({"exp": float("inf")}, "no time in seconds"),
        ({"exp": -1}, "no time in seconds"),
        ({"exp": float("nan")}, "'exp', a time, is missing or no number"),
        ({"iat": None}, "'iat', a time, is missing"),
        ({"nbf": NOW + 100}, "it is not valid before"),
        ({"nbf": "now"}, "'nbf', a time, is missing or no number"),
        ({"aud": None}, "its audience is None"),
        ({"aud": "others"}, "its audience is 'others'"),
        ({"aud": [["kafka"]]}, "its audience is"),
        ({"iss": None}, "its issuer is None"),
        ({"iss": ISSUER + "/"}, "its issuer is"),
        ({"sub": None}, "'sub', the user, is missing"),
        ({"sub": " "}, "'sub', the user, is missing"),
        ({"sub": ["alice"]}, "'sub', the user, is missing"),
        ({"scope": 7}, "'scope' is neither"),
        ({"scope": ["a", 7]}, "'scope' is neither"),
    ],
)
def test_claims_that_are_refused(changes: dict[str, Any], says: str) -> None:
    assert says in refused(SIGNER.token(**changes))


def test_other_claim_may_name_the_user() -> None:
    rules = TokenRules(frozenset(), None, "scp", "client_id", 0.0)
    token = SIGNER.token(client_id="service", iss=None, aud=None, sub=None, scp="a")
    assert accept(token, KEYS, rules, NOW).user == "service"
    assert "'client_id', the user" in refused(TOKEN, rules)


def test_skew_moves_both_ends() -> None:
    strict = TokenRules(frozenset(), None, "scope", "sub", 0.0)
    now = int(NOW)
    token = SIGNER.token(nbf=now, exp=now + 10)
    assert accept(token, KEYS, strict, now).user == "alice"
    assert "it is not valid before" in refused(token, strict, now=now - 1)
    assert "it expired" in refused(token, strict, now=now + 10)
    assert accept(token, KEYS, RULES, now + 39).user == "alice"
    assert "it expired" in refused(token, now=now + 40)


def test_unsigned_token_is_refused() -> None:
    """Kafka's unsecured login sends such tokens."""
    for algorithm in ("none", "None", "NONE"):
        unsigned = f"{encoded({'alg': algorithm})}.{encoded(claims_of())}."
        assert "cannot be verified" in refused(unsigned)
        assert "cannot be verified" in refused(unsigned + TOKEN.rpartition(".")[2])


def test_hmac_with_the_public_key_is_refused() -> None:
    signer = Signer(RSA, "first", "RS256")
    signed = f"{encoded({'alg': 'HS256', 'kid': 'first'})}.{encoded(claims_of())}"
    for text in (RSA.as_pem(private=False), json.dumps(signer.public).encode()):
        forged = f"{signed}.{encoded(hmac.digest(text, signed.encode(), 'sha256'))}"
        assert "cannot be verified" in refused(forged, keys=keys_of(signer))


def test_another_key_is_refused_by_its_signature_or_its_id() -> None:
    assert "cannot be verified" in refused(Signer().token())
    with pytest.raises(UnknownKey):
        accept(Signer(kid="second").token(), KEYS, RULES, NOW)


def without_id(signer: Signer) -> str:
    return signer.sign(claims_of(), kid=None)


def set_of(*keys: tuple[Signer, dict[str, Any]]) -> Any:
    """Return a set of public keys with more members than they have."""
    documents = [{**signer.public, **members} for signer, members in keys]
    return key_set_of(json.dumps({"keys": documents}).encode())


FIRST_RSA, SECOND_RSA = (Signer(RSAKey.generate_key(2048), kid, "RS256") for kid in ("1", "2"))
PS512: Final = Signer(FIRST_RSA.key, "1", "PS512")
P384: Final = Signer(ECKey.generate_key("P-384"), "384", "ES384")
ED: Final = Signer(OKPKey.generate_key("Ed25519"), "ed", "Ed25519")


@pytest.mark.parametrize("signer", [FIRST_RSA, PS512, SIGNER, P384, ED], ids=lambda signer: signer.algorithm)
def test_token_without_id_is_verified_by_the_key_of_its_kind(signer: Signer) -> None:
    """As in Kafka, where jose4j chooses the key by its type, use, algorithm and curve."""
    for keys in ([FIRST_RSA, SIGNER, P384, ED], [ED, P384, SIGNER, FIRST_RSA]):
        assert accept(without_id(signer), keys_of(*keys), RULES, NOW).user == "alice"


@pytest.mark.parametrize(
    "others",
    [{"use": "enc"}, {"key_ops": ["encrypt"]}, {"alg": "RS512"}, {"use": "enc", "alg": "RS256"}],
    ids=["use", "operations", "algorithm", "use and algorithm"],
)
def test_token_without_id_is_not_verified_by_a_key_for_something_else(others: dict[str, Any]) -> None:
    keys = set_of((SECOND_RSA, others), (FIRST_RSA, {}))
    assert accept(without_id(FIRST_RSA), keys, RULES, NOW).user == "alice"


def test_token_without_id_is_verified_by_the_first_of_equal_keys() -> None:
    assert accept(without_id(FIRST_RSA), keys_of(FIRST_RSA, SECOND_RSA), RULES, NOW).user == "alice"
    assert "cannot be verified" in refused(without_id(SECOND_RSA), keys=keys_of(FIRST_RSA, SECOND_RSA))
    assert accept(SECOND_RSA.token(), keys_of(FIRST_RSA, SECOND_RSA), RULES, NOW).user == "alice"


def test_key_of_the_tokens_type_is_chosen_among_keys_with_one_id() -> None:
    elliptic = Signer(SIGNER.key, "1")
    for keys in (keys_of(FIRST_RSA, elliptic), keys_of(elliptic, FIRST_RSA)):
        for signer in (FIRST_RSA, elliptic):
            assert accept(signer.token(), keys, RULES, NOW).user == "alice"


@pytest.mark.parametrize(
    ("signer", "keys"),
    [
        (FIRST_RSA, keys_of(SIGNER, P384)),
        (FIRST_RSA, keys_of(SIGNER)),
        (FIRST_RSA, set_of((FIRST_RSA, {"use": "enc"}))),
        (FIRST_RSA, set_of((FIRST_RSA, {"alg": "RS512"}), (SECOND_RSA, {"alg": "PS256"}))),
    ],
    ids=["types", "type", "use", "algorithms"],
)
def test_token_without_id_and_without_a_key_of_its_kind_is_refused(signer: Signer, keys: Any) -> None:
    with pytest.raises(UnknownKey, match="no known key is for RS256"):
        accept(without_id(signer), keys, RULES, NOW)


def test_header_cannot_bring_its_own_key() -> None:
    other = Signer()
    for header in ({"jwk": other.public}, {"jku": "http://127.0.0.1:1/keys"}, {"x5c": ["AAAA"]}):
        assert "cannot be verified" in refused(other.sign(claims_of(), **header))
    critical = f"{encoded({'alg': 'ES256', 'kid': 'first', 'crit': ['x'], 'x': 1})}.{encoded(claims_of())}.AAAA"
    assert "unsupported_header" in refused(critical)


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[]", b"7", b"\xff", b"null", b"[" * 20_000, b'"' + b"a" * LONGEST + b'"'],
    ids=lambda payload: payload[:4],
)
def test_payload_that_is_no_object_of_claims_is_refused(payload: bytes) -> None:
    assert refused(SIGNER.sign(payload))


def test_huge_token_is_refused_before_it_is_read() -> None:
    assert f"more than {LONGEST}" in refused(SIGNER.token(padding="x" * LONGEST))
    assert f"more than {LONGEST}" in refused("." * (LONGEST + 1))
    assert refused(f"{encoded({'alg': 'ES256', 'kid': 'first', 'x': 'y' * 10_000})}.{encoded(claims_of())}.AAAA")


def test_every_truncation_is_refused() -> None:
    for length in range(len(TOKEN)):
        assert refused(TOKEN[:length])


def test_signature_has_one_text_only() -> None:
    """The last letter of a signature has unused bits, which decoders ignore."""
    head, _, signature = TOKEN.rpartition(".")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    raw = base64.urlsafe_b64decode(signature + "==")
    same = [letter for letter in letters if base64.urlsafe_b64decode(signature[:-1] + letter + "==") == raw]
    assert len(same) == 16
    accepted = [letter for letter in same if not _is_refused(f"{head}.{signature[:-1]}{letter}")]
    assert accepted == [signature[-1]]
    assert _is_refused(TOKEN + "=") and _is_refused(TOKEN + "==") and _is_refused(TOKEN + ".")


def _is_refused(token: str) -> bool:
    try:
        accept(token, KEYS, RULES, NOW)
    except InvalidToken:
        return True
    return False


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(TOKEN) - 1), st.integers(1, 255))
def test_any_changed_byte_is_refused(position: int, flip: int) -> None:
    changed = TOKEN[:position] + chr(ord(TOKEN[position]) ^ flip) + TOKEN[position + 1 :]
    assert _is_refused(changed)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_refused(text: str) -> None:
    assert _is_refused(text)


def test_keys_of_unknown_kinds_are_left_out() -> None:
    unknown = [{"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"}, {"kty": "new"}, {"kty": "RSA"}, 7]
    keys = key_set_of(json.dumps({"keys": [*unknown, SIGNER.public]}).encode())
    assert accept(TOKEN, keys, RULES, NOW).user == "alice"


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"keys": []}', b'{"keys": 7}', b'{"keys": [7]}', b'{"keys": [{"kty": "EC"}]}', b"[" * 20_000],
    ids=lambda content: content[:20],
)
def test_document_without_keys_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="no JSON Web Key Set"):
        key_set_of(content)


def test_refusal_has_no_part_of_the_token() -> None:
    for token in (Signer().token(), SIGNER.token(exp=1), TOKEN[:-3]):
        said = refused(token)
        assert not any(part in said for part in token.split("."))
