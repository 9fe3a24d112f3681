"""The options common to all clients."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

from pyclient.config import kerberos, oidc
from pyclient.config.addresses import addresses
from pyclient.config.assertion import Algorithm, checked_path
from pyclient.config.fields import option, options_of, read
from pyclient.config.options import INT_MAX
from pyclient.config.sasl import BY_PASSWORD, SaslMechanism, checked_jaas, read_jaas, read_token_provider
from pyclient.config.urls import checked_url
from pyclient.errors import ConfigError

log = logging.getLogger("pyclient.config")

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

_LOGIN: Final = ("sasl_mechanism", "sasl_username", "sasl_password", "sasl_jaas_config")
_SASL: Final = (*_LOGIN, *kerberos.OPTIONS, *oidc.OPTIONS)
_STORES: Final = ("ssl_keystore_password", "ssl_truststore_password")
_CLIENT_ID_BYTES: Final = 32_767  # its length is a 16-bit integer on the wire


def _client_id(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    if len(value.encode()) > _CLIENT_ID_BYTES:  # encode() raises a `ValueError` for a lone surrogate
        raise ValueError(f"it has {len(value.encode())}")
    return value


def _without_nul(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    value.encode()  # raises a `ValueError` for a lone surrogate
    return value


def _store_type(value: Any) -> str:
    name = str(value).upper()
    if name == "JKS":
        raise ValueError("convert the store with keytool -importkeystore ... -deststoretype PKCS12")
    if name not in ("PEM", "PKCS12"):
        raise ValueError
    return name


def _ssl_context(value: Any) -> ssl.SSLContext:
    if not isinstance(value, ssl.SSLContext):
        raise ValueError
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The options common to all clients. Names, units and defaults are Kafka's, with `_` for `.`.

    Exceptions: `client_id` is "pyclient" and the socket buffers are the system's by default, the `ssl_` options have
    kafka-python's names, and `receive_message_max_bytes` is librdkafka's `receive.message.max.bytes`.
    """

    bootstrap_servers: tuple[str, ...] = option(
        (),
        doc="Addresses of some brokers, 'host:port,host:port' or a list; the client discovers the others.",
        convert=addresses,
        allowed="'host:port', several with commas or as a list",
        aliases=("metadata_broker_list",),
    )
    client_id: str = option(
        "pyclient",
        doc="The name of this client in the broker's logs and quotas.",
        convert=_client_id,
        allowed="a string of at most 32767 bytes in UTF-8",
    )
    request_timeout_ms: int = option(
        30_000,
        doc="How long one request may wait for its answer; then its connection is closed and it may be retried.",
        minimum=1,
        maximum=INT_MAX,
    )
    retry_backoff_ms: int = option(100, doc="How long to wait before the first retry; doubles each time.", minimum=0)
    retry_backoff_max_ms: int = option(
        1_000,
        doc="The longest wait before a retry; the only one if retry_backoff_ms is larger, as in Kafka.",
        minimum=0,
    )
    reconnect_backoff_ms: int = option(
        50, doc="How long to wait before connecting to a broker again; doubles each time it fails.", minimum=0
    )
    reconnect_backoff_max_ms: int = option(
        1_000,
        doc="The longest wait before connecting to a broker again; the only one if reconnect_backoff_ms is larger.",
        minimum=0,
    )
    socket_connection_setup_timeout_ms: int = option(
        10_000, doc="How long one attempt to connect may take: name lookup, TCP, TLS and version handshake.", minimum=1
    )
    connections_max_idle_ms: int = option(
        540_000, doc="Connections that are idle for this long are closed; -1 keeps them.", minimum=-1
    )
    metadata_max_age_ms: int = option(
        300_000,
        doc="The age of the cluster's metadata after which it is refreshed.",
        minimum=1,
        aliases=("topic_metadata_refresh_interval_ms",),
    )
    send_buffer_bytes: int = option(
        -1, doc="The socket's send buffer (SO_SNDBUF); -1 leaves it to the system.", minimum=-1, maximum=INT_MAX
    )
    receive_buffer_bytes: int = option(
        -1, doc="The socket's receive buffer (SO_RCVBUF); -1 leaves it to the system.", minimum=-1, maximum=INT_MAX
    )
    receive_message_max_bytes: int = option(
        100_000_000,
        doc="The largest response accepted; a larger one closes the connection before anything is allocated for it.",
        minimum=1_000,
        maximum=INT_MAX,
    )
    security_protocol: SecurityProtocol = option(
        "PLAINTEXT", doc="PLAINTEXT, or SSL for TLS; SASL_PLAINTEXT and SASL_SSL authenticate this client as well."
    )
    ssl_context: ssl.SSLContext | None = option(
        None,
        doc="A ready TLS context; the other ssl_ options may not be given together with it.",
        convert=_ssl_context,
        allowed="an ssl.SSLContext or None",
    )
    ssl_cafile: str | None = option(
        None,
        doc="PEM file with the authorities to trust; without it the system's own are trusted.",
        aliases=("ssl_ca_location", "ssl_truststore_location"),
    )
    ssl_certfile: str | None = option(
        None,
        doc="PEM file with this client's certificate chain.",
        aliases=("ssl_certificate_location", "ssl_keystore_location"),
    )
    ssl_keyfile: str | None = option(
        None, doc="PEM file with the certificate's private key.", aliases=("ssl_key_location",)
    )
    ssl_ca_pem: str | None = option(
        None,
        doc="The authorities to trust as a PEM text, in place of ssl_cafile.",
        aliases=("ssl_truststore_certificates",),
    )
    ssl_certificate_pem: str | None = option(
        None,
        doc="This client's certificate chain as a PEM text, in place of ssl_certfile.",
        aliases=("ssl_keystore_certificate_chain",),
        secret=True,  # the key may be in it
    )
    ssl_key_pem: str | None = option(
        None,
        doc="The certificate's private key as a PEM text, in place of ssl_keyfile.",
        aliases=("ssl_keystore_key",),
        secret=True,
    )
    ssl_password: str | None = option(
        None, doc="The private key's password.", aliases=("ssl_key_password",), secret=True
    )
    ssl_keystore_type: str | None = option(
        None,
        doc="PEM or PKCS12, for ssl_certfile; without it PKCS12 is recognised by its content.",
        convert=_store_type,
        allowed="PEM or PKCS12",
    )
    ssl_keystore_password: str | None = option(None, doc="The password of ssl_certfile if that is PKCS12.", secret=True)
    ssl_truststore_type: str | None = option(
        None,
        doc="PEM or PKCS12, for ssl_cafile; without it PKCS12 is recognised by its content.",
        convert=_store_type,
        allowed="PEM or PKCS12",
    )
    ssl_truststore_password: str | None = option(None, doc="The password of ssl_cafile if that is PKCS12.", secret=True)
    ssl_check_hostname: bool = option(
        True, doc="Whether the broker's certificate must name the host that was connected to."
    )
    sasl_mechanism: SaslMechanism | None = option(
        None,
        doc="How this client authenticates; needed with SASL_PLAINTEXT and SASL_SSL.",
        aliases=("sasl_mechanisms",),
    )
    sasl_username: str | None = option(
        None,
        doc="The user, for PLAIN and SCRAM.",
        aliases=("sasl_plain_username",),
        convert=_without_nul,
        allowed="a string without NUL",
    )
    sasl_password: str | None = option(
        None,
        doc="The user's password, for PLAIN and SCRAM.",
        aliases=("sasl_plain_password",),
        secret=True,
        convert=_without_nul,
        allowed="a string without NUL",
    )
    sasl_tokenauth: bool = option(
        False,
        doc="For SCRAM: log in by a delegation token (KIP-48). sasl_username is its id, sasl_password its HMAC "
        "in base64.",
    )
    sasl_jaas_config: str | None = option(
        None,
        doc="User and password as Java's clients have them: an entry for PlainLoginModule or ScramLoginModule; or "
        "clientId, clientSecret, scope and extensions of OAuthBearerLoginModule; or keyTab or ticketCache, principal "
        "and serviceName of Krb5LoginModule.",
        convert=checked_jaas,
        allowed="an entry of a JAAS configuration",
        secret=True,
    )
    sasl_kerberos_service_name: str | None = option(
        None,
        doc="For GSSAPI: the first part of the brokers' principals, SERVICE/HOST; kafka without it.",
        convert=kerberos.checked_name,
        allowed="a name without / and @",
    )
    sasl_kerberos_principal: str | None = option(
        None,
        doc="For GSSAPI: the principal that this client logs in as, like alice@EXAMPLE.COM. Without it, the keytab's "
        "first one, or that of the ticket cache.",
        convert=kerberos.checked_text,
        allowed="a string without NUL that is not empty",
    )
    sasl_kerberos_keytab: str | None = option(
        None,
        doc="For GSSAPI: the file with the principal's keys, which is read for each login that needs a new ticket. "
        "Without it tickets come from the ticket cache (KRB5CCNAME), which kinit fills.",
        convert=kerberos.checked_text,
        allowed="a string without NUL that is not empty",
    )
    sasl_oauth_token_provider: Callable[[], Any] | None = option(
        None,
        doc="For OAUTHBEARER: a function, synchronous or asynchronous, that returns a token, or (token, seconds since "
        "1970 at which it ends). It is called again ahead of the end. A synchronous one runs in a thread.",
        convert=read_token_provider,
        allowed="a callable, or an object with a method token()",
    )
    sasl_oauthbearer_method: Literal["default", "oidc"] | None = option(
        None,
        doc="librdkafka's choice: oidc for a token endpoint, default for a function. It may be left out.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None,
        doc="For OAUTHBEARER: the identity server's token endpoint (https:), or a file with a token (file:), which is "
        "read again when it changes.",
        convert=checked_url,
        allowed="an https:, http: or file: URL without a password",
    )
    sasl_oauthbearer_client_id: str | None = option(
        None,
        doc="The name of this client at the token endpoint (client credentials of OAuth 2.0).",
        aliases=("sasl_oauthbearer_client_credentials_client_id",),
        convert=_without_nul,
        allowed="a string without NUL",
    )
    sasl_oauthbearer_client_secret: str | None = option(
        None,
        doc="The secret of this client at the token endpoint.",
        aliases=("sasl_oauthbearer_client_credentials_client_secret",),
        secret=True,
        convert=_without_nul,
        allowed="a string without NUL",
    )
    sasl_oauthbearer_scope: str | None = option(None, doc="The scope to ask for at the token endpoint.")
    sasl_oauthbearer_extensions: str | None = option(
        None,
        doc="What is sent to the brokers with a token, such as logicalCluster=lkc-1,identityPoolId=pool-2.",
        convert=oidc.read_extensions,
        allowed="pairs of name=value with commas, names of letters",
    )
    sasl_oauthbearer_header_urlencode: bool = option(
        False,
        doc="Whether client id and secret are URL-encoded for the token endpoint, as in RFC 6749.",
    )
    sasl_oauthbearer_jwt_retriever_class: str | None = option(
        None,
        doc="How tokens are got at the token endpoint: JwtBearerJwtRetriever sends an assertion (the jwt-bearer grant, "
        "KIP-1139), ClientCredentialsJwtRetriever the client's id with a secret or an assertion (KIP-1258). "
        "DefaultJwtRetriever, as None, is FileJwtRetriever for a file: URL, else ClientCredentialsJwtRetriever.",
        convert=oidc.read_retriever,
        allowed="DefaultJwtRetriever, ClientCredentialsJwtRetriever, JwtBearerJwtRetriever or FileJwtRetriever, with "
        "or without Kafka's package",
    )
    sasl_oauthbearer_assertion_file: str | None = option(
        None,
        doc="File with a ready assertion, a JWT that another program replaces; it is read for each request.",
        convert=checked_path,
        allowed="the path of a file",
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = option(
        None,
        doc="PEM file with the private key that signs assertions; it is read for each request.",
        convert=checked_path,
        allowed="the path of a file",
    )
    sasl_oauthbearer_assertion_private_key_pem: str | None = option(
        None,
        doc="The private key as a PEM text, in place of sasl_oauthbearer_assertion_private_key_file.",
        secret=True,
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = option(
        None, doc="The passphrase of the private key that signs assertions, if it is encrypted.", secret=True
    )
    sasl_oauthbearer_assertion_algorithm: Algorithm = option(
        "RS256", doc="How assertions are signed: RS256 by an RSA key, ES256 by an elliptic curve key (P-256)."
    )
    sasl_oauthbearer_assertion_template_file: str | None = option(
        None,
        doc='JSON file with more of assertions, {"header": {"kid": ...}, "payload": {...}}; it is read for each '
        "request. Its claims replace those of options, but not exp, iat and nbf.",
        aliases=("sasl_oauthbearer_assertion_jwt_template_file",),
        convert=checked_path,
        allowed="the path of a file",
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = option(
        None, doc="The audience (aud) of assertions: often the token endpoint's URL."
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = option(
        None, doc="The issuer (iss) of assertions: often this client's id."
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = option(
        None, doc="The subject (sub) of assertions: often this client's id."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(
        300, doc="For how many seconds an assertion is valid (exp).", minimum=0, maximum=86_400
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = option(
        60, doc="How many seconds before it is made an assertion becomes valid (nbf).", minimum=0, maximum=3_600
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = option(
        False, doc="Whether each assertion has an id of its own (jti), so that a server can refuse a second use."
    )
    sasl_login_retry_backoff_ms: int = option(
        100, doc="How long to wait before the token endpoint is asked again; doubles each time it fails.", minimum=1
    )
    sasl_login_retry_backoff_max_ms: int = option(
        10_000, doc="The longest wait before the token endpoint is asked again.", minimum=1
    )
    sasl_login_connect_timeout_ms: int | None = option(
        None,
        doc="How long one attempt may take to connect to the token endpoint, TLS included. With or without it "
        "socket_connection_setup_timeout_ms bounds the time for a token, retries included.",
        minimum=1,
        maximum=INT_MAX,
    )
    sasl_login_read_timeout_ms: int | None = option(
        None, doc="How long the token endpoint may be silent in one attempt.", minimum=1, maximum=INT_MAX
    )
    sasl_login_refresh_window_factor: float = option(
        0.8, doc="The share of a token's time after which it is replaced.", minimum=0.5, maximum=1.0
    )
    sasl_login_refresh_window_jitter: float = option(
        0.05, doc="The largest share of a token's time that is added by chance to that.", minimum=0.0, maximum=0.25
    )
    sasl_login_refresh_min_period_seconds: int = option(
        60,
        doc="The least time for which a token is kept. Tokens of less time than this and "
        "sasl_login_refresh_buffer_seconds together are replaced by their share alone.",
        minimum=0,
        maximum=900,
    )
    sasl_login_refresh_buffer_seconds: int = option(
        300, doc="How long before its end a token is replaced at the latest.", minimum=0, maximum=3_600
    )
    https_ca_location: str | None = option(
        None, doc="PEM file with the authorities of the token endpoint; without it the system's own are trusted."
    )
    https_ca_pem: str | None = option(
        None, doc="The authorities of the token endpoint as a PEM text, in place of https_ca_location."
    )

    def __post_init__(self) -> None:
        """Check every option, a subclass's too; a subclass with its own `__post_init__` calls this one first.

        Raise one `ConfigError` with the problems of all single options, or else of their combination (`conflicts`).
        """
        problems: list[str] = []
        for name, declared in options_of(type(self)).items():
            try:
                object.__setattr__(self, name, read(declared, getattr(self, name)))
            except ConfigError as error:
                problems += error.problems
        problems = problems or list(self.conflicts())
        if problems:
            raise ConfigError(*problems)
        for kind in ("retry", "reconnect"):
            self._warn_of_constant_backoff(f"{kind}_backoff_ms", f"{kind}_backoff_max_ms")

    def _warn_of_constant_backoff(self, initial: str, maximum: str) -> None:
        """Log a warning if the initial backoff exceeds the maximum, which is then always used, as in Kafka."""
        given, limit = getattr(self, initial), getattr(self, maximum)
        if given > limit:
            log.warning(
                "%s=%d is more than %s=%d: every wait is %d ms, without growth", initial, given, maximum, limit, limit
            )

    def conflicts(self) -> Iterable[str]:
        """Yield one text for each invalid combination of options, naming them. A subclass may extend it."""
        if not self.bootstrap_servers:
            yield "bootstrap_servers is missing: give a broker's address, like bootstrap_servers='localhost:9092'"
        texts = {"ssl_cafile": "ssl_ca_pem", "ssl_certfile": "ssl_certificate_pem", "ssl_keyfile": "ssl_key_pem"}
        names = (*texts, *texts.values(), "ssl_password", *_STORES)
        files = [name for name in names if getattr(self, name) is not None]
        given = [*files, *(["ssl_context"] if self.ssl_context is not None else [])]
        if given and not self.uses_tls:
            yield self._without(given[0], "SASL_SSL" if self.uses_sasl else "SSL")
        if files and self.ssl_context is not None:
            yield f"ssl_context and {files[0]} are both given: load the file into the context, or drop one"
        for name, text in texts.items():
            if name in files and text in files:
                yield f"{name} and {text} are both given: drop one"
        key = next((name for name in ("ssl_keyfile", "ssl_key_pem") if name in files), None)
        if key is not None and self.ssl_certfile is None and self.ssl_certificate_pem is None:
            other = texts["ssl_certfile"] if key == "ssl_key_pem" else "ssl_certfile"
            yield f"{key} needs {other}, the certificate that the key belongs to"
        yield from self._sasl_conflicts()

    def _sasl_conflicts(self) -> Iterable[str]:
        names = [name for name in _SASL if getattr(self, name) is not None]
        if self.sasl_tokenauth:
            names.append("sasl_tokenauth")
        if not self.uses_sasl:
            if names:
                yield self._without(names[0], "SASL_SSL" if self.uses_tls else "SASL_PLAINTEXT")
            return
        mechanism = self.sasl_mechanism
        if mechanism not in (None, "GSSAPI"):
            for name in (name for name in kerberos.OPTIONS if name in names):
                yield f"{name} is not used by sasl_mechanism {mechanism}: drop it"
        if self.sasl_tokenauth and mechanism in ("PLAIN", "OAUTHBEARER", "GSSAPI"):
            yield f"sasl_tokenauth is not for {mechanism}: set sasl_mechanism to SCRAM-SHA-256 or SCRAM-SHA-512"
        if mechanism is None:
            yield f"sasl_mechanism is missing: {self.security_protocol} needs it, set it to one that the brokers offer"
        elif mechanism == "OAUTHBEARER":
            yield from oidc.conflicts(self)
        elif mechanism == "GSSAPI":
            yield from kerberos.conflicts(self, ("sasl_username", "sasl_password", *oidc.OPTIONS))
        else:
            yield from self._password_conflicts(mechanism)

    def _without(self, name: str, protocol: str) -> str:
        return f"{name} is given, but security_protocol is {self.security_protocol}: set security_protocol={protocol!r}"

    def _password_conflicts(self, mechanism: str) -> Iterable[str]:
        login = None if self.sasl_jaas_config is None else read_jaas(self.sasl_jaas_config)
        for name in (name for name in oidc.OPTIONS if getattr(self, name) is not None):
            yield f"{name} is not used by sasl_mechanism {mechanism}: drop it"
        if self.sasl_tokenauth and login is not None:
            yield 'sasl_jaas_config and sasl_tokenauth are both given: write tokenauth="true" in it'
        if login is None:
            for name in ("sasl_username", "sasl_password"):
                if not getattr(self, name):
                    yield f"sasl_mechanism {mechanism} needs {name}"
        elif self.sasl_username is not None or self.sasl_password is not None:
            yield "sasl_jaas_config and sasl_username or sasl_password are both given: drop one"
        elif mechanism not in login.mechanisms:
            yield f"sasl_jaas_config has the login module of {min(login.mechanisms)}, sasl_mechanism is {mechanism}"

    @property
    def uses_tls(self) -> bool:
        """Return True if connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Return True if this client authenticates itself by SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password of PLAIN and SCRAM; None if the mechanism needs none."""
        if not self.uses_sasl or self.sasl_mechanism not in BY_PASSWORD:
            return None
        if self.sasl_jaas_config is not None:
            entry = read_jaas(self.sasl_jaas_config)
            return entry.username, entry.password
        return self.sasl_username or "", self.sasl_password or ""

    @property
    def kerberos(self) -> kerberos.KerberosSettings | None:
        """The client's Kerberos settings; None unless its mechanism is GSSAPI."""
        return kerberos.settings_of(self)

    @property
    def refresh_rules(self) -> oidc.RefreshRules:
        """The rules for refreshing OAUTHBEARER tokens before they expire."""
        return oidc.RefreshRules(
            self.sasl_login_refresh_window_factor,
            self.sasl_login_refresh_window_jitter,
            self.sasl_login_refresh_min_period_seconds,
            self.sasl_login_refresh_buffer_seconds,
        )

    @property
    def logs_in_by_token(self) -> bool:
        """True if user and password are those of a delegation token."""
        if self.sasl_tokenauth or self.sasl_jaas_config is None:
            return self.sasl_tokenauth
        return read_jaas(self.sasl_jaas_config).by_token

    @property
    def oidc(self) -> oidc.OidcSettings | None:
        """The settings of the OAUTHBEARER token endpoint; None with a token function or another mechanism."""
        return oidc.settings_of(self)


class ClientOptions(TypedDict, total=False):
    """The keyword arguments common to all clients; `ClientConfig` documents them."""

    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    receive_message_max_bytes: int
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_ca_pem: str | None
    ssl_certificate_pem: str | None
    ssl_key_pem: str | None
    ssl_password: str | None
    ssl_keystore_type: str | None
    ssl_keystore_password: str | None
    ssl_truststore_type: str | None
    ssl_truststore_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_tokenauth: bool
    sasl_jaas_config: str | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab: str | None
    sasl_oauth_token_provider: Callable[[], Any] | None
    sasl_oauthbearer_method: Literal["default", "oidc"] | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_jwt_retriever_class: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_pem: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_algorithm: Algorithm
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    sasl_login_connect_timeout_ms: int | None
    sasl_login_read_timeout_ms: int | None
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    https_ca_location: str | None
    https_ca_pem: str | None
