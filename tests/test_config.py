import pickle
import random
import re
import typing
from dataclasses import dataclass

import pytest

from pyclient.admin.config import AdminConfig
from pyclient.backoff import Backoff
from pyclient.config import ClientConfig, ClientOptions, option, options_of, parse_address, resolve
from pyclient.config.assertion import AssertionSettings
from pyclient.config.fields import read
from pyclient.config.options import FOREIGN, REFUSED
from pyclient.config.unsupported import COMMON, OWN, UNSUPPORTED
from pyclient.consumer.config import ConsumerConfig
from pyclient.errors import ConfigError
from pyclient.producer.config import ProducerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleConfig(ClientConfig):
    linger_ms: float = option(5.0, doc="How long to wait.", minimum=0)
    batch_size: int = option(16_384, doc="Bytes.", minimum=0, maximum=2**31 - 1)
    acks: str | int = option("all", doc="Who must have it.", choices=("all", 0, 1))
    topics: tuple[str, ...] = option((), doc="Names.")
    enable: bool = option(True, doc="On or off.")
    token: str | None = option(None, doc="Secret.", secret=True)

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        if self.token is not None and not self.enable:
            raise ConfigError("token needs enable=True")


BASE = {"bootstrap_servers": "localhost:9092"}


def refused(options=None, config=None, cls=SampleConfig):
    with pytest.raises(ConfigError) as caught:
        resolve(cls, {**BASE, **(options or {})}, config)
    return str(caught.value)


def test_keywords_and_kafka_style_dictionary_are_equivalent():
    by_keyword = resolve(
        SampleConfig, {**BASE, "linger_ms": 7, "batch_size": 100, "enable": False, "topics": ["a", "b"]}
    )
    by_config = resolve(
        SampleConfig,
        {},
        {
            "bootstrap.servers": "localhost:9092",
            "linger.ms": "7",
            "batch_size": "100",
            "enable": "false",
            "topics": "a, b",
        },
    )
    assert by_keyword == by_config
    assert by_keyword.linger_ms == 7.0
    assert by_keyword.topics == ("a", "b")


def test_option_given_twice_is_refused_naming_both_places():
    text = refused({"linger_ms": 5}, {"linger.ms": "6"})
    assert "linger_ms is given twice" in text
    assert "'linger.ms'" in text
    assert "given twice" in refused(None, {"batch.size": 1, "batch_size": 2})


def test_unknown_option_names_nearest_known_one():
    assert refused({"linger_sm": 5}) == "unknown option linger_sm; did you mean linger_ms?"
    assert "did you mean batch_size?" in refused(None, {"batch.sise": 5})


def test_unknown_option_without_similar_name_lists_known_ones():
    text = refused({"zzzzqqqq": 5})
    assert "Sample takes: acks, batch_size, bootstrap_servers" in text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": -1}, "batch_size=-1 is not possible: it takes a whole number from 0 to"),
        ({"batch_size": 2**31}, "batch_size=2147483648"),
        ({"batch_size": 1.5}, "batch_size=1.5"),
        ({"batch_size": True}, "batch_size=True"),
        ({"batch_size": "many"}, "batch_size='many'"),
        ({"batch_size": [1]}, "batch_size=[1]"),
        ({"linger_ms": -0.5}, "it takes a number of at least 0"),
        ({"linger_ms": "nan"}, "linger_ms='nan'"),
        ({"linger_ms": "inf"}, "linger_ms='inf'"),
        ({"metadata_max_age_ms": 2**63}, "metadata_max_age_ms=9223372036854775808"),
        ({"request_timeout_ms": 2**31}, "it takes a whole number from 1 to 2147483647"),
        ({"send_buffer_bytes": 2**31}, "it takes a whole number from -1 to 2147483647"),
        ({"acks": 2}, "acks=2 is not possible: it takes all or 0 or 1"),
        ({"enable": "yes please"}, "it takes True or False"),
        ({"client_id": 5}, "client_id=5 is not possible: it takes a string"),
        ({"topics": "a", "client_id": b"x"}, "client_id=b'x'"),
        ({"client_id": "ä" * 16_384}, "it takes a string of at most 32767 bytes in UTF-8 (it has 32768)"),
        ({"client_id": "\ud800"}, "client_id='\\ud800'"),
        ({"security_protocol": "TLS"}, "security_protocol='TLS' is not possible: it takes PLAINTEXT or SSL"),
        (
            {"ssl_context": "x", "security_protocol": "SSL"},
            "ssl_context='x' is not possible: it takes an ssl.SSLContext",
        ),
    ],
)
def test_invalid_value_is_named_with_allowed_values(options, says):
    assert says in refused(options)


