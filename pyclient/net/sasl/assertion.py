"""Assertions (RFC 7521, RFC 7523): JWTs by which an identity server knows a client, in place of a secret."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pyclient.config.assertion import FILE, KEY_FILE, KEY_PEM, PASSPHRASE, TEMPLATE_FILE, AssertionSettings
from pyclient.errors import ConfigError
from pyclient.net.sasl.oauth import TokenFailure, end_of_jwt

_LONGEST: Final = 1 << 20
_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_ID_BYTES: Final = 16


class Template(NamedTuple):
    """A template: additions to the header and to the claims of assertions."""

    header: Mapping[str, Any] = {}
    payload: Mapping[str, Any] = {}


class AssertionSource:
    """Supplies an assertion for each request: a ready one from its file, or claims that a private key signs.

    Files are read for each assertion: other programs may replace them.
    """

    def __init__(self, settings: AssertionSettings) -> None:
        """Raise `ConfigError` if assertions are to be signed and the package that signs is missing."""
        self._settings = settings
        self._signer = None if settings.file is not None else _Signer(settings)

    def get(self, now: float) -> str:
        """Return an assertion; `now` is in seconds since 1970. Blocks while files are read.

        Raise `TokenFailure`, a `lasting` one for a key or a template that cannot be used.
        """
        if self._signer is not None:
            return self._signer.sign(now)
        assert self._settings.file is not None
        return _ready(self._settings.file, now)


def _ready(path: str, now: float) -> str:
    """Return the assertion in a file. No failure lasts: another program writes the file."""
    text = _content(FILE, path, lasting=False).decode("ascii", "replace").strip()
    if not _JWT.fullmatch(text):
        raise TokenFailure(f"{FILE}={path!r} has no assertion: it is a JWT, three parts with dots between them")
    until = end_of_jwt(text)
    if until is not None and until <= now:
        raise TokenFailure(f"the assertion in {FILE}={path!r} ended {now - until:.0f} s ago: replace it")
    return text


class _Signer:
    """Signs the claims of assertions with a private key."""

    def __init__(self, settings: AssertionSettings) -> None:
        try:
            from joserfc import jwk, jws  # clients with a secret or a token do without it
        except ImportError as error:
            name = KEY_FILE if settings.key_file is not None else KEY_PEM
            raise ConfigError(
                f"{name} needs the package joserfc, 1.8 or newer ({error}): pip install 'pyclient-kafka[security]'"
            ) from error
        self._settings = settings
        self._serialize = jws.serialize_compact
        self._registry = jws.JWSRegistry(algorithms=[settings.algorithm], strict_check_header=False)
        self._kind: Any = jwk.RSAKey if settings.algorithm == "RS256" else jwk.ECKey

    def sign(self, now: float) -> str:
        settings = self._settings
        template = Template() if settings.template_file is None else _template(settings.template_file)
        key = self._key()
        claims = claims_at(settings, template, int(now), secrets.token_urlsafe(_ID_BYTES))
        try:
            return str(self._serialize(header_of(settings, template), json.dumps(claims), key, registry=self._registry))
        except Exception as error:  # of the library: a curve, or a value of the template's header, that it refuses
            text = f"no assertion can be signed by {settings.algorithm} with {self._key_name} ({_reason(error)})"
            raise TokenFailure(text, lasting=True) from None

    @property
    def _key_name(self) -> str:
        path = self._settings.key_file
        return KEY_PEM if path is None else f"{KEY_FILE}={path!r}"

    def _key(self) -> Any:
        settings, name = self._settings, self._key_name
        pem = (settings.key_pem or "").encode() if settings.key_file is None else _content(KEY_FILE, settings.key_file)
        kind = "an RSA" if settings.algorithm == "RS256" else "an elliptic curve"
        wanted = f"{settings.algorithm} needs {kind} private key as PEM"
        try:
            key = self._kind.import_key(pem, password=settings.passphrase)
        except TypeError:  # cryptography's, if there is a passphrase for a key without one, or none for one with it
            if settings.passphrase is None:
                text = f"{name} is encrypted: give {PASSPHRASE}"
            else:
                text = f"{name} is not encrypted: drop {PASSPHRASE}"
            raise TokenFailure(text, lasting=True) from None
        except Exception as error:  # of either library, for any content
            hint = "" if settings.passphrase is None else f", and {PASSPHRASE} must be that of the key"
            raise TokenFailure(f"{name} cannot be used ({_reason(error)}): {wanted}{hint}", lasting=True) from None
        if not key.is_private:
            raise TokenFailure(f"{name} is a public key: {wanted}", lasting=True)
        return key


def header_of(settings: AssertionSettings, template: Template) -> dict[str, Any]:
    """Return the header of an assertion."""
    return {**template.header, "alg": settings.algorithm, "typ": "JWT"}


def claims_at(settings: AssertionSettings, template: Template, now: int, unique: str) -> dict[str, Any]:
    """Return the claims of an assertion that is made at `now` (seconds since 1970); `unique` is its id, if it has one.

    A template's claims replace those of options, as Kafka's do; the times are always those of options.
    """
    times = {"iat": now, "exp": now + settings.seconds, "nbf": now - settings.early}
    return {**settings.claims, **template.payload, **times, **({"jti": unique} if settings.has_id else {})}


def _template(path: str) -> Template:
    try:
        found = json.loads(_content(TEMPLATE_FILE, path))
        parts = [found.get(name, {}) for name in ("header", "payload")]
    except (ValueError, AttributeError, RecursionError):
        parts = [None]
    if not all(isinstance(part, dict) for part in parts):
        raise TokenFailure(
            f'{TEMPLATE_FILE}={path!r} is no template: it is a JSON object, {{"header": {{...}}, "payload": {{...}}}}',
            lasting=True,
        )
    return Template(*parts)


def _content(option: str, path: str, *, lasting: bool = True) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_LONGEST + 1)
    except OSError as error:
        text = f"{option}={path!r} cannot be read: {error.strerror or type(error).__name__}"
        raise TokenFailure(text, lasting=lasting) from None
    if len(content) > _LONGEST:
        raise TokenFailure(f"{option}={path!r} has more than {_LONGEST} bytes", lasting=lasting)
    return content


def _reason(error: Exception) -> str:
    """Return the kind of an error, whose text may quote what was read."""
    return str(getattr(error, "error", "") or type(error).__name__)
