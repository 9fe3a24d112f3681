"""The options of OAUTHBEARER together: how a client gets tokens from an identity server, or from a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyclient.config import assertion
from pyclient.config.assertion import AssertionSettings
from pyclient.config.sasl import read_jaas

if TYPE_CHECKING:
    from pyclient.config.client import ClientConfig

_URL: Final = "sasl_oauthbearer_token_endpoint_url"
_RETRIEVER: Final = "sasl_oauthbearer_jwt_retriever_class"
_ID: Final = "sasl_oauthbearer_client_id"
_SECRET: Final = "sasl_oauthbearer_client_secret"
_OF_SERVERS: Final = (
    _RETRIEVER,
    _ID,
    _SECRET,
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_extensions",
    *assertion.OPTIONS,
    "https_ca_location",
    "https_ca_pem",
)
_OF_FILES: Final = (_RETRIEVER, "sasl_oauthbearer_extensions", "sasl_jaas_config")

OPTIONS: Final = ("sasl_oauth_token_provider", "sasl_oauthbearer_method", _URL, *_OF_SERVERS)
"""The options that OAUTHBEARER alone uses, and that have no value by default."""

JWT_BEARER: Final = "JwtBearerJwtRetriever"
CLIENT_CREDENTIALS: Final = "ClientCredentialsJwtRetriever"
_FILE: Final = "FileJwtRetriever"
_BY_URL: Final = "DefaultJwtRetriever"
_RETRIEVERS: Final = {name.casefold(): name for name in (JWT_BEARER, CLIENT_CREDENTIALS, _FILE, _BY_URL)}
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_EXTENSION: Final = re.compile(r"([A-Za-z]+)=([\x21-\x2b\x2d-\x7e][\x20-\x2b\x2d-\x7e]*)")


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The source of tokens: the URL of a token endpoint, or of a file. Times are in seconds.

    An `assertion` takes the place of the secret, or with `by_jwt_bearer` is what a token is given for.
    """

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    encodes_header: bool = False
    ca_file: str | None = None
    ca_pem: str | None = field(default=None, repr=False)
    backoff: float = 0.1
    longest_backoff: float = 10.0
    assertion: AssertionSettings | None = None
    by_jwt_bearer: bool = False
    connect_timeout: float | None = None
    read_timeout: float | None = None

    @property
    def is_file(self) -> bool:
        """Return True if the token is in a file."""
        return urlsplit(self.url).scheme == "file"


@dataclass(frozen=True, slots=True)
class RefreshRules:
    """The rules for replacing a token ahead of its end: `sasl.login.refresh.*`. Times are in seconds."""

    factor: float = 0.8
    jitter: float = 0.05
    min_period: float = 60.0
    buffer: float = 300.0


def read_retriever(value: Any) -> str | None:
    """Return the name, without its package, of the class of Kafka that gets tokens.

    Return None for `DefaultJwtRetriever`, which chooses by the URL. Raise `ValueError` for any other class.
    """
    if not isinstance(value, str):
        raise ValueError
    name = value.strip()
    known = _RETRIEVERS.get(name.removeprefix(_PACKAGE).casefold())
    if known is None:
        raise ValueError
    return None if known == _BY_URL else known


def read_extensions(value: Any) -> str:
    """Return `value` if it is of pairs like `logicalCluster=lkc-1,identityPoolId=pool-2`; else raise `ValueError`."""
    if not isinstance(value, str) or not all(_EXTENSION.fullmatch(pair.strip()) for pair in value.split(",")):
        raise ValueError
    if "auth" in extensions_of(value):
        raise ValueError("no extension may be called auth")
    return value


def extensions_of(text: str | None) -> dict[str, str]:
    """Return the extensions in the option's text."""
    pairs = (pair.strip().partition("=") for pair in (text or "").split(",") if pair)
    return {name: value for name, _, value in pairs}