def test_choices_are_case_insensitive():
    assert resolve(SampleConfig, {**BASE, "security_protocol": "ssl"}).security_protocol == "SSL"
    assert resolve(SampleConfig, {**BASE, "acks": "ALL"}).acks == "all"


def test_none_as_keyword_means_default():
    config = resolve(SampleConfig, {**BASE, "linger_ms": None, "token": None})
    assert config.linger_ms == 5.0


def test_none_in_dictionary_is_refused_unless_option_allows_it():
    assert "linger_ms=None is not possible: it takes a number" in refused(None, {"linger.ms": None})
    assert "acks=None is not possible" in refused(None, {"acks": None})
    assert resolve(SampleConfig, BASE, {"token": None}).token is None


def test_secret_is_never_shown():
    config = resolve(SampleConfig, {**BASE, "token": "hunter2"})
    assert "hunter2" not in repr(config)
    assert "7777" not in refused({"token": 7777})


def test_unsupported_kafka_options_are_refused_with_advice():
    assert "of SASL, PLAIN, SCRAM and OAUTHBEARER" in refused(None, {"sasl.kerberos.keytab": "x"})
    assert "sasl_oauth_token_provider" in refused(None, {"sasl.oauthbearer.config": "x"})
    assert "it takes a whole number from 1" in refused(None, {"sasl.login.connect.timeout.ms": "0"})
    assert "it takes a number from 0.5 to 1" in refused(None, {"sasl.login.refresh.window.factor": "0.4"})
    assert "convert the store with keytool" in refused(None, {"ssl.truststore.type": "JKS"})


SCRAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
OAUTH_MODULE = f"{OAUTH_PACKAGE}.OAuthBearerLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
TOKEN_URL = "sasl_oauthbearer_token_endpoint_url"
OIDC = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    TOKEN_URL: "https://identity.test/token",
    "sasl_oauthbearer_client_id": "c",
    "sasl_oauthbearer_client_secret": "hunter2",
}
ASSERTION = "sasl_oauthbearer_assertion"
KEY_FILE = f"{ASSERTION}_private_key_file"
CLIENT_ID = "sasl_oauthbearer_client_id"
RETRIEVER = "sasl_oauthbearer_jwt_retriever_class"
JWT_BEARER = {RETRIEVER: "JwtBearerJwtRetriever"}
SIGNED = {
    **OIDC,
    "sasl_oauthbearer_client_secret": None,
    KEY_FILE: "key.pem",
    f"{ASSERTION}_private_key_passphrase": "hunter2",
}


@pytest.mark.parametrize(
    "given",
    [
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f'{SCRAM_MODULE} required username="u" password="p";'},
        {"sasl.mechanism": "scram-sha-512", "sasl.jaas.config": f"{SCRAM_MODULE} required password='p' username=u ;"},
        {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"},
        {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "u", "sasl_plain_password": "p"},
    ],
    ids=["Java", "Java, other quotes", "librdkafka", "kafka-python"],
)
def test_user_and_password_of_other_clients_configurations_are_understood(given):
    config = resolve(SampleConfig, BASE, {"security.protocol": "sasl_ssl", **given})
    assert config.login == ("u", "p")
    assert (config.uses_tls, config.uses_sasl, config.sasl_mechanism) == (True, True, "SCRAM-SHA-512")


@pytest.mark.parametrize(
    "given",
    [
        {
            "sasl.jaas.config": f"{OAUTH_MODULE} required clientId=c clientSecret=hunter2 scope='a b' extension_x=y;",
            "sasl.login.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
            ),
        },
        {
            "sasl.oauthbearer.client.credentials.client.id": "c",
            "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
            "sasl.oauthbearer.scope": "a b",
            "sasl.jaas.config": f"{OAUTH_MODULE} required extension_x=y ;",
        },
        {
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.client.id": "c",
            "sasl.oauthbearer.client.secret": "hunter2",
            "sasl.oauthbearer.scope": "a b",
            "sasl.oauthbearer.extensions": "x=y",
        },
    ],
    ids=["Java", "Java 4.1", "librdkafka"],
)
def test_client_credentials_of_other_clients_are_understood(given):
    options = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://identity.test/token"}
    config = resolve(SampleConfig, BASE, {"security.protocol": "SASL_SSL", **options, **given})
    found = config.oidc
    assert (found.url, found.client_id, found.client_secret) == ("https://identity.test/token", "c", "hunter2")
    assert (found.scope, found.extensions) == ("a b", {"x": "y"})
    assert "hunter2" not in repr((config, found))


