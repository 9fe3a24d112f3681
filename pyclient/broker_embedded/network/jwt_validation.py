"""Validate a token: its signature, times, issuer and audience. No I/O."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient.errors import ConfigError

try:
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet
except ImportError as error:
    raise ConfigError(
        f"SASL OAUTHBEARER on the embedded broker needs the package joserfc, 1.8 or newer ({error}): "
        "pip install 'pyclient-kafka[security]'"
    ) from error

if TYPE_CHECKING:
    from pyclient.broker_embedded.config.listeners import ListenerConfig

log = logging.getLogger("pyclient.broker_embedded")

LONGEST: Final = 32 * 1024
"""Characters of a token; the frame of an unknown client has at most twice as many bytes."""
_LONGEST_HEADER: Final = 8 * 1024  # certificates may be in it
_LONGEST_SIGNATURE: Final = 2 * 1024
_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519"),
)
"""Algorithms that sign with a private key. `none` and HMAC would accept tokens made from public data alone."""


_KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The type of key by the first letters of an algorithm."""
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "Ed25519": "Ed25519"}


class InvalidToken(Exception):
    """The token is refused; the text says why, without the token."""


class UnknownKey(InvalidToken):
    """No key of the set is the one that the token names or needs; a newer set may have it."""


class Accepted(NamedTuple):
    """The user of a token, and when the token ends, in seconds since 1970."""

    user: str
    until: float


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The requirements on a token besides its signature. `skew` is how far clocks may differ, in seconds.

    Without `issuer`, and with an empty `audience`, any is accepted.
    """

    audience: frozenset[str]
    issuer: str | None
    scope_claim: str
    sub_claim: str
    skew: float

    @classmethod
    def of(cls, listener: ListenerConfig) -> TokenRules:
        """Return the rules that a listener's options describe."""

        def text(name: str) -> str:
            return str(listener.of_mechanism("OAUTHBEARER", f"sasl.oauthbearer.{name}") or "")

        audience = frozenset(each.strip() for each in text("expected.audience").split(",") if each.strip())
        return cls(
            audience,
            text("expected.issuer") or None,
            text("scope.claim.name"),
            text("sub.claim.name"),
            float(text("clock.skew.seconds")),
        )


def key_set_of(content: bytes) -> KeySet:
    """Return the keys of a JWKS document. Raise `ValueError` if there are none, without the content.

    Keys of kinds that are not known are left out: one for another purpose must not end all logins.
    """
    try:
        given = json.loads(content)["keys"]
        found = [key for each in given for key in _keys_of(each)]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"it is no JSON Web Key Set ({type(error).__name__})") from None
    if not found:
        raise ValueError("it is no JSON Web Key Set with keys that can be used")
    return KeySet(found)


def _keys_of(given: Any) -> list[Any]:
    """Return the key that a JWK describes, in a list; none if the library does not understand it."""
    try:
        return list(KeySet.import_key_set({"keys": [given]}).keys)
    except Exception as error:  # the library's own kinds, and KeyError and others for parts that it does not know
        log.debug("a key of a JSON Web Key Set is left out: it cannot be used (%s)", type(error).__name__)
        return []


def accept(token: str, keys: KeySet, rules: TokenRules, now: float) -> Accepted:
    """Return the user of a token that is valid at `now` (seconds since 1970). Raise `InvalidToken`, or `UnknownKey`."""
    claims = _signed_claims(token, keys)
    until = _time(claims, "exp")
    _time(claims, "iat")
    if now - rules.skew >= until:
        raise InvalidToken(f"it expired {now - until:.0f} s ago")
    if "nbf" in claims and (begins := _time(claims, "nbf")) > now + rules.skew:
        raise InvalidToken(f"it is not valid before {begins - now:.0f} s from now")
    _check_origin(claims, rules)
    user = claims.get(rules.sub_claim)
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"its claim {rules.sub_claim!r}, the user, is missing or no text")
    scope = claims.get(rules.scope_claim, "")
    if not isinstance(scope, str) and not (isinstance(scope, list) and all(isinstance(each, str) for each in scope)):
        raise InvalidToken(f"its claim {rules.scope_claim!r} is neither a text nor a list of texts")
    return Accepted(user, until)


def _signed_claims(token: str, keys: KeySet) -> dict[str, Any]:
    """Return the claims of a token. Raise `InvalidToken` unless its signature is valid."""
    if len(token) > LONGEST:
        raise InvalidToken(f"it has {len(token)} characters, more than {LONGEST}")
    registry = jws.JWSRegistry(algorithms=_ALGORITHMS, strict_check_header=False)
    registry.max_header_length, registry.max_payload_length = _LONGEST_HEADER, LONGEST
    registry.max_signature_length = _LONGEST_SIGNATURE
    try:
        found = jws.deserialize_compact(token, lambda given: _key_for(given.headers(), keys), registry=registry)
        claims = json.loads(found.payload)
    except InvalidToken:
        raise
    except JoseError as error:
        raise InvalidToken(f"its signature cannot be verified ({error.error or type(error).__name__})") from None
    except Exception as error:  # of the library, for bytes of a client
        raise InvalidToken(f"it cannot be read ({type(error).__name__})") from None
    if not isinstance(claims, dict):
        raise InvalidToken("its claims are no JSON object")
    signature = token.rpartition(".")[2]
    if base64.urlsafe_b64encode(base64.urlsafe_b64decode(signature + "==")).decode().rstrip("=") != signature:
        raise InvalidToken("its signature has unused bits that are not zero")  # a second text of the same signature
    return claims


def _key_for(header: Mapping[str, Any], keys: KeySet) -> Any:
    """Return the key that Kafka takes for a token with that header. Raise `UnknownKey` if there is none.

    Id, if the header has one, type and use must be right. Where several are, those for the algorithm and its curve are
    preferred, and the first is taken: a token of another one needs the id.
    """
    name, algorithm = header.get("kid"), str(header["alg"])
    found = [
        key
        for key in keys
        if name in (None, key.kid)
        and key.key_type == _KEY_TYPES[algorithm[:2]]
        and key.get("use") in (None, "sig")
        and "verify" in (key.get("key_ops") or ("verify",))
    ]
    for part, wanted in (("alg", algorithm), ("crv", _CURVES.get(algorithm))):
        if len(found) > 1:
            found = [key for key in found if key.get(part) in (None, wanted)]
    if not found:
        what = f"is for {algorithm}" if name is None else "has the id that its header names"
        raise UnknownKey(f"no known key {what}")
    return found[0]


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise InvalidToken(f"its claim {name!r}, a time, is missing or no number")
    if not 0 <= value < 1e12:
        raise InvalidToken(f"its claim {name!r} is no time in seconds since 1970")
    return float(value)


def _check_origin(claims: dict[str, Any], rules: TokenRules) -> None:
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken(f"its issuer is {claims.get('iss')!r:.200}, not {rules.issuer!r}")
    if rules.audience:
        given = claims.get("aud")
        named = given if isinstance(given, list) else [given]
        if not any(isinstance(each, str) and each in rules.audience for each in named):
            raise InvalidToken(f"its audience is {given!r:.200}, not one of {sorted(rules.audience)}")
