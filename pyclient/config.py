"""Options: what a client can be told, stated once as typed fields, read from keywords and Kafka-style dictionaries."""

from __future__ import annotations

import dataclasses
import ssl
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, TypeVar

from pyclient.errors import ConfigError

C = TypeVar("C", bound="ClientConfig")

_KEY = "option"
_HIDDEN = "<hidden>"


@dataclass(frozen=True, slots=True)
class Option:
    """The rule of one option, kept in its dataclass field's metadata."""

    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] | None = None
    convert: Callable[[Any], Any] | None = None
    allowed: str | None = None
    aliases: tuple[str, ...] = ()
    secret: bool = False


def option(
    default: Any,
    *,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[Any] | None = None,
    convert: Callable[[Any], Any] | None = None,
    allowed: str | None = None,
    aliases: Iterable[str] = (),
    secret: bool = False,
) -> Any:
    """A config field with its rule.

    The field's annotation gives the type: `int`, `float`, `bool`, `str`, a tuple of `str`, any of them or `None`;
    values of other types pass as they are. `minimum` and `maximum` are inclusive. `choices` of strings are compared
    without case and stored as written here. `convert` replaces the type's own reading: it gets what the user gave and
    returns the value or raises `ValueError`; `allowed` then says in words what may be given. `aliases` are other
    clients' names for the same option. The value of a `secret` option never appears in an error or a repr.
    """
    rule = Option(
        doc=doc,
        minimum=minimum,
        maximum=maximum,
        choices=None if choices is None else tuple(choices),
        convert=convert,
        allowed=allowed,
        aliases=tuple(aliases),
        secret=secret,
    )
    return dataclasses.field(default=default, repr=not secret, metadata={_KEY: rule})


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of "host:port", "[::1]:9092" or "PLAINTEXT://host:port"; `ValueError` if it is none of these."""
    rest = text.strip().rpartition("://")[2].rstrip("/")
    host, _, port = rest.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address goes in brackets, like [::1]:9092")
    if not host or any(character.isspace() or character in "/@[]" for character in host):
        raise ValueError(f"{text!r} is not host:port")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
        raise ValueError(f"{text!r}: the port must be a number from 1 to 65535")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """An address as Kafka writes it: "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _addresses(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"{value!r} is neither a string nor a list of strings")
    parsed = (parse_address(item) for item in items if item.strip())
    return tuple(dict.fromkeys(format_address(host, port) for host, port in parsed))