@pytest.mark.parametrize(
    ("given", "by_jwt_bearer"),
    [
        (
            {
                "sasl.jaas.config": f"{OAUTH_MODULE} required ;",
                "sasl.oauthbearer.jwt.retriever.class": f"{OAUTH_PACKAGE}.JwtBearerJwtRetriever",
                "sasl.oauthbearer.assertion.template.file": "t.json",
            },
            True,
        ),
        ({"sasl.oauthbearer.assertion.template.file": "t.json"}, False),
        (
            {
                "sasl.oauthbearer.jwt.retriever.class": f"{OAUTH_PACKAGE}.DefaultJwtRetriever",
                "sasl.oauthbearer.assertion.template.file": "t.json",
            },
            False,
        ),
        (
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "sasl.oauthbearer.assertion.jwt.template.file": "t.json",
            },
            True,
        ),
        (
            {
                "sasl.oauthbearer.grant.type": "client_credentials",
                "sasl.oauthbearer.assertion.jwt.template.file": "t.json",
            },
            False,
        ),
    ],
    ids=["Java, jwt-bearer", "Java", "Java, default", "librdkafka, jwt-bearer", "librdkafka"],
)
def test_assertions_of_other_clients_are_understood(given, by_jwt_bearer):
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://identity.test/token",
        "sasl.oauthbearer.assertion.algorithm": "es256",
        "sasl.oauthbearer.assertion.private.key.file": "key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase": "hunter2",
        "sasl.oauthbearer.assertion.claim.aud": "a",
        "sasl.oauthbearer.assertion.claim.iss": "i",
        "sasl.oauthbearer.assertion.claim.sub": "s",
        "sasl.oauthbearer.assertion.claim.exp.seconds": "7",
        "sasl.oauthbearer.assertion.claim.nbf.seconds": "8",
        "sasl.oauthbearer.assertion.claim.jti.include": "true",
    }
    config = resolve(SampleConfig, BASE, {**options, **given})
    found = config.oidc
    assert found.by_jwt_bearer is by_jwt_bearer
    assert found.assertion == AssertionSettings(
        key_file="key.pem",
        passphrase="hunter2",
        template_file="t.json",
        claims={"aud": "a", "iss": "i", "sub": "s"},
        algorithm="ES256",
        seconds=7,
        early=8,
        has_id=True,
    )
    assert "hunter2" not in repr((config, found))


@pytest.mark.parametrize(
    ("options", "by_token"),
    [
        ({"sasl_username": "u", "sasl_password": "p"}, False),
        ({"sasl_username": "u", "sasl_password": "p", "sasl.tokenauth": "true"}, True),
        ({"sasl.jaas.config": f'{SCRAM_MODULE} required username="u" password="p" tokenauth="true";'}, True),
        ({"sasl.jaas.config": f"{SCRAM_MODULE} required username=u password=p tokenauth=false;"}, False),
    ],
)
def test_login_by_delegation_token_is_understood(options, by_token):
    config = resolve(SampleConfig, {**BASE, **SCRAM}, options)
    assert (config.login, config.logs_in_by_token) == (("u", "p"), by_token)


