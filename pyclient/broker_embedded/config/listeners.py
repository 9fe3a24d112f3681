"""The listeners of a node: names, addresses, protocols, and the options of TLS and SASL that each of them has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient.config.addresses import format_address
from pyclient.config.broker import BROKER_OPTIONS
from pyclient.config.broker_security import LOGIN_OPTIONS, PREFIX, PROTOCOLS, own_option
from pyclient.config.urls import checked_url, is_readable_by_others
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyclient.broker_embedded.config.quorum_config import QuorumConfig
    from pyclient.config.options import Value
    from pyclient.config.sasl import BrokerLogin

INTER_BROKER_USER: Final = "pyclient-broker"
"""The user as which the nodes of an `EmbeddedCluster` log in to each other, by PLAIN."""

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms by password, which are offered unless the options say otherwise."""
OAUTHBEARER: Final = "OAUTHBEARER"
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_ADDRESS: Final = re.compile(r"([A-Za-z0-9_.-]+)://(\[[^\]]*\]|[^:/@\s]*):(\d{1,5})")
_LOOPBACK: Final = re.compile(r"127\.\d+\.\d+\.\d+|::1|localhost")


class ListenerAddress(NamedTuple):
    """The address of a listener, bound or advertised."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener. `options` has its values of the options of TLS and SASL, `logins` its login modules by mechanism.

    `advertised` is the address that clients get; None for the bound one.
    """

    name: str
    protocol: str
    host: str
    port: int
    advertised: ListenerAddress | None = None
    is_controller: bool = False
    options: Mapping[str, Value] = field(default_factory=dict, repr=False)
    logins: Mapping[str, BrokerLogin] = field(default_factory=dict, repr=False)

    @property
    def uses_tls(self) -> bool:
        """Return True if connections are encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Return True if clients authenticate themselves by SASL."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def is_open(self) -> bool:
        """Return True if another machine can connect to it without authenticating itself."""
        accepts_unauthenticated = not self.uses_sasl and (
            not self.uses_tls or self.options["ssl.client.auth"] != "required"
        )
        return accepts_unauthenticated and _LOOPBACK.fullmatch(self.host) is None

    @property
    def protocol_number(self) -> int:
        """The protocol's number in registrations."""
        return PROTOCOLS.index(self.protocol)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that clients may use."""
        return tuple(each.strip() for each in str(self.options["sasl.enabled.mechanisms"]).split(","))

    def text(self, option: str) -> str | None:
        """Return the value of a text option; None without one."""
        value = self.options.get(option)
        return None if value is None or value == "" else str(value)

    def is_pkcs12(self, store: str) -> bool:
        """Return True if `store`, which is `keystore` or `truststore`, is a PKCS12 file."""
        kind = str(self.options[f"ssl.{store}.type"]).upper()
        return kind == "PKCS12" and self.text(f"ssl.{store}.location") is not None

    def session_seconds(self, mechanism: str) -> float:
        """Return the time after which clients authenticate again; 0: never."""
        return int(self.of_mechanism(mechanism, "connections.max.reauth.ms") or 0) / 1000

    def of_mechanism(self, mechanism: str, option: str) -> Value:
        """Return the value of an option that a mechanism may have of its own."""
        return self.options.get(f"{mechanism.lower()}.{option}", self.options[option])

    @property
    def passwords(self) -> dict[str, str]:
        """The users of its PLAIN login module."""
        login = self.logins.get("PLAIN")
        return {} if login is None else dict(login.users)

    def client_options(self, mechanism: str, login: tuple[str, str] | None) -> dict[str, Any]:
        """Return the options of a client of this cluster's other nodes, which have such a listener, too."""
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if self.uses_tls:
            names = {
                "ssl_cafile": "ssl.truststore.location",
                "ssl_ca_pem": "ssl.truststore.certificates",
                "ssl_certfile": "ssl.keystore.location",
                "ssl_certificate_pem": "ssl.keystore.certificate.chain",
                "ssl_key_pem": "ssl.keystore.key",
                "ssl_password": "ssl.key.password",
                "ssl_keystore_password": "ssl.keystore.password",
                "ssl_truststore_password": "ssl.truststore.password",
            }
            options |= {name: value for name, option in names.items() if (value := self.text(option)) is not None}
            options["ssl_check_hostname"] = self.options["ssl.endpoint.identification.algorithm"] != ""
        if self.uses_sasl and mechanism == OAUTHBEARER:
            options |= self._token_options()
        elif self.uses_sasl:
            if login is None:
                raise ConfigError(
                    f"listener {self.name} demands SASL of other nodes, which have no user: set "
                    f"{PREFIX}{self.name.lower()}.{mechanism.lower()}.sasl.jaas.config with username and password"
                )
            options |= {"sasl_mechanism": mechanism, "sasl_username": login[0], "sasl_password": login[1]}
        return options

    def _token_options(self) -> dict[str, Any]:
        """Return the options by which a client gets the tokens of this node."""
        if not self.of_mechanism(OAUTHBEARER, _TOKEN_URL):
            raise ConfigError(
                f"listener {self.name} demands {OAUTHBEARER} of other nodes, and {_TOKEN_URL} is missing: set it to "
                "the https: URL of an identity server, or to the file: URL of a token"
            )
        options: dict[str, Any] = {"sasl_mechanism": OAUTHBEARER}
        for each in LOGIN_OPTIONS:
            value = self.of_mechanism(OAUTHBEARER, each.name)
            if value != each.default:
                options[each.name.replace("client.credentials.", "").replace(".", "_")] = value
        login = self.logins.get(OAUTHBEARER)
        if login is not None and login.of_client is not None:
            options["sasl_jaas_config"] = login.of_client
        return options