def settings_of(config: ClientConfig) -> OidcSettings | None:
    """Return what the options say; None if tokens come from a function, or OAUTHBEARER is not used."""
    url = config.sasl_oauthbearer_token_endpoint_url
    if not config.uses_sasl or config.sasl_mechanism != "OAUTHBEARER" or url is None:
        return None
    entry = None if config.sasl_jaas_config is None else read_jaas(config.sasl_jaas_config)
    return OidcSettings(
        url,
        config.sasl_oauthbearer_client_id or ("" if entry is None else entry.username),
        config.sasl_oauthbearer_client_secret or ("" if entry is None else entry.password),
        config.sasl_oauthbearer_scope or (None if entry is None else entry.scope),
        {**({} if entry is None else entry.extensions), **extensions_of(config.sasl_oauthbearer_extensions)},
        config.sasl_oauthbearer_header_urlencode,
        config.https_ca_location,
        config.https_ca_pem,
        config.sasl_login_retry_backoff_ms / 1000,
        config.sasl_login_retry_backoff_max_ms / 1000,
        assertion.settings_of(config),
        config.sasl_oauthbearer_jwt_retriever_class == JWT_BEARER,
        _seconds(config.sasl_login_connect_timeout_ms),
        _seconds(config.sasl_login_read_timeout_ms),
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def conflicts(config: ClientConfig) -> Iterator[str]:
    """Yield one text for each invalid combination of the options of OAUTHBEARER, which is the mechanism."""
    for name in ("sasl_username", "sasl_password"):
        if getattr(config, name) is not None:
            yield f"{name} is not used by sasl_mechanism OAUTHBEARER: drop it"
    given = [name for name in _OF_SERVERS if getattr(config, name) is not None]
    if config.sasl_jaas_config is not None:
        given.append("sasl_jaas_config")
    url = config.sasl_oauthbearer_token_endpoint_url
    if config.sasl_oauth_token_provider is not None:
        for name in (*([_URL] if url is not None else []), *given):
            yield f"sasl_oauth_token_provider and {name} are both given: drop one"
        if config.sasl_oauthbearer_method == "oidc":
            yield "sasl_oauthbearer_method is oidc, and sasl_oauth_token_provider is given: drop one"
    elif url is None:
        yield (
            f"sasl_mechanism OAUTHBEARER needs sasl_oauth_token_provider, a function that returns a token, or {_URL}, "
            "the https: URL of an identity server or the file: URL of a token"
        )
    else:
        yield from _of_url(config, url, given)


def _of_url(config: ClientConfig, url: str, given: list[str]) -> Iterator[str]:
    if config.sasl_oauthbearer_method == "default":
        yield f"sasl_oauthbearer_method is default, and {_URL} is given: set the method to oidc, or drop one"
    if config.sasl_jaas_config is not None and "OAUTHBEARER" not in read_jaas(config.sasl_jaas_config).mechanisms:
        yield "sasl_jaas_config has another login module than OAuthBearerLoginModule, sasl_mechanism is OAUTHBEARER"
        return
    is_file, retriever = urlsplit(url).scheme == "file", config.sasl_oauthbearer_jwt_retriever_class
    if retriever is not None and is_file != (retriever == _FILE):
        kind = "a file: URL" if is_file else "no file: URL"
        yield f"{_RETRIEVER} is {retriever}, and {_URL} is {kind}: change one, or drop {_RETRIEVER}"
    elif is_file:
        for name in given:
            if name not in _OF_FILES:
                yield f"{name} is not used with a token from a file ({_URL} is a file: URL): drop it"
    else:
        yield from _of_server(config)


def _of_server(config: ClientConfig) -> Iterator[str]:
    login = settings_of(config)
    assert login is not None
    if login.by_jwt_bearer:
        if login.client_id or login.client_secret:
            yield f"{_ID} and {_SECRET} are not used with {JWT_BEARER}, which sends an assertion alone: drop them"
        if login.assertion is None:
            yield f"{_RETRIEVER} {JWT_BEARER} needs {assertion.KEY_FILE}, or {assertion.FILE} with a ready assertion"
    elif login.assertion is not None:
        if login.client_secret:
            yield f"{_SECRET} and {assertion.given_options(config)[0]} are both given: drop one"
    elif not login.client_id or not login.client_secret:
        yield (
            f"{_URL} needs {_ID} and {_SECRET}, as the server knows them, or in place of the secret "
            f"{assertion.KEY_FILE} or {assertion.FILE}"
        )
    if login.assertion is not None:
        yield from assertion.conflicts(config)
    if config.https_ca_location is not None and config.https_ca_pem is not None:
        yield "https_ca_location and https_ca_pem are both given: drop one"