def test_quotes_in_a_jaas_configuration_may_be_escaped():
    entry = f'{SCRAM_MODULE} required\n  username="a\\"b"\n  password="c;\\\\d=e" ;'
    assert resolve(SampleConfig, {**BASE, **SCRAM, "sasl_jaas_config": entry}).login == ('a"b', "c;\\d=e")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism is missing: SASL_SSL needs it"),
        ({**SCRAM, "sasl_mechanism": "GSSAPI"}, "it takes PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512 or OAUTHBEARER"),
        (SCRAM, "sasl_mechanism SCRAM-SHA-512 needs sasl_username"),
        ({**SCRAM, "sasl_username": "u"}, "sasl_mechanism SCRAM-SHA-512 needs sasl_password"),
        (
            {"sasl_password": "p"},
            "sasl_password is given, but security_protocol is PLAINTEXT: set security_protocol='SASL_PLAIN",
        ),
        ({"sasl_username": "u", "security_protocol": "SSL"}, "set security_protocol='SASL_SSL'"),
        ({"ssl_cafile": "x", "security_protocol": "SASL_PLAINTEXT"}, "security_protocol is SASL_PLAINTEXT: set"),
        ({**SCRAM, "sasl_mechanism": "OAUTHBEARER"}, "needs sasl_oauth_token_provider"),
        ({**OIDC, "sasl_oauthbearer_client_secret": None}, "needs sasl_oauthbearer_client_id and sasl_oauthbearer_cl"),
        (
            {**OIDC, "sasl_oauthbearer_client_secret": None},
            "assertion_private_key_file or sasl_oauthbearer_assertion_f",
        ),
        ({**OIDC, f"{ASSERTION}_file": "f"}, f"client_secret and {ASSERTION}_file are both given: drop one"),
        (
            {**SIGNED, f"{ASSERTION}_file": "f"},
            f"{ASSERTION}_private_key_file is not used with {ASSERTION}_file, which has a ready assertion: drop one",
        ),
        ({**SIGNED, KEY_FILE: None}, f"{ASSERTION}_private_key_passphrase needs {KEY_FILE}, the key that signs the"),
        ({**SIGNED, f"{ASSERTION}_private_key_pem": "hunter2"}, f"{KEY_FILE} and {ASSERTION}_private_key_pem are both"),
        ({**SIGNED, KEY_FILE: ""}, f"{KEY_FILE}='' is not possible: it takes the path of a file"),
        ({**SIGNED, f"{ASSERTION}_algorithm": "HS256"}, "it takes RS256 or ES256"),
        ({**SIGNED, f"{ASSERTION}_claim_exp_seconds": 86_401}, "it takes a whole number from 0 to 86400"),
        ({**SIGNED, f"{ASSERTION}_claim_nbf_seconds": -1}, "it takes a whole number from 0 to 3600"),
        ({**SIGNED, TOKEN_URL: "file:///token"}, f"{KEY_FILE} is not used with a token from a file"),
        ({**SIGNED, "sasl_oauth_token_provider": str}, f"sasl_oauth_token_provider and {KEY_FILE} are both given"),
        ({**SIGNED, "sasl_mechanism": "PLAIN"}, f"{KEY_FILE} is not used by sasl_mechanism PLAIN: drop it"),
        (
            {**SIGNED, RETRIEVER: "JwtBearerJwtRetriever"},
            "client_secret are not used with JwtBearerJwtRetriever, which",
        ),
        (
            {**SIGNED, **dict.fromkeys([KEY_FILE, f"{ASSERTION}_private_key_passphrase", CLIENT_ID]), **JWT_BEARER},
            f"{RETRIEVER} JwtBearerJwtRetriever needs {KEY_FILE}, or {ASSERTION}_file with a ready assertion",
        ),
        (
            {**OIDC, RETRIEVER: "FileJwtRetriever"},
            f"{RETRIEVER} is FileJwtRetriever, and {TOKEN_URL} is no file: URL: change one, or drop {RETRIEVER}",
        ),
        ({**OIDC, TOKEN_URL: "file:///token", **JWT_BEARER}, f"{TOKEN_URL} is a file: URL: change one, or drop"),
        ({**OIDC, RETRIEVER: "com.test.MyRetriever"}, "it takes DefaultJwtRetriever, ClientCredentialsJwtRetriever, "),
        ({**OIDC, RETRIEVER: 7}, "it takes DefaultJwtRetriever"),
        ({**OIDC, "sasl_oauth_token_provider": str}, "sasl_oauthbearer_token_endpoint_url are both given"),
        ({**OIDC, "sasl_oauthbearer_method": "default"}, "sasl_oauthbearer_method is default"),
        ({**OIDC, "sasl_oauthbearer_method": "other"}, "it takes default or oidc"),
        ({**OIDC, TOKEN_URL: "file:///token"}, "sasl_oauthbearer_client_id is not used with a token from a file"),
        ({**OIDC, TOKEN_URL: "https://u:hunter2@i.test/token"}, "it has a user or a password"),
        ({**OIDC, TOKEN_URL: "i.test/token"}, "https:, http: or file: URL"),
        ({**OIDC, "sasl_mechanism": "PLAIN"}, "sasl_oauthbearer_client_id is not used by sasl_mechanism PLAIN"),
        ({**OIDC, "security_protocol": "SSL"}, "set security_protocol='SASL_SSL'"),
        ({**OIDC, "https_ca_pem": "a", "https_ca_location": "b"}, "https_ca_location and https_ca_pem are both given"),
        ({**OIDC, "sasl_oauthbearer_extensions": "a"}, "pairs of name=value"),
        ({**OIDC, "sasl_oauthbearer_extensions": "auth=x"}, "no extension may be called auth"),
        ({**OIDC, "sasl_jaas_config": f"{SCRAM_MODULE} required username=u password=hunter2;"}, "another login module"),
        (
            {**OIDC, "sasl_jaas_config": f"{OAUTH_MODULE} required clientId=a unsecuredLoginStringClaim_sub=hunter2;"},
            "the option unsecuredLoginStringClaim_sub of OAuthBearerLoginModule is not supported",
        ),
        (
            {**SCRAM, "sasl_mechanism": "OAUTHBEARER", "sasl_username": "u"},
            "sasl_username is not used by sasl_mechanism",
        ),
        ({**SCRAM, "sasl_username": "u", "sasl_password": "p", "sasl_oauth_token_provider": str}, "drop it"),
        ({**SCRAM, "sasl_oauth_token_provider": "token"}, "it takes a callable, or an object with a method token()"),
        ({**SCRAM, "sasl_username": "u\0v", "sasl_password": "p"}, "it takes a string without NUL"),
        ({**SCRAM, "sasl_jaas_config": f"{SCRAM_MODULE} required username=u;"}, "ScramLoginModule needs username and"),
        ({**SCRAM, "sasl_jaas_config": "hunter2"}, "it is not one entry like"),
        ({**SCRAM, "sasl_jaas_config": "com.sun.Krb5LoginModule required a=hunter2;"}, "not Krb5LoginModule"),
        (
            {**SCRAM, "sasl_jaas_config": f"{SCRAM_MODULE} required username=u password=hunter2 keyTab=true;"},
            "the option keyTab of ScramLoginModule is not supported",
        ),
        (
            {**SCRAM, "sasl_tokenauth": True, "sasl_jaas_config": f"{SCRAM_MODULE} required username=u password=p;"},
            "sasl_jaas_config and sasl_tokenauth are both given",
        ),
        (
            {**SCRAM, "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p", "sasl_tokenauth": True},
            "sasl_tokenauth is not for PLAIN",
        ),
        ({"sasl_tokenauth": True}, "sasl_tokenauth is given, but security_protocol is PLAINTEXT"),
        (
            {
                **SCRAM,
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f"{PLAIN_MODULE} required username=u password=p tokenauth=true;",
            },
            "the option tokenauth of PlainLoginModule is not supported",
        ),
        (
            {**SCRAM, "sasl_mechanism": "PLAIN", "sasl_jaas_config": f"{SCRAM_MODULE} required username=u password=p;"},
            "has the login module of SCRAM-SHA-256, sasl_mechanism is PLAIN",
        ),
        (
            {**SCRAM, "sasl_username": "u", "sasl_jaas_config": f"{SCRAM_MODULE} required username=u password=p;"},
            "both given",
        ),
    ],
)
def test_sasl_options_that_do_not_fit_are_named(options, says):
    text = refused(options)
    assert says in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "options",
    [
        {"sasl_username": "u", "sasl_password": "hunter2"},
        {"sasl_jaas_config": f'{SCRAM_MODULE} required username="u" password="hunter2";'},
    ],
)
def test_password_is_in_no_repr(options):
    config = resolve(SampleConfig, {**BASE, **SCRAM, **options})
    assert config.login == ("u", "hunter2")
    assert "hunter2" not in repr(config)


