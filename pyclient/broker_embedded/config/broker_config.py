"""The configuration of one node: where it listens, where it keeps its data, and Kafka's broker options."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pyclient.acls import acl_of
from pyclient.broker_embedded.config.listeners import (
    INTER_BROKER_USER,
    MECHANISMS,
    ListenerAddress,
    ListenerConfig,
    Listeners,
    check_own,
    listeners_of,
)
from pyclient.broker_embedded.config.quorum_config import BOOTSTRAP, VOTERS, QuorumConfig
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.config.addresses import DEFAULT_HOST
from pyclient.config.broker import BROKER_OPTIONS, PROFILES, SERVED_OPTIONS, refusal
from pyclient.config.broker_security import (
    AUTHORIZER,
    AUTHORIZER_OPTIONS,
    PROTOCOLS,
    STANDARD_AUTHORIZER,
    own_option,
)
from pyclient.config.options import SERVED, WITHOUT_EFFECT, Value, nearest, render
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyclient.acls import AclBinding

USERS_VARIABLE: Final = "PYCLIENT_BROKER_USERS"
"""Environment variable of a broker process: the users' passwords as a JSON object, which a command line would show."""

ACLS_VARIABLE: Final = "PYCLIENT_BROKER_ACLS"
"""Environment variable of a broker process: ACLs as a JSON list of lists, as `pyclient.acls.acl_of` reads them."""

OPTIONS_VARIABLE: Final = "PYCLIENT_BROKER_OPTIONS"
"""Environment variable of a broker process: options with secrets as a JSON object, like the users."""

