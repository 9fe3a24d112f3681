"""SASL options of clients: those of Java, librdkafka and kafka-python, and combinations that do not fit."""

import pytest

from pyclient.config import resolve
from pyclient.config.assertion import AssertionSettings
from pyclient.config.kerberos import KerberosSettings
from tests.test_config import BASE, SampleConfig, refused

SCRAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
OAUTH_MODULE = f"{OAUTH_PACKAGE}.OAuthBearerLoginModule"
GSSAPI = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
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


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, KerberosSettings("kafka")),
        (
            {
                "sasl.kerberos.service.name": "log",
                "sasl.kerberos.principal": "a@R",
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.kinit.cmd": 'kinit -R -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal} || '
                'kinit -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}',
                "sasl.kerberos.min.time.before.relogin": 60_000,
            },
            KerberosSettings("log", "a@R", "/k"),
        ),
        (
            {
                "sasl.jaas.config": f"{KRB5} useKeyTab=true storeKey=true useTicketCache=true keyTab=/k principal=a@R;",
                "sasl.kerberos.service.name": "log",
                "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
                "sasl.kerberos.ticket.renew.window.factor": "0.8",
                "sasl.kerberos.ticket.renew.jitter": 0.05,
            },
            KerberosSettings("log", "a@R", "/k"),
        ),
        (
            {"sasl.jaas.config": f'{KRB5} useTicketCache=true renewTGT=true ticketCache="/c" serviceName="log";'},
            KerberosSettings("log", None, None, "/c"),
        ),
        ({"sasl.jaas.config": f"{KRB5} useTicketCache=TRUE doNotPrompt=true;"}, KerberosSettings("kafka")),
    ],
    ids=["default", "librdkafka", "Java, keytab", "Java, ticket cache", "Java, default ticket cache"],
)
def test_kerberos_options_of_other_clients_are_understood(options, settings):
    config = resolve(SampleConfig, {**BASE, **GSSAPI}, options)
    assert (config.kerberos, config.login, config.oidc) == (settings, None, None)
    assert resolve(SampleConfig, {**BASE, **OIDC}).kerberos is None


def test_quotes_in_a_jaas_configuration_may_be_escaped():
    entry = f'{SCRAM_MODULE} required\n  username="a\\"b"\n  password="c;\\\\d=e" ;'
    assert resolve(SampleConfig, {**BASE, **SCRAM, "sasl_jaas_config": entry}).login == ('a"b', "c;\\d=e")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism is missing: SASL_SSL needs it"),
        ({**SCRAM, "sasl_mechanism": "NTLM"}, "PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512 or OAUTHBEARER or GSSAPI"),
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
        ({**SCRAM, "sasl_jaas_config": "com.ibm.Krb5LoginModule required a=hunter2;"}, "not com.ibm.Krb5LoginModule"),
        (
            {**SCRAM, "sasl_jaas_config": f"{KRB5} useTicketCache=true;"},
            "has the login module of GSSAPI, sasl_mechanism",
        ),
        ({**SCRAM, "sasl_kerberos_keytab": "k"}, "sasl_kerberos_keytab is not used by sasl_mechanism SCRAM-SHA-512"),
        ({"sasl_kerberos_keytab": "k"}, "sasl_kerberos_keytab is given, but security_protocol is PLAINTEXT"),
        ({**OIDC, "sasl_kerberos_principal": "a"}, "sasl_kerberos_principal is not used by sasl_mechanism OAUTHBEARER"),
        ({**GSSAPI, "sasl_username": "u"}, "sasl_username is not used by sasl_mechanism GSSAPI: drop it"),
        ({**GSSAPI, "sasl_oauthbearer_scope": "a"}, "sasl_oauthbearer_scope is not used by sasl_mechanism GSSAPI"),
        ({**GSSAPI, "sasl_tokenauth": True}, "sasl_tokenauth is not for GSSAPI"),
        ({**GSSAPI, "sasl_kerberos_service_name": "kafka/host"}, "it takes a name without / and @"),
        ({**GSSAPI, "sasl_kerberos_keytab": ""}, "a string without NUL that is not empty"),
        ({**GSSAPI, "sasl_jaas_config": f"{SCRAM_MODULE} required username=u password=p;"}, "than Krb5LoginModule"),
        (
            {**GSSAPI, "sasl_jaas_config": f"{KRB5} storeKey=true;"},
            "needs useKeyTab=true and keyTab, or useTicketCache",
        ),
        (
            {**GSSAPI, "sasl_jaas_config": f"{KRB5} useKeyTab=true;"},
            "Krb5LoginModule needs keyTab, the path of the key",
        ),
        (
            {**GSSAPI, "sasl_jaas_config": f"{KRB5} useKeyTab=yes;"},
            "the option useKeyTab of Krb5LoginModule is true or",
        ),
        ({**GSSAPI, "sasl_jaas_config": f"{KRB5} useTicketCache=true isInitiator=false;"}, "clients are initiators"),
        (
            {**GSSAPI, "sasl_jaas_config": f"{KRB5} useTicketCache=true password=hunter2;"},
            "the option password of Krb5Log",
        ),
        (
            {**GSSAPI, "sasl_kerberos_keytab": "k", "sasl_jaas_config": f"{KRB5} useTicketCache=true;"},
            "sasl_jaas_config and sasl_kerberos_keytab are both given: drop one",
        ),
        (
            {
                **GSSAPI,
                "sasl_kerberos_service_name": "a",
                "sasl_jaas_config": f"{KRB5} useTicketCache=true serviceName=b;",
            },
            "sasl_kerberos_service_name is a, and serviceName in sasl_jaas_config is b: drop one",
        ),
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