def test_other_clients_option_names_are_recognised():
    config = resolve(
        SampleConfig,
        {},
        {"metadata.broker.list": "a:1", "security.protocol": "SSL", "ssl.ca.location": "/ca.pem"},
    )
    assert config.bootstrap_servers == ("a:1",)
    assert config.ssl_cafile == "/ca.pem"


def test_bootstrap_servers_accept_string_or_list():
    assert resolve(ClientConfig, {"bootstrap_servers": "a:1, b:2,,a:1"}).bootstrap_servers == ("a:1", "b:2")
    assert resolve(ClientConfig, {"bootstrap_servers": ["a:9", "[::1]:3"]}).bootstrap_servers == ("a:9", "[::1]:3")


@pytest.mark.parametrize(
    "missing", [{}, {"bootstrap_servers": ""}, {"bootstrap_servers": []}, {"bootstrap_servers": None}]
)
def test_missing_bootstrap_servers_error_shows_example(missing):
    with pytest.raises(ConfigError, match=r"bootstrap_servers is missing.*localhost:9092"):
        resolve(ClientConfig, missing)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a:",
        "[::1]",
        "a:b",
        "a:0",
        "a:65536",
        "a:-1",
        ":9092",
        "a b:1",
        "::1:9092",
        "http://a:1/path",
        "user@a:1",
        "a:１",
        "[::1",
    ],
)
def test_invalid_address_is_refused(text):
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        resolve(ClientConfig, {"bootstrap_servers": text})