log = logging.getLogger("pyclient.broker_embedded")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A node's configuration, checked once by `build`.

    `explicit` holds the texts that the profile and the user set (DescribeConfigs calls them static), `values` every
    option's value; `ignored` the texts of the options without effect here, which DescribeConfigs lists, too.
    `data_dir` is the first directory of log.dirs, which has the metadata; `other_dirs` are the rest.
    `cluster_id` is the cluster that the directories belong to; None: theirs, or a new one. Without `cluster_id_given`
    it follows from the voters, and is that of new directories only.
    `users` has the passwords of the users that SASL accepts on every listener.
    """

    data_dir: str
    host: str
    port: int
    profile: str
    as_version: str | None
    explicit: Mapping[str, str] = field(repr=False)
    values: Mapping[str, Value] = field(repr=False)
    ignored: Mapping[str, str]
    other_dirs: tuple[str, ...]
    quorum: QuorumConfig
    cluster_id: str | None
    users: Mapping[str, str] = field(repr=False)
    cluster_id_given: bool
    own: Mapping[str, str] = field(repr=False)
    """The texts of the options with the prefix of a listener."""
    listeners: Listeners = field(repr=False)
    authorizer: Mapping[str, str]
    acls: tuple[AclBinding, ...]

    @classmethod
    def build(
        cls,
        settings: Mapping[str, Any] | None = None,
        *,
        data_dir: str,
        host: str = DEFAULT_HOST,
        port: int = 0,
        profile: str = "test",
        as_version: str | None = None,
        cluster_id: str | None = None,
        security: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        acls: Iterable[AclBinding] = (),
    ) -> BrokerConfig:
        """Check `settings` (Kafka's option names; texts or values) on top of a profile.

        With `log.dirs` (several directories, separated by commas) `data_dir` is empty or the first of them.
        `as_version` ("3.9") is the release of Kafka that the node looks like to its clients; None: all versions.
        `acls` are added to those in the metadata log, and need an authorizer.
        `security` is the protocol of all listeners, if the options name none; `listeners` come before host and port.
        Without a `cluster_id`, new nodes with `controller.quorum.voters` have one that follows from these.

        Raise `ConfigError` naming the option, its value and what is allowed.
        """
        _check_node(profile, as_version, port)
        given = {**_of_security(security, settings or {}), **_with_node_id(settings or {})}
        explicit, ignored, own, authorizer = _sorted_options(given, PROFILES[profile])
        values = _values_of(explicit)
        data_dir, *others = _log_dirs(settings or {}, data_dir)
        values["log.dirs"] = ",".join((data_dir, *others))
        _check_conflicts(values)
        quorum = _quorum_of(values)
        node_id = cast("int", values["node.id"])
        listeners = listeners_of(values, explicit, own, quorum, node_id, ListenerAddress(host, port))
        if listeners.clients:
            host, port = listeners.clients[0].host, listeners.clients[0].port
        check_own(own, {each.name for each in (*listeners.clients, listeners.controller)})
        _check_users(listeners, users or {})
        built = cls(
            data_dir,
            host,
            port,
            profile,
            as_version,
            explicit,
            values,
            ignored,
            tuple(others),
            quorum,
            cluster_id if cluster_id is not None else quorum.cluster_id,
            dict(users or {}),
            cluster_id is not None,
            own,
            listeners,
            authorizer,
            tuple(acls),
        )
        _check_authorizer(built)
        built.cordoned_dirs()
        return built

    def at(self, *, data_dir: str | None = None, ports: Mapping[str, int] | None = None) -> BrokerConfig:
        """Return the configuration with another data directory, or the ports of listeners by their names."""
        directory = self.data_dir if data_dir is None else data_dir
        values = {**self.values, "log.dirs": ",".join((directory, *self.other_dirs))}
        listeners = self.listeners.with_ports(ports or {})
        port = listeners.clients[0].port if listeners.clients else self.port
        explicit = dict(self.explicit)
        if "listeners" in explicit:
            explicit["listeners"] = listeners.text()
        return replace(self, data_dir=directory, port=port, values=values, explicit=explicit, listeners=listeners)

    def with_bootstrap(self, servers: str) -> BrokerConfig:
        """Return the configuration with another `controller.quorum.bootstrap.servers`.

        Raise `ConfigError` if they are invalid, or the voters of this node's quorum are static.
        """
        if not self.quorum.dynamic:
            raise ConfigError(f"node {self.integer('node.id')} has no {BOOTSTRAP}: its voters cannot change")
        values = {**self.values, BOOTSTRAP: servers}
        return replace(self, values=values, explicit={**self.explicit, BOOTSTRAP: servers}, quorum=_quorum_of(values))

    def login_at(self, listener: ListenerConfig) -> dict[str, Any]:
        """Return the options with which this node connects to another node's listener. Raise `ConfigError`."""
        name = (
            "sasl.mechanism.controller.protocol" if listener.is_controller else "sasl.mechanism.inter.broker.protocol"
        )
        mechanism = str(self.values[name])
        login = listener.logins.get(mechanism)
        own = None if login is None else login.own
        if own is None and INTER_BROKER_USER in self.users:
            own = INTER_BROKER_USER, self.users[INTER_BROKER_USER]
        return listener.client_options(mechanism, own)

    def with_dynamic(self, *layers: Mapping[str, str]) -> BrokerConfig:
        """Return the configuration with dynamic options on top; a later layer overrides an earlier one.

        An invalid value is logged and ignored.
        """
        explicit, values = dict(self.explicit), dict(self.values)
        for layer in layers:
            for name in [name for name in layer if name in SERVED_OPTIONS and SERVED_OPTIONS[name].dynamic]:
                try:
                    value = SERVED_OPTIONS[name].parse(layer[name])
                    if value == 0 and (name == "max.connections" or _shuts_out(name, layer)):
                        raise ValueError(f"{name} is 0: no client could connect to change it")
                except ValueError as error:
                    log.error("a dynamic option is ignored: %s", error)
                else:
                    values[name] = value
                    explicit[name] = layer[name]
        return replace(self, explicit=explicit, values=values)

    def integer(self, name: str) -> int:
        """Return the value of an integer option."""
        return cast("int", self.values[name])

    def boolean(self, name: str) -> bool:
        """Return the value of a boolean option."""
        return cast("bool", self.values[name])

    def text(self, name: str) -> str | None:
        """Return the value of a text option; None when it has no value."""
        return cast("str | None", self.values[name])

    def seconds(self, name: str) -> float:
        """Return the value of a `.ms` option in seconds."""
        return self.integer(name) / 1000

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Return all directories of log.dirs."""
        return (self.data_dir, *self.other_dirs)

    def cordoned_dirs(self, text: str | None = None) -> frozenset[str]:
        """Return the directories that cordoned.log.dirs (or its value `text`) names; `*` means all of them.

        Raise `ConfigError`, with Kafka's words, for one that is not in log.dirs.
        """
        named = str(self.values["cordoned.log.dirs"] if text is None else text).split(",")
        wanted = [each for each in (part.strip() for part in named) if each]
        if wanted == ["*"]:
            return frozenset(self.log_dirs)
        known = {os.path.abspath(path): path for path in self.log_dirs}
        missing = [each for each in wanted if os.path.abspath(each) not in known]
        if missing:
            raise ConfigError(
                "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing "
                f"entries : {', '.join(missing)}"
            )
        return frozenset(known[os.path.abspath(each)] for each in wanted)

    @property
    def has_authorizer(self) -> bool:
        """True if ACLs decide about requests."""
        return bool(self.values[AUTHORIZER])

    @property
    def super_users(self) -> tuple[str, ...]:
        """Return the principals that may do everything."""
        return tuple(each.strip() for each in str(self._of_authorizer("super.users")).split(";") if each.strip())

    @property
    def allows_everyone(self) -> bool:
        """True if what no ACL is about is allowed."""
        return bool(self._of_authorizer("allow.everyone.if.no.acl.found"))

    def _of_authorizer(self, name: str) -> Value:
        option, text = AUTHORIZER_OPTIONS[name], self.authorizer.get(name)
        default: Value = option.default
        return default if text is None else option.parse(text)

    def log_defaults(self) -> LogConfig:
        """Return the defaults for the options of this broker's topics."""
        return LogConfig.from_broker(self.explicit)


def acls_of(environment: Mapping[str, str]) -> tuple[AclBinding, ...]:
    """Return the ACLs in the environment. Raise `ConfigError` if they are no JSON list of lists."""
    text = environment.get(ACLS_VARIABLE)
    if not text:
        return ()
    import json

    try:
        return tuple(acl_of(tuple(each)) for each in json.loads(text))
    except (ValueError, TypeError) as error:
        raise ConfigError(f'{ACLS_VARIABLE} is no JSON list like [["topic", "t", "User:a", "read"]]: {error}') from None


def users_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the users in the environment. Raise `ConfigError` if they are no JSON object of texts."""
    return _json_of(environment, USERS_VARIABLE, '{"alice": "password"}')


def options_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options in the environment. Raise `ConfigError` if they are no JSON object of texts."""
    return _json_of(environment, OPTIONS_VARIABLE, '{"ssl.key.password": "password"}')


def _json_of(environment: Mapping[str, str], variable: str, example: str) -> dict[str, str]:
    text = environment.get(variable)
    if not text:
        return {}
    import json

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"{variable} is no JSON object like {example}")
    return found