_TLS_BY_PEM = "pyclient reads PEM files: use ssl_cafile, ssl_certfile and ssl_keyfile, or a whole ssl_context"
_NO_METRICS_PLUGINS = "pyclient has no metrics plug-ins; client.health() tells a client's state"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The options that every client has. Names, units and defaults are Kafka's, with `_` for `.`."""

    not_supported: ClassVar[Mapping[str, str]] = {
        "sasl_mechanism": "SASL is not supported yet",
        "sasl_mechanisms": "SASL is not supported yet",
        "sasl_username": "SASL is not supported yet",
        "sasl_password": "SASL is not supported yet",
        "sasl_plain_username": "SASL is not supported yet",
        "sasl_plain_password": "SASL is not supported yet",
        "sasl_jaas_config": "SASL is not supported yet",
        "ssl_truststore_location": _TLS_BY_PEM,
        "ssl_truststore_password": _TLS_BY_PEM,
        "ssl_truststore_type": _TLS_BY_PEM,
        "ssl_truststore_certificates": _TLS_BY_PEM,
        "ssl_keystore_location": _TLS_BY_PEM,
        "ssl_keystore_password": _TLS_BY_PEM,
        "ssl_keystore_type": _TLS_BY_PEM,
        "ssl_keystore_key": _TLS_BY_PEM,
        "ssl_keystore_certificate_chain": _TLS_BY_PEM,
        "ssl_endpoint_identification_algorithm": "use ssl_check_hostname=False to accept any host name",
        "ssl_protocol": "set it in an ssl_context of your own",
        "ssl_enabled_protocols": "set it in an ssl_context of your own",
        "ssl_cipher_suites": "set it in an ssl_context of your own",
        "metric_reporters": _NO_METRICS_PLUGINS,
        "metrics_num_samples": _NO_METRICS_PLUGINS,
        "metrics_recording_level": _NO_METRICS_PLUGINS,
        "metrics_sample_window_ms": _NO_METRICS_PLUGINS,
        "enable_metrics_push": "pyclient sends no telemetry, so there is nothing to turn off",
        "interceptor_classes": "there are no interceptors; wrap the call instead",
        "client_dns_lookup": "every address a name resolves to is tried (Kafka's use_all_dns_ips)",
        "socket_connection_setup_timeout_max_ms": "every attempt has socket_connection_setup_timeout_ms",
        "metadata_recovery_strategy": "the bootstrap addresses are always tried again (Kafka's rebootstrap)",
        "metadata_recovery_rebootstrap_trigger_ms": "the bootstrap addresses are tried as soon as no node answers",
        "enable_ssl_certificate_verification": "give an ssl_context that does not verify",
        "security_providers": "this is an option of the Java runtime",
        "config_providers": "pass values, or read them from os.environ",
    }
    """Kafka options that are refused, and what to do instead. A subclass may extend it."""

    bootstrap_servers: tuple[str, ...] = option(
        (),
        doc="Where to begin: some brokers' addresses, 'host:port,host:port' or a list. The others are found from them.",
        convert=_addresses,
        allowed="'host:port', several with commas or as a list",
        aliases=("metadata_broker_list",),
    )
    client_id: str = option("pyclient", doc="The name this client has in the broker's logs and quotas.")
    request_timeout_ms: int = option(
        30_000,
        doc="How long one request may wait for its answer; then its connection is closed and it may be retried.",
        minimum=1,
    )
    retry_backoff_ms: int = option(100, doc="How long to wait before the first retry; doubles each time.", minimum=0)
    retry_backoff_max_ms: int = option(1_000, doc="The longest wait before a retry.", minimum=0)
    reconnect_backoff_ms: int = option(
        50, doc="How long to wait before connecting to a broker again; doubles each time it fails.", minimum=0
    )
    reconnect_backoff_max_ms: int = option(
        1_000, doc="The longest wait before connecting to a broker again.", minimum=0
    )
    socket_connection_setup_timeout_ms: int = option(
        10_000, doc="How long one attempt to connect may take: name lookup, TCP, TLS and version handshake.", minimum=1
    )
    connections_max_idle_ms: int = option(
        540_000, doc="Connections unused for so long are closed; -1 keeps them.", minimum=-1
    )
    metadata_max_age_ms: int = option(
        300_000,
        doc="How old the picture of the cluster may get before it is asked for again.",
        minimum=1,
        aliases=("topic_metadata_refresh_interval_ms",),
    )
    send_buffer_bytes: int = option(
        -1, doc="The socket's send buffer (SO_SNDBUF); -1 leaves it to the system.", minimum=-1
    )
    receive_buffer_bytes: int = option(
        -1, doc="The socket's receive buffer (SO_RCVBUF); -1 leaves it to the system.", minimum=-1
    )
    receive_message_max_bytes: int = option(
        100_000_000,
        doc="The largest response accepted; a larger one closes the connection before anything is allocated for it.",
        minimum=1_000,
        maximum=2**31 - 1,
    )
    security_protocol: str = option(
        "PLAINTEXT", doc="PLAINTEXT, or SSL for TLS.", choices=("PLAINTEXT", "SSL"), allowed="PLAINTEXT or SSL"
    )
    ssl_context: ssl.SSLContext | None = option(
        None, doc="A ready TLS context; the other ssl_ options may not be given beside it."
    )
    ssl_cafile: str | None = option(
        None,
        doc="PEM file with the authorities to trust; without it the system's own are trusted.",
        aliases=("ssl_ca_location",),
    )
    ssl_certfile: str | None = option(
        None, doc="PEM file with this client's certificate chain.", aliases=("ssl_certificate_location",)
    )
    ssl_keyfile: str | None = option(
        None, doc="PEM file with the certificate's private key.", aliases=("ssl_key_location",)
    )
    ssl_password: str | None = option(
        None, doc="The private key's password.", aliases=("ssl_key_password",), secret=True
    )
    ssl_check_hostname: bool = option(
        True, doc="Whether the broker's certificate must name the host that was connected to."
    )

    def __post_init__(self) -> None:
        """Checks every option, a subclass's too; a subclass with its own `__post_init__` calls this one first."""
        for name, spec in options_of(type(self)).items():
            object.__setattr__(self, name, spec.read(getattr(self, name)))
        if not self.bootstrap_servers:
            raise ConfigError(
                "bootstrap_servers is missing: give a broker's address, like bootstrap_servers='localhost:9092'"
            )
        self._check_tls()

    def _check_tls(self) -> None:
        names = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
        files = [name for name in names if getattr(self, name) is not None]
        given = [*files, *(["ssl_context"] if self.ssl_context is not None else [])]
        if given and self.security_protocol != "SSL":
            raise ConfigError(f"{given[0]} is given, but security_protocol is PLAINTEXT: set security_protocol='SSL'")
        if files and self.ssl_context is not None:
            raise ConfigError(f"ssl_context and {files[0]} are both given: load the file into the context, or drop one")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ConfigError("ssl_keyfile needs ssl_certfile, the certificate that the key belongs to")