def test_addresses_that_are_not_strings_are_refused():
    for value in (5, [5], [("a", 1)], {"a": 1}):
        with pytest.raises(ConfigError, match="bootstrap_servers"):
            resolve(ClientConfig, {"bootstrap_servers": value})
    with pytest.raises(ConfigError, match=r"a dictionary of options is given as config=\{\.\.\.\}"):
        resolve(ClientConfig, {"bootstrap_servers": {"bootstrap.servers": "a:1"}})


def test_address_is_split_into_host_and_port():
    assert parse_address("PLAINTEXT://broker.example:19092") == ("broker.example", 19092)
    assert parse_address("[::1]:1") == ("::1", 1)


def test_tls_options_in_conflict_are_refused():
    assert "set security_protocol='SSL'" in refused({"ssl_cafile": "x"})
    assert "ssl_keyfile needs ssl_certfile" in refused({"ssl_keyfile": "x", "security_protocol": "SSL"})
    assert "ssl_key_pem needs ssl_certificate_pem" in refused({"ssl_key_pem": "x", "security_protocol": "SSL"})
    both = {"ssl_cafile": "x", "ssl_ca_pem": "y", "security_protocol": "SSL"}
    assert "ssl_cafile and ssl_ca_pem are both given: drop one" in refused(both)
    assert "hunter2" not in repr(ClientConfig(**BASE, ssl_certfile="x", ssl_key_pem="hunter2", security_protocol="SSL"))


def test_pem_options_of_java_and_librdkafka_are_understood():
    java = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "cert",
        "ssl.keystore.key": "key",
        "ssl.key.password": "p",
    }
    librdkafka = {"ssl.ca.pem": "ca", "ssl.certificate.pem": "cert", "ssl.key.pem": "key", "ssl.key.password": "p"}
    for given in (java, librdkafka):
        config = resolve(ClientConfig, BASE, {"security.protocol": "SSL", **given})
        texts = (config.ssl_ca_pem, config.ssl_certificate_pem, config.ssl_key_pem, config.ssl_password)
        assert texts == ("ca", "cert", "key", "p")
    files = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem", "ssl.keystore.location": "me.pem"}
    config = resolve(ClientConfig, BASE, {"security.protocol": "SSL", **files})
    assert (config.ssl_cafile, config.ssl_certfile) == ("ca.pem", "me.pem")


def test_subclass_checks_its_own_conflicts_on_typed_values():
    assert refused({"token": "x"}, {"enable": "false"}) == "token needs enable=True"


def test_config_built_directly_is_checked_too():
    with pytest.raises(ConfigError, match="request_timeout_ms=0"):
        ClientConfig(bootstrap_servers=("a:1",), request_timeout_ms=0)


def test_config_key_that_is_not_a_string_is_refused():
    with pytest.raises(ConfigError, match="option names are strings"):
        resolve(ClientConfig, BASE, {5: "x"})


def test_every_option_is_documented_and_its_default_is_valid():
    for name, spec in options_of(SampleConfig).items():
        assert spec.doc.endswith("."), name
        default = SampleConfig.__dataclass_fields__[name].default
        assert read(spec, default) == default


