"""Read the SASL options of clients: the login modules of `sasl_jaas_config`, and the provider of OAuth tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]

BY_PASSWORD: Final = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
"""Mechanisms that need a user and a password."""

_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": frozenset({"PLAIN"}),
    "org.apache.kafka.common.security.scram.ScramLoginModule": frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"}),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": frozenset({"OAUTHBEARER"}),
}
_KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
_CLIENT_MODULES: Final = {**_MODULES, _KERBEROS_MODULE: frozenset({"GSSAPI"})}
_ENTRY: Final = re.compile(
    r"""\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)(?P<options>(?:\s+[\w.]+\s*=\s*"""
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';]+))*)\s*;\s*"""
)
_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""")
_EXTENSION: Final = "extension_"
_MSK: Final = (
    "for Amazon MSK drop it, and set sasl_mechanism to OAUTHBEARER and sasl_oauth_token_provider to "
    "pyclient.MskIamTokens(region)"
)
_KERBEROS_FLAGS: Final = frozenset({"useKeyTab", "useTicketCache", "isInitiator"})
_KERBEROS_OPTIONS: Final = _KERBEROS_FLAGS | {"keyTab", "principal", "serviceName", "ticketCache"}
_KERBEROS_WITHOUT_EFFECT: Final = frozenset(
    {
        "clearPass",
        "debug",
        "doNotPrompt",
        "refreshKrb5Config",
        "renewTGT",
        "renewTicket",
        "storeKey",
        "storePass",
        "tryFirstPass",
        "useFirstPass",
    }
)
"""About the Java runtime, about passwords, which are never asked for, or about renewing, which others do."""
_EXAMPLE: Final = (
    'one entry like org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
)


@dataclass(frozen=True, slots=True)
class KerberosEntry:
    """An entry for Krb5LoginModule; without a keytab, tickets come from a ticket cache."""

    keytab: str | None = None
    ticket_cache: str | None = None
    principal: str | None = None
    service_name: str | None = None


@dataclass(frozen=True, slots=True)
class Login:
    """An entry of a JAAS configuration. For OAUTHBEARER, user and password are the client's id and secret."""

    mechanisms: frozenset[str]
    username: str = ""
    password: str = field(default="", repr=False)
    by_token: bool = False
    """True if they are the id and the HMAC of a delegation token."""
    scope: str | None = None
    extensions: dict[str, str] = field(default_factory=dict)
    kerberos: KerberosEntry = KerberosEntry()


def checked_jaas(value: Any) -> str:
    """Return the entry if `read_jaas` understands it; otherwise raise its error."""
    read_jaas(value)
    text: str = value
    return text


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """An entry of a broker's JAAS configuration: its own user, if any, and the passwords of PLAIN's users."""

    mechanisms: frozenset[str]
    own: tuple[str, str] | None = field(repr=False)
    users: dict[str, str] = field(repr=False)
    of_client: str | None = field(default=None, repr=False)
    """For OAUTHBEARER: the entry, if it says as which client nodes get their tokens."""


def read_jaas(value: Any) -> Login:
    """Return what one entry says, for Kafka's login modules of PLAIN, SCRAM and OAUTHBEARER, or Java's Krb5LoginModule.

    Raise `ValueError` for anything else; its text has no part of the value but the name of a module or of an option.
    """
    module, options = _entry(value, _CLIENT_MODULES)
    name = module.rpartition(".")[2]
    if module == _KERBEROS_MODULE:
        return Login(_CLIENT_MODULES[module], kerberos=_kerberos_entry(name, options))
    extensions: dict[str, str] = {}
    known = {"username", "password", "serviceName"}
    if name == "ScramLoginModule":
        known.add("tokenauth")
    if "OAUTHBEARER" in _MODULES[module]:
        known = {"clientId", "clientSecret", "scope"}
        extensions = {key.removeprefix(_EXTENSION): text for key, text in options.items() if key.startswith(_EXTENSION)}
    unknown = options.keys() - known - {_EXTENSION + key for key in extensions}
    if unknown:
        raise ValueError(f"the option {min(unknown)} of {name} is not supported")
    if "clientId" in known:
        login = options.get("clientId", ""), options.get("clientSecret", "")
        return Login(_MODULES[module], *login, scope=options.get("scope"), extensions=extensions)
    if not options.get("username") or "password" not in options:
        raise ValueError(f"{name} needs username and password")
    by_token = options.get("tokenauth", "").lower() == "true"
    return Login(_MODULES[module], options["username"], options["password"], by_token)


def _kerberos_entry(name: str, options: dict[str, str]) -> KerberosEntry:
    """Return what the options of Krb5LoginModule say. A keytab goes before a ticket cache."""
    unknown = options.keys() - _KERBEROS_OPTIONS - _KERBEROS_WITHOUT_EFFECT
    if unknown:
        raise ValueError(f"the option {min(unknown)} of {name} is not supported")
    flags = {flag: options.get(flag, "").lower() for flag in sorted(_KERBEROS_FLAGS)}
    for flag, text in flags.items():
        if text not in ("", "true", "false"):
            raise ValueError(f"the option {flag} of {name} is true or false")
    if flags["isInitiator"] == "false":
        raise ValueError(f"the option isInitiator of {name} is false, but clients are initiators: drop it")
    principal, service_name = options.get("principal") or None, options.get("serviceName") or None
    if flags["useKeyTab"] == "true":
        if not options.get("keyTab"):
            raise ValueError(f"{name} needs keyTab, the path of the keytab, with useKeyTab=true")
        return KerberosEntry(options["keyTab"], None, principal, service_name)
    if flags["useTicketCache"] != "true":
        raise ValueError(f"{name} needs useKeyTab=true and keyTab, or useTicketCache=true")
    return KerberosEntry(None, options.get("ticketCache") or None, principal, service_name)


def read_broker_jaas(value: Any) -> BrokerLogin:
    """Return what a broker's entry says: `username`, `password`, and `user_NAME="password"` for PLAIN.

    That of OAUTHBEARER has the options of a client, with which nodes get tokens for each other, or none. Tokens without
    a signature are not accepted. Raise `ValueError` like `read_jaas`.
    """
    module, options = _entry(value, _MODULES)
    if "OAUTHBEARER" in _MODULES[module]:
        read_jaas(value)
        return BrokerLogin(_MODULES[module], None, {}, value if options else None)
    users = {name.removeprefix("user_"): text for name, text in options.items() if name.startswith("user_")}
    own = {name: options[name] for name in ("username", "password") if name in options}
    unknown = options.keys() - own.keys() - {f"user_{name}" for name in users} - {"serviceName"}
    if unknown:
        raise ValueError(f"the option {min(unknown)} of {module.rpartition('.')[2]} is not supported")
    if len(own) == 1:
        raise ValueError(f"{module.rpartition('.')[2]} needs both username and password, or neither")
    return BrokerLogin(_MODULES[module], (own["username"], own["password"]) if own else None, users)


def _entry(value: Any, modules: Mapping[str, frozenset[str]]) -> tuple[str, dict[str, str]]:
    """Return the module, one of `modules`, and the options of an entry."""
    entry = _ENTRY.fullmatch(value) if isinstance(value, str) else None
    if entry is None:
        raise ValueError(f"it is not {_EXAMPLE}")
    module = entry["module"]
    if module.endswith(".IAMLoginModule"):
        raise ValueError(f"IAMLoginModule is Java's: {_MSK}")
    if module not in modules:
        known = " and ".join(modules)
        raise ValueError(f"of login modules, {known} are understood, not {module}")
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single) or bare
        for name, double, single, bare in _OPTION.findall(entry["options"])
    }
    return module, options


def read_token_provider(value: Any) -> Callable[[], Any]:
    """Return a callable that supplies OAuth tokens, from a callable or an object with a method `token`."""
    provider = getattr(value, "token", value)
    if not callable(provider):
        raise ValueError
    found: Callable[[], Any] = provider
    return found