class ClientOptions(TypedDict, total=False):
    """The keyword arguments that every client takes; `ClientConfig` documents them."""

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
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool


def resolve(
    cls: type[C],
    options: Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
) -> C:
    """A config from keyword `options` and a Kafka-style `config` dictionary.

    The dictionary's names have dots or underscores, its values may be strings: `{"linger.ms": "5"}`. A keyword of
    `None` means the default where `None` is no value of the option; in the dictionary, which says what it wants, it is
    impossible. Raises `ConfigError` for an option that is
    unknown, impossible, not supported, or given twice.
    """
    specs = options_of(cls)
    names = {alias: name for name, spec in specs.items() for alias in (name, *spec.rule.aliases)}
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for given, value, source, by_keyword in _given(options, config):
        name = names.get(given.replace(".", "_"))
        if name is None:
            raise ConfigError(_unknown(cls, given, names))
        if value is None and by_keyword and not specs[name].nullable:
            continue
        if name in origin:
            raise ConfigError(f"{name} is given twice: {origin[name]} and {source}")
        origin[name] = source
        values[name] = specs[name].read(value)
    return cls(**values)


def _given(options: Mapping[str, Any], config: Mapping[str, Any] | None) -> Iterable[tuple[str, Any, str, bool]]:
    """Name, value, where it was given in words, and whether that is as a keyword."""
    for name, value in options.items():
        yield name, value, f"as keyword {name}", True
    for name, value in (config or {}).items():
        if not isinstance(name, str):
            raise ConfigError(f"config has the key {name!r}: option names are strings, like 'linger.ms'")
        yield name, value, f"in config as {name!r}", False


def _unknown(cls: type[ClientConfig], given: str, names: Mapping[str, str]) -> str:
    plain = given.replace(".", "_")
    hint = cls.not_supported.get(plain)
    if hint is None and plain.startswith("sasl_"):
        hint = "SASL is not supported yet"
    if hint is not None:
        return f"option {given} is not supported: {hint}"
    import difflib  # only the path of an error needs it

    near = difflib.get_close_matches(plain, names, n=1, cutoff=0.6)
    kind = cls.__name__.removesuffix("Config").lower()
    closing = f"did you mean {names[near[0]]}?" if near else f"a {kind} knows: {', '.join(sorted(set(names.values())))}"
    return f"unknown option {given}; {closing}"