class _SortedOptions(NamedTuple):
    """The texts of options by what they are for."""

    served: dict[str, str]
    ignored: dict[str, str]
    own: dict[str, str]
    """Options of single listeners."""
    authorizer: dict[str, str]


def _check_node(profile: str, as_version: str | None, port: int) -> None:
    if profile not in PROFILES:
        raise ConfigError(f"profile is {profile!r}: it must be one of {', '.join(sorted(PROFILES))}")
    if as_version is not None:
        from pyclient.broker_embedded.releases import release_of

        release_of(as_version)
    if not 0 <= port <= 65535:
        raise ConfigError(f"port is {port}: it must be from 0 (any free one) to 65535")


def _sorted_options(given: Mapping[str, Any], profile: Mapping[str, str]) -> _SortedOptions:
    found = _SortedOptions(dict(profile), {}, {}, {})
    for name, value in given.items():
        if own_option(name) is not None:
            taken = found.own
        elif name in AUTHORIZER_OPTIONS:
            taken = found.authorizer
        else:
            taken = found.served if _is_served(name) else found.ignored
        taken[name] = _text(name, value)
    _check_types(found.ignored)
    return found


def _values_of(explicit: Mapping[str, str]) -> dict[str, Value]:
    """Return the values of all served options: their defaults, and those that are given."""
    values = {name: option.default for name, option in SERVED_OPTIONS.items()}
    for name, text in explicit.items():
        try:
            values[name] = BROKER_OPTIONS[name].parse(text)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return values


def _quorum_of(values: Mapping[str, Value]) -> QuorumConfig:
    names = ("process.roles", VOTERS, "controller.listener.names", BOOTSTRAP)
    return QuorumConfig.of(cast("int | None", values["node.id"]), *(cast("str | None", values[name]) for name in names))