def test_typed_keywords_are_options_of_dataclass():
    fields = typing.get_type_hints(ClientConfig)
    fields.pop("bootstrap_servers")  # the first parameter of every client
    assert typing.get_type_hints(ClientOptions) == fields


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        (ProducerConfig, "queue.buffering.max.kbytes", "use buffer_memory, in bytes (1 KB is 1,024 of them)"),
        (ProducerConfig, "batch.num.messages", "batch_size"),
        (ProducerConfig, "compression.level", "compression_lz4_level"),
        (ProducerConfig, "dr_cb", "on_delivery"),
        (ProducerConfig, "max_batch_size", "use batch_size"),
        (ConsumerConfig, "queued.max.messages.kbytes", "use fetch_max_bytes, in bytes (1 KB is 1,024 of them)"),
        (ConsumerConfig, "consumer_timeout_ms", "poll(timeout=...)"),
        (ConsumerConfig, "enable.partition.eof", "lag()"),
        (ConsumerConfig, "rebalance_timeout_ms", "use max_poll_interval_ms"),
        (ConsumerConfig, "topics", "positional"),
        (AdminConfig, "socket.timeout.ms", "use request_timeout_ms"),
        (AdminConfig, "api_version", "agreed upon"),
    ],
)
def test_options_of_other_clients_are_refused_naming_equivalent(kind, name, said):
    with pytest.raises(ConfigError) as caught:
        resolve(kind, {"bootstrap_servers": "a:1"}, {name: "1"})
    assert str(caught.value).startswith(f"option {name} is another client's: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_advice_for_other_clients_options_names_existing_options(kind):
    known = options_of(kind)
    aliases = {alias for spec in known.values() for alias in spec.aliases}
    table = UNSUPPORTED[kind.__name__.removesuffix("Config").lower()]
    hints = {name: unsupported.reason for name, unsupported in table.items() if unsupported.support is FOREIGN}
    for name, hint in hints.items():
        assert name not in known and name not in aliases, name
        named = set(re.findall(r"\b(?:use|as|waits|by) ((?:[a-z]+_)+(?:ms|bytes|size|records|memory|commit))\b", hint))
        assert named <= known.keys() | {"batch_size"}, (name, hint)


def test_initial_backoff_above_maximum_is_capped_as_in_kafka_with_warning(caplog):
    config = resolve(SampleConfig, {"bootstrap_servers": "a:1", "retry_backoff_ms": 5000, "reconnect_backoff_ms": 50})
    assert [record.getMessage() for record in caplog.records] == [
        "retry_backoff_ms=5000 is more than retry_backoff_max_ms=1000: every wait is 1000 ms, without growth"
    ]
    rng = random.Random(1)
    backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, jitter=0)
    assert {backoff.delay(attempt, rng) for attempt in range(10)} == {1.0}


def test_config_that_is_not_a_dictionary_is_refused():
    with pytest.raises(ConfigError, match=r"config='linger.ms=5' is not possible: it takes a dictionary"):
        resolve(SampleConfig, {"bootstrap_servers": "a:1"}, "linger.ms=5")


KINDS = {"producer": ProducerConfig, "consumer": ConsumerConfig, "admin": AdminConfig}


@pytest.mark.parametrize(
    ("kinds", "given"),
    [
        (KINDS, {"socket.keepalive.enable": True}),
        (KINDS, {"socket.nagle.disable": "true"}),
        (KINDS, {"client.dns.lookup": "use_all_dns_ips"}),
        (KINDS, {"enable.metrics.push": False}),
        (KINDS, {"ssl.endpoint.identification.algorithm": "https"}),
        (KINDS, {"ssl.enabled.protocols": ["TLSv1.2", "TLSv1.3"]}),
        (KINDS, {"metadata.recovery.strategy": "rebootstrap"}),
        (KINDS, {"interceptor.classes": ""}),
        (KINDS, {"metric.reporters": []}),
        (KINDS, {"api.version.request": "true"}),
        (KINDS, {"sasl.login.read.timeout.ms": None}),
        (KINDS, {"sasl.login.refresh.window.factor": "0.8", "sasl.login.refresh.window.jitter": "0.05"}),
        (KINDS, {"sasl.login.refresh.min.period.seconds": "60", "sasl.login.refresh.buffer.seconds": "300"}),
        (["producer"], {"partitioner": "murmur2_random"}),
        (["producer"], {"enable.gapless.guarantee": "false"}),
        (["producer"], {"transactional.id": None}),
        (["producer"], {"value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer"}),
        (["consumer"], {"value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer"}),
        (["consumer"], {"enable.partition.eof": False}),
    ],
)
def test_option_value_equal_to_fixed_behaviour_is_accepted(kinds, given, caplog):
    for kind in kinds:
        assert resolve(KINDS[kind], BASE, given) == resolve(KINDS[kind], BASE)
    assert caplog.messages == []


