"""Assertions by which a client is known to an identity server in place of a secret: their options together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from pyclient.config.client import ClientConfig

Algorithm = Literal["RS256", "ES256"]

FILE: Final = "sasl_oauthbearer_assertion_file"
KEY_FILE: Final = "sasl_oauthbearer_assertion_private_key_file"
KEY_PEM: Final = "sasl_oauthbearer_assertion_private_key_pem"
PASSPHRASE: Final = "sasl_oauthbearer_assertion_private_key_passphrase"
TEMPLATE_FILE: Final = "sasl_oauthbearer_assertion_template_file"
_CLAIM: Final = "sasl_oauthbearer_assertion_claim_"
_CLAIMS: Final = ("aud", "iss", "sub")

OPTIONS: Final = (FILE, KEY_FILE, KEY_PEM, PASSPHRASE, TEMPLATE_FILE, *(_CLAIM + claim for claim in _CLAIMS))
"""The options of assertions that have no value by default."""


@dataclass(frozen=True, slots=True)
class AssertionSettings:
    """The source of assertions: a `file` with a ready one, or a private key that signs `claims`.

    A signed one is valid from `early` seconds before it is made until `seconds` after that.
    """

    file: str | None = None
    key_file: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    template_file: str | None = None
    claims: Mapping[str, str] = field(default_factory=dict)
    algorithm: Algorithm = "RS256"
    seconds: int = 300
    early: int = 60
    has_id: bool = False


def checked_path(value: Any) -> str:
    """Return `value` if it can be the path of a file; otherwise raise `ValueError`."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError
    return value


def given_options(config: ClientConfig) -> list[str]:
    """Return the names of the options of assertions that are given."""
    return [name for name in OPTIONS if getattr(config, name) is not None]


def settings_of(config: ClientConfig) -> AssertionSettings | None:
    """Return what the options say; None if none is given."""
    if not given_options(config):
        return None
    claims = {claim: getattr(config, _CLAIM + claim) for claim in _CLAIMS}
    return AssertionSettings(
        config.sasl_oauthbearer_assertion_file,
        config.sasl_oauthbearer_assertion_private_key_file,
        config.sasl_oauthbearer_assertion_private_key_pem,
        config.sasl_oauthbearer_assertion_private_key_passphrase or None,
        config.sasl_oauthbearer_assertion_template_file,
        {claim: value for claim, value in claims.items() if value is not None},
        config.sasl_oauthbearer_assertion_algorithm,
        config.sasl_oauthbearer_assertion_claim_exp_seconds,
        config.sasl_oauthbearer_assertion_claim_nbf_seconds,
        config.sasl_oauthbearer_assertion_claim_jti_include,
    )


def conflicts(config: ClientConfig) -> Iterator[str]:
    """Yield one text for each invalid combination of the options of assertions."""
    given = given_options(config)
    if FILE in given:
        for name in given:
            if name != FILE:
                yield f"{name} is not used with {FILE}, which has a ready assertion: drop one"
    elif KEY_FILE not in given and KEY_PEM not in given:
        yield f"{given[0]} needs {KEY_FILE}, the key that signs the assertion"
    elif KEY_FILE in given and KEY_PEM in given:
        yield f"{KEY_FILE} and {KEY_PEM} are both given: drop one"