@dataclass(frozen=True, slots=True)
class Listeners:
    """All listeners of a node. `clients` are those of a broker, the first one is for bootstrap."""

    clients: tuple[ListenerConfig, ...]
    controller: ListenerConfig
    inter_broker: str

    def with_ports(self, ports: Mapping[str, int]) -> Listeners:
        """Return them with the ports that the system has given."""
        changed = tuple(replace(each, port=ports.get(each.name, each.port)) for each in self.clients)
        return replace(self, clients=changed)

    @property
    def between_brokers(self) -> ListenerConfig:
        """The listener that other brokers use."""
        return next(each for each in self.clients if each.name == self.inter_broker)

    def text(self) -> str:
        """Return the listeners for clients as the option `listeners` has them."""
        return ",".join(f"{each.name}://{format_address(each.host, each.port)}" for each in self.clients)


def listeners_of(
    values: Mapping[str, Value],
    explicit: Mapping[str, str],
    own: Mapping[str, str],
    quorum: QuorumConfig,
    node_id: int,
    place: ListenerAddress,
) -> Listeners:
    """Return the listeners that the options describe. `own` has those with the prefix of a listener.

    Without `listeners` there is one for clients, named like `security.inter.broker.protocol`, at `place`. Raise
    `ConfigError` naming the option and what is allowed.
    """
    named = "listeners" in explicit
    default = str(values["security.inter.broker.protocol"])
    places = dict(_places("listeners", explicit["listeners"])) if named else {default: place}
    protocols = _protocols(str(values["listener.security.protocol.map"]))
    if "listener.security.protocol.map" not in explicit or not quorum.voters:
        protocols.setdefault(quorum.listener_name.upper(), "PLAINTEXT")
    advertised = dict(_places("advertised.listeners", str(values["advertised.listeners"] or "")))

    def listener(name: str, at: ListenerAddress, *, is_controller: bool = False) -> ListenerConfig:
        if name not in protocols:
            raise ConfigError(f"listener.security.protocol.map has no protocol for the listener {name}")
        prefix = f"{PREFIX}{name.lower()}."
        mine = {key.removeprefix(prefix): text for key, text in own.items() if key.startswith(prefix)}
        logins = {
            key.removesuffix(".sasl.jaas.config").upper(): _login(prefix + key, text)
            for key, text in mine.items()
            if key.endswith(".sasl.jaas.config")
        }
        options = {**values, **{key: _parsed(prefix, key, text) for key, text in mine.items()}}
        made = ListenerConfig(name, protocols[name], *at, advertised.pop(name, None), is_controller, options, logins)
        _check(made)
        return made

    controller_at = places.pop(quorum.listener_name.upper(), None) or ListenerAddress(
        *quorum.voters.get(node_id, ("", 0))
    )
    controller = listener(quorum.listener_name.upper(), controller_at, is_controller=True)
    if not places and quorum.is_broker:
        raise ConfigError("listeners has no listener for clients")
    clients = tuple(listener(name, at) for name, at in places.items())
    if advertised:
        raise ConfigError(f"advertised.listeners has {min(advertised)}, which listeners has not")
    chosen = values["inter.broker.listener.name"]
    between = str(chosen).upper() if chosen else default
    if between not in places:
        if chosen or (quorum.voters and quorum.is_broker):
            raise ConfigError(
                f"{'inter.broker.listener.name' if chosen else 'security.inter.broker.protocol'} is {between}: it "
                f"must be the name of a listener for clients, which are {', '.join(places)}"
            )
        between = next(iter(places), between)
    return Listeners(clients, controller, between)