def test_other_values_of_accepted_options_are_refused():
    for kind, table in UNSUPPORTED.items():
        for name in (name for name, unsupported in table.items() if unsupported.choices):
            with pytest.raises(ConfigError, match=f"option {name} is (not supported|another client's): "):
                resolve(KINDS[kind], BASE, {name: "something else"})


@pytest.mark.parametrize(("value", "checked"), [("https", True), ("HTTPS", True), ("", False), ("none", False)])
def test_endpoint_identification_algorithm_sets_ssl_check_hostname(value, checked):
    config = resolve(AdminConfig, BASE, {"ssl.endpoint.identification.algorithm": value})
    assert config.ssl_check_hostname is checked
    with pytest.raises(ConfigError, match="ssl_check_hostname is given twice"):
        resolve(AdminConfig, {**BASE, "ssl_check_hostname": True}, {"ssl.endpoint.identification.algorithm": value})


def test_every_problem_of_dictionary_is_reported_at_once():
    config = {
        "bootstrap.servers": "localhost",
        "linger.sm": 5,
        "batch.size": -1,
        "acks": "some",
        "sasl.kerberos.service.name": "kafka",
        "queue.buffering.max.kbytes": 100,
        "compression.type": "rar",
        "delivery.timeout.ms": 10,
        "retries": 0,
        "enable.idempotence": True,
        "ssl.cafile": "ca.pem",
        3: 4,
        "batch_size": 7,
    }
    with pytest.raises(ConfigError) as caught:
        resolve(ProducerConfig, {}, config)
    begins = [
        "config has the key 3",
        "bootstrap_servers='localhost' is not possible",
        "unknown option linger.sm; did you mean linger_ms?",
        "batch_size=-1 is not possible",
        "acks='some' is not possible",
        "option sasl.kerberos.service.name is not supported",
        "option queue.buffering.max.kbytes is another client's",
        "compression_type='rar' is not possible",
        "batch_size is given twice",
        "ssl_cafile is given, but security_protocol is PLAINTEXT",
        "enable_idempotence=True is not possible with retries=0",
        "delivery_timeout_ms=10 is not possible",
    ]
    for begin in begins:
        assert sum(problem.startswith(begin) for problem in caught.value.problems) == 1, begin
    assert len(caught.value.problems) == len(begins)
    assert str(caught.value) == "\n- ".join([f"{len(begins)} options are wrong:", *caught.value.problems])
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_conflict_with_invalid_option_is_not_reported():
    with pytest.raises(ConfigError) as caught:
        resolve(ProducerConfig, BASE, {"request.timeout.ms": "5 s", "delivery.timeout.ms": 6_000})
    assert [problem.split("=")[0] for problem in caught.value.problems] == ["request_timeout_ms"]


def test_config_shared_by_client_kinds_warns_of_unused_options(caplog):
    shared = {
        "bootstrap.servers": "a:1",
        "linger.ms": 7,
        "enable.idempotence": "false",
        "dr_cb": print,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "queued.min.messages": 10,
    }
    with pytest.raises(ConfigError, match=r"^option dr_cb is another client's"):
        resolve(ProducerConfig, {}, shared)
    del shared["dr_cb"], shared["queued.min.messages"]
    assert resolve(ProducerConfig, {}, shared).linger_ms == 7
    assert resolve(ConsumerConfig, {}, shared).group_id == "g"
    assert resolve(AdminConfig, {}, shared).bootstrap_servers == ("a:1",)
    assert caplog.messages == [
        "config has options that no producer uses: group.id (consumers), auto.offset.reset (consumers)",
        "config has options that no consumer uses: linger.ms (producers), enable.idempotence (producers)",
        "config has options that no admin uses: linger.ms (producers), enable.idempotence (producers), "
        "group.id (consumers), auto.offset.reset (consumers)",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_keyword_of_another_kind_of_client_is_refused():
    with pytest.raises(ConfigError, match="unknown option group_id"):
        resolve(ProducerConfig, {**BASE, "group_id": "g"})


def test_table_of_each_kinds_own_options_is_complete():
    common = {*options_of(ClientConfig), *(name for name in COMMON if COMMON[name].support is REFUSED)}
    for kind, cls in KINDS.items():
        names = {name for spec in options_of(cls).values() for name in (spec.name, *spec.aliases)}
        shared = {alias for name in options_of(ClientConfig) for alias in options_of(cls)[name].aliases}
        refused = {name for name, unsupported in UNSUPPORTED[kind].items() if unsupported.support is REFUSED}
        assert OWN[kind] == {*names, *refused} - common - shared