@dataclass(frozen=True, slots=True)
class Spec:
    """One option of a config class: its name, its type and its rule."""

    name: str
    kind: Any
    nullable: bool
    rule: Option

    def read(self, value: Any) -> Any:
        """The value as the config keeps it; `ConfigError` if it is impossible."""
        if value is None and self.nullable:
            return None
        try:
            value = self._typed(value)
        except ValueError as error:
            raise ConfigError(self._complaint(value, str(error))) from None
        rule = self.rule
        if (rule.minimum is not None and value < rule.minimum) or (rule.maximum is not None and value > rule.maximum):
            raise ConfigError(self._complaint(value))
        if rule.choices is not None:
            return self._choose(value)
        return value

    def _typed(self, value: Any) -> Any:
        if self.rule.convert is not None:
            return self.rule.convert(value)
        reader = _READERS.get(self.kind)
        if reader is not None:
            return reader(value)
        if isinstance(self.kind, type) and not isinstance(value, self.kind):
            raise ValueError
        return value

    def _choose(self, value: Any) -> Any:
        folded = value.casefold() if isinstance(value, str) else value
        for choice in self.rule.choices or ():
            if (choice.casefold() if isinstance(choice, str) else choice) == folded:
                return choice
        raise ConfigError(self._complaint(value))

    def _complaint(self, value: Any, detail: str = "") -> str:
        shown = _HIDDEN if self.rule.secret else repr(value)
        text = f"{self.name}={shown} is not possible: it takes {self.allowed()}"
        return f"{text} ({detail})" if detail and not self.rule.secret else text

    def allowed(self) -> str:
        """In words, what may be given."""
        rule = self.rule
        if rule.allowed is not None:
            return rule.allowed
        if rule.choices is not None:
            return " or ".join(str(choice) for choice in rule.choices)
        noun = _NOUNS.get(self.kind, getattr(self.kind, "__name__", str(self.kind)))
        if rule.minimum is not None and rule.maximum is not None:
            noun += f" from {rule.minimum:g} to {rule.maximum:g}"
        elif rule.minimum is not None:
            noun += f" of at least {rule.minimum:g}"
        elif rule.maximum is not None:
            noun += f" of at most {rule.maximum:g}"
        return f"{noun} or None" if self.nullable else noun


_SPECS: dict[type[ClientConfig], Mapping[str, Spec]] = {}


def options_of(cls: type[ClientConfig]) -> Mapping[str, Spec]:
    """The options of a config class by name, in the order they are declared."""
    if cls not in _SPECS:
        _SPECS[cls] = types.MappingProxyType(_specs_of(cls))
    return _SPECS[cls]


def _specs_of(cls: type[ClientConfig]) -> dict[str, Spec]:
    hints = typing.get_type_hints(cls)
    specs = {}
    for field in dataclasses.fields(cls):
        rule = field.metadata.get(_KEY)
        if rule is None:
            raise TypeError(f"{cls.__name__}.{field.name} is declared without option(...)")
        kind, nullable = _split_optional(hints[field.name])
        specs[field.name] = Spec(field.name, kind, nullable, rule)
    return specs


def _split_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return (kinds[0] if len(kinds) == 1 else object), len(kinds) < len(typing.get_args(hint))
    return hint, False


def _read_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    return int(value)


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)
    if number != number:
        raise ValueError("not a number")
    return number


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().casefold() in ("true", "false"):
        return value.strip().casefold() == "true"
    raise ValueError


def _read_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _read_strings(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ValueError
    return tuple(item.strip() for item in items if item.strip())


_READERS: Mapping[Any, Callable[[Any], Any]] = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_str,
    tuple[str, ...]: _read_strings,
}
_NOUNS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string",
    tuple[str, ...]: "strings, as a list or with commas",
    ssl.SSLContext: "an ssl.SSLContext",
}