def check_own(own: Mapping[str, str], names: set[str]) -> None:
    """Raise `ConfigError` for an option of a listener that does not exist."""
    for key in own:
        name = key.removeprefix(PREFIX).partition(".")[0]
        if name not in {each.lower() for each in names}:
            raise ConfigError(f"{key}: there is no listener {name!r}; there are {', '.join(sorted(names))}")
        assert own_option(key) is not None


def _check(listener: ListenerConfig) -> None:
    if listener.uses_tls:
        for kind in ("ssl.keystore.type", "ssl.truststore.type"):
            location = kind.replace(".type", ".location")
            if listener.text(location) is not None and str(listener.options[kind]).upper() not in ("PEM", "PKCS12"):
                raise ConfigError(
                    f"{kind} is {listener.options[kind]} (listener {listener.name}): {location} has to be a PEM or "
                    f"PKCS12 file, set {kind}; keytool -importkeystore with -deststoretype PKCS12 converts JKS"
                )
    if listener.uses_sasl:
        unknown = [each for each in listener.mechanisms if each not in (*MECHANISMS, OAUTHBEARER)]
        if unknown:
            raise ConfigError(
                f"sasl.enabled.mechanisms has {unknown[0]!r} (listener {listener.name}): the embedded broker offers "
                f"{', '.join((*MECHANISMS, OAUTHBEARER))}"
            )
        _check_keys(listener)


def _check_keys(listener: ListenerConfig) -> None:
    """Raise `ConfigError` if the keys for tokens are to be fetched over a connection that can be tampered with."""
    name = "sasl.oauthbearer.jwks.endpoint.url"
    url = listener.of_mechanism(OAUTHBEARER, name)
    if not url:
        return
    try:
        if is_readable_by_others(checked_url(url)):
            raise ValueError("http: is for this machine's own addresses only, use https:")
    except ValueError as error:
        raise ConfigError(f"{name} (listener {listener.name}): {error}") from None


def _parsed(prefix: str, key: str, text: str) -> Value:
    try:
        return BROKER_OPTIONS[own_option(prefix + key) or key].parse(text)
    except ValueError as error:
        raise ConfigError(f"{prefix}{key}: {error}") from None


def _login(name: str, text: str) -> BrokerLogin:
    from pyclient.config.sasl import read_broker_jaas  # few brokers need it

    try:
        return read_broker_jaas(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _places(option: str, text: str) -> Iterator[tuple[str, ListenerAddress]]:
    seen: set[str] = set()
    for entry in filter(None, (each.strip() for each in text.split(","))):
        found = _ADDRESS.fullmatch(entry)
        if found is None or int(found[3]) > 65535:
            raise ConfigError(f"{option} has {entry!r}: it must be like SASL_SSL://localhost:9093")
        name = found[1].upper()
        if name in seen:
            raise ConfigError(f"{option} has the listener {name} twice")
        seen.add(name)
        yield name, ListenerAddress(found[2].strip("[]"), int(found[3]))


def _protocols(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        name, separator, protocol = entry.partition(":")
        if not separator or protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map has {entry!r}: it must be like NAME:SASL_SSL, with one of "
                f"{', '.join(PROTOCOLS)}"
            )
        found[name.strip().upper()] = protocol.strip().upper()
    return found
