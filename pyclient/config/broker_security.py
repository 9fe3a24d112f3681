"""The broker's options of listeners, TLS and SASL that are served, and which of them a listener may have of its own."""

from __future__ import annotations

from typing import Final

from pyclient.config.options import BOOLEAN, CLASS, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING, Option

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The security protocols, in the order of their numbers."""

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_MAP: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"

LOGIN_OPTIONS: Final = (
    Option("sasl.login.connect.timeout.ms", INT, None, "how long connecting to the token endpoint may take", minimum=1),
    Option("sasl.login.read.timeout.ms", INT, None, "how long the token endpoint may be silent", minimum=1),
    Option(
        "sasl.login.refresh.buffer.seconds", SHORT, 300, "how long before its end a token is replaced", dynamic=True
    ),
    Option("sasl.login.refresh.min.period.seconds", SHORT, 60, "how long a token is kept at least", dynamic=True),
    Option(
        "sasl.login.refresh.window.factor", DOUBLE, 0.8, "the share of its time after which a token ends", dynamic=True
    ),
    Option("sasl.login.refresh.window.jitter", DOUBLE, 0.05, "what is added to that share by chance", dynamic=True),
    Option(
        "sasl.login.retry.backoff.max.ms",
        LONG,
        10_000,
        "the longest wait before another request for a token",
        minimum=1,
    ),
    Option("sasl.login.retry.backoff.ms", LONG, 100, "the first wait before another request for a token", minimum=1),
    Option("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", "how assertions are signed"),
    Option("sasl.oauthbearer.assertion.claim.aud", STRING, None, "the audience of assertions"),
    Option("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, "how long an assertion is valid"),
    Option("sasl.oauthbearer.assertion.claim.iss", STRING, None, "the issuer of assertions"),
    Option("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, "whether assertions have ids"),
    Option("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, "how long ago an assertion became valid"),
    Option("sasl.oauthbearer.assertion.claim.sub", STRING, None, "the subject of assertions"),
    Option("sasl.oauthbearer.assertion.file", STRING, None, "the file with a ready assertion"),
    Option("sasl.oauthbearer.assertion.private.key.file", STRING, None, "the file with the key that signs assertions"),
    Option("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, "the passphrase of that key"),
    Option("sasl.oauthbearer.assertion.template.file", STRING, None, "the file with more of assertions"),
    Option("sasl.oauthbearer.client.credentials.client.id", STRING, None, "the node's name at the token endpoint"),
    Option("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, "its secret at the token endpoint"),
    Option(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        f"{_PACKAGE}.DefaultJwtRetriever",
        "how tokens are got at the token endpoint",
    ),
    Option("sasl.oauthbearer.scope", STRING, None, "the scope to ask for at the token endpoint"),
    Option("sasl.oauthbearer.token.endpoint.url", STRING, None, "where nodes get their tokens: https: or file:"),
)
"""The options by which nodes get tokens to log in to each other, as a client does by its options of these names."""

SECURITY_OPTIONS: Final = (
    *LOGIN_OPTIONS,
    Option("advertised.listeners", LIST, None, "the addresses of the listeners for clients, if others than its own"),
    Option(
        "authorizer.class.name",
        STRING,
        "",
        "Kafka's StandardAuthorizer decides by ACLs; empty: all users may do everything",
        choices=("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ),
    Option("inter.broker.listener.name", STRING, None, "the listener that other brokers use"),
    Option("listener.security.protocol.map", STRING, _MAP, "the protocol of each listener", dynamic=True),
    Option("listeners", LIST, "PLAINTEXT://:9092", "the listeners: NAME://host:port, with commas", dynamic=True),
    Option("sasl.enabled.mechanisms", LIST, "GSSAPI", "the mechanisms that clients may use", dynamic=True),
    Option("sasl.jaas.config", PASSWORD, None, "the login module, for one listener and mechanism", dynamic=True),
    Option(
        "sasl.login.callback.handler.class",
        CLASS,
        None,
        "Kafka's login by tokens, which is what nodes have",
        choices=(f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",),
    ),
    Option("sasl.mechanism.controller.protocol", STRING, "GSSAPI", "the mechanism of nodes at a controller"),
    Option("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", "the mechanism of brokers", dynamic=True),
    Option("sasl.oauthbearer.clock.skew.seconds", INT, 30, "how far the clocks of token servers may differ"),
    Option("sasl.oauthbearer.expected.audience", LIST, "", "the audiences of tokens, one of them is enough"),
    Option("sasl.oauthbearer.expected.issuer", STRING, None, "the issuer that tokens must name"),
    Option(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        3_600_000,
        "the age of the keys after which they are fetched again",
        minimum=1,
    ),
    Option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        10_000,
        "the longest wait before the keys are fetched again after a failure",
        minimum=1,
    ),
    Option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        100,
        "the first wait before the keys are fetched again after a failure; it doubles",
        minimum=1,
    ),
    Option("sasl.oauthbearer.jwks.endpoint.url", STRING, None, "where the keys of tokens are (JWKS): https: or file:"),
    Option("sasl.oauthbearer.scope.claim.name", STRING, "scope", "the claim of a token that has the scopes"),
    Option("sasl.oauthbearer.sub.claim.name", STRING, "sub", "the claim of a token that names the user"),
    Option(
        "sasl.server.callback.handler.class",
        CLASS,
        None,
        "Kafka's validator of tokens, which is what the broker has",
        choices=(f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",),
    ),
    Option("security.inter.broker.protocol", STRING, "PLAINTEXT", "the protocol of brokers", choices=PROTOCOLS),
    Option("ssl.cipher.suites", LIST, "", "the ciphers of TLS 1.2, by OpenSSL's names", dynamic=True),
    Option(
        "ssl.client.auth",
        STRING,
        "none",
        "whether clients need a certificate",
        choices=("required", "requested", "none"),
        dynamic=True,
    ),
    Option(
        "ssl.enabled.protocols",
        LIST,
        "TLSv1.2,TLSv1.3",
        "the versions of TLS",
        choices=("TLSv1.2", "TLSv1.3"),
        dynamic=True,
    ),
    Option(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "https: nodes check each other's host name; empty: they do not",
        choices=("https", ""),
        dynamic=True,
    ),
    Option("ssl.key.password", PASSWORD, None, "the password of the private key", dynamic=True),
    Option("ssl.keystore.certificate.chain", PASSWORD, None, "the certificates as a text in PEM", dynamic=True),
    Option("ssl.keystore.key", PASSWORD, None, "the private key as a text in PEM", dynamic=True),
    Option("ssl.keystore.location", STRING, None, "the file with private key and certificates", dynamic=True),
    Option("ssl.keystore.password", PASSWORD, None, "the password of a PKCS12 file", dynamic=True),
    Option("ssl.keystore.type", STRING, "JKS", "PEM or PKCS12; JKS has to be converted", dynamic=True),
    Option("ssl.principal.mapping.rules", STRING, "DEFAULT", "how a certificate's name becomes a user's"),
    Option("ssl.truststore.certificates", PASSWORD, None, "the trusted authorities as a text in PEM", dynamic=True),
    Option("ssl.truststore.location", STRING, None, "the file with the trusted authorities", dynamic=True),
    Option("ssl.truststore.password", PASSWORD, None, "the password of a PKCS12 file", dynamic=True),
    Option("ssl.truststore.type", STRING, "JKS", "PEM or PKCS12; JKS has to be converted", dynamic=True),
)
"""They are read when the node starts. Those that Kafka may change at run time are dynamic, and also refused."""

AUTHORIZER: Final = "authorizer.class.name"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

AUTHORIZER_OPTIONS: Final = {
    option.name: option
    for option in (
        Option("super.users", STRING, "", "principals that may do everything, as in User:alice;User:bob"),
        Option("allow.everyone.if.no.acl.found", BOOLEAN, False, "whether what no ACL is about is allowed"),
    )
}
"""Options of the authorizer itself, which DescribeConfigs does not list, as in Kafka."""

FIXED: Final = frozenset(option.name for option in SECURITY_OPTIONS)

PREFIX: Final = "listener.name."
_OF_LISTENERS: Final = frozenset(
    name for name in FIXED if name.startswith(("ssl.", "sasl.login.", "sasl.oauthbearer."))
) | {
    "connections.max.reauth.ms",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.server.callback.handler.class",
}


def own_option(name: str) -> str | None:
    """Return the option that `listener.name.NAME.OPTION` or `listener.name.NAME.MECHANISM.OPTION` sets.

    None for another name, and for options that a listener has not of its own.
    """
    if not name.startswith(PREFIX):
        return None
    _listener, _, rest = name.removeprefix(PREFIX).partition(".")
    return next((each for each in (rest, rest.partition(".")[2]) if each in _OF_LISTENERS), None)