def _of_security(security: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for listeners that all have one protocol. Raise `ConfigError` for another one."""
    if security not in PROTOCOLS:
        raise ConfigError(f"security is {security!r}: it must be one of {', '.join(PROTOCOLS)}")
    options: dict[str, Any] = {}
    if security != PROTOCOLS[0]:
        if "listeners" in settings or "listener.security.protocol.map" in settings:
            raise ConfigError(f"security is {security!r}, and listeners are given: drop one")
        controller = str(settings.get("controller.listener.names") or "CONTROLLER").strip()
        options["security.inter.broker.protocol"] = security
        options["listener.security.protocol.map"] = f"{controller}:{security},{security}:{security}"
    protocols = f"{settings.get('listener.security.protocol.map', '')} {settings.get('listeners', '')} {security}"
    if "SASL_" in protocols.upper():
        options["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        options["sasl.mechanism.inter.broker.protocol"] = options["sasl.mechanism.controller.protocol"] = "PLAIN"
    return options


def _check_users(listeners: Listeners, users: Mapping[str, str]) -> None:
    """Raise `ConfigError` for users that no listener knows of, or a SASL listener without any."""
    with_sasl = [each for each in listeners.clients if each.uses_sasl]
    with_tls = [each for each in listeners.clients if each.uses_tls]
    if users and listeners.clients and not with_sasl and not with_tls:
        raise ConfigError(
            "users are given, and no listener authenticates clients: set security='SASL_PLAINTEXT' or 'SASL_SSL'"
        )
    for each in with_sasl:
        if not users and not each.passwords and "PLAIN" in each.mechanisms and len(each.mechanisms) == len(MECHANISMS):
            raise ConfigError(
                f"listener {each.name} is {each.protocol} without users: no client could connect; give users"
                f" (`pyclient broker` takes them from {USERS_VARIABLE})"
            )
    for user, password in users.items():
        texts = isinstance(user, str) and isinstance(password, str)
        if not texts or not user or not password or "\0" in user + password:
            raise ConfigError(f"user {user!r}: names and passwords are texts, not empty and without NUL")


def _check_authorizer(config: BrokerConfig) -> None:
    """Raise `ConfigError` for options of an authorizer that cannot be, or without one."""
    for principal in config.super_users:
        if ":" not in principal:
            raise ConfigError(f"super.users has {principal!r}: a principal is like User:alice, with ; between several")
    try:
        _ = config.allows_everyone
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if (config.authorizer or config.acls) and not config.has_authorizer:
        given = next(iter(config.authorizer), "acls")
        raise ConfigError(f"{given} is given, and there is no authorizer: set {AUTHORIZER}={STANDARD_AUTHORIZER}")


def _shuts_out(name: str, layer: Mapping[str, str]) -> bool:
    """Return True if 0 for that option excludes all clients: no address has an override."""
    return name == "max.connections.per.ip" and not layer.get("max.connections.per.ip.overrides")


def _log_dirs(settings: Mapping[str, Any], data_dir: str) -> list[str]:
    """Return the directories that the options name, or `data_dir` if they name none. Raise `ConfigError`."""
    text = settings.get("log.dirs") or settings.get("log.dir") or ""
    if not isinstance(text, str):
        raise ConfigError(f"log.dirs is {text!r}: it must be a text")
    dirs = [each for each in (part.strip() for part in text.split(",")) if each]
    if not dirs:
        return [data_dir]
    paths = [os.path.abspath(path) for path in dirs]
    if len(set(paths)) != len(paths):
        raise ConfigError(f"log.dirs is {text!r}: a directory is in it twice")
    if data_dir and os.path.abspath(data_dir) != paths[0]:
        raise ConfigError(f"log.dirs is {text!r} and the data directory {data_dir!r}: that has to be the first of them")
    return dirs


def _with_node_id(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with `broker.id`, the old name of `node.id`, replaced, and without log.dirs.

    Raise `ConfigError` if the two ids differ.
    """
    own = {name: value for name, value in settings.items() if name not in ("broker.id", "log.dirs", "log.dir")}
    if "broker.id" not in settings:
        return own
    node_id = own.setdefault("node.id", settings["broker.id"])
    if str(node_id).strip() != str(settings["broker.id"]).strip():
        raise ConfigError(f"broker.id is {settings['broker.id']} and node.id {node_id}: give one, or the same twice")
    return own


def _is_served(name: str) -> bool:
    """Return True if the option has an effect. Raise `ConfigError` if it is unknown or must not be ignored."""
    option = BROKER_OPTIONS.get(name)
    if option is not None and option.support in (SERVED, WITHOUT_EFFECT):
        return option.support is SERVED
    reason = refusal(name)
    if reason is not None:
        raise ConfigError(f"{name}: not supported by the embedded broker: {reason}")
    raise ConfigError(f"{name}: unknown broker option{nearest(name, SERVED_OPTIONS)}")


def _check_types(ignored: Mapping[str, str]) -> None:
    for name, text in ignored.items():
        try:
            BROKER_OPTIONS[name].parse(text)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    if ignored:
        log.warning("these options have no effect on the embedded broker: %s", ", ".join(sorted(ignored)))


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return render(value) or ""
    raise ConfigError(f"{name} is {value!r}: it must be a text, a number or a bool")


def _check_conflicts(values: Mapping[str, Value]) -> None:
    """Raise `ConfigError` where Kafka refuses to start: a minimum above its maximum, a default outside its limits."""
    _in_order(values, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    for name in ("assignment.interval", "heartbeat.interval", "session.timeout"):
        low, own, high = (f"group.consumer.{limit}{name}.ms" for limit in ("min.", "", "max."))
        _in_order(values, low, high)
        _in_order(values, low, own)
        _in_order(values, own, high)


def _in_order(values: Mapping[str, Value], low: str, high: str) -> None:
    if cast("int", values[low]) > cast("int", values[high]):
        raise ConfigError(f"{low} ({values[low]}) is above {high} ({values[high]})")
