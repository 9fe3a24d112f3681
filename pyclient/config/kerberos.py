"""The options of GSSAPI together: as which principal a client logs in by Kerberos, and where its tickets come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyclient.config.sasl import KerberosEntry, SaslMechanism, read_jaas

_SERVICE: Final = "sasl_kerberos_service_name"
_PRINCIPAL: Final = "sasl_kerberos_principal"
_KEYTAB: Final = "sasl_kerberos_keytab"

OPTIONS: Final = (_SERVICE, _PRINCIPAL, _KEYTAB)
"""The options that GSSAPI alone uses."""

_DEFAULT_SERVICE: Final = "kafka"


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The login of a client: from a keytab, or else from a ticket cache, None for the system's default one."""

    service_name: str = _DEFAULT_SERVICE
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


class KerberosOptions(Protocol):
    """The options of a `ClientConfig` that say how it logs in by Kerberos."""

    @property
    def uses_sasl(self) -> bool:
        """True if the client authenticates itself by SASL."""

    @property
    def sasl_mechanism(self) -> SaslMechanism | None:
        """The mechanism by which the client authenticates."""

    @property
    def sasl_jaas_config(self) -> str | None:
        """An entry of a JAAS configuration."""

    @property
    def sasl_kerberos_service_name(self) -> str | None:
        """The first part of the brokers' principals."""

    @property
    def sasl_kerberos_principal(self) -> str | None:
        """The principal that the client logs in as."""

    @property
    def sasl_kerberos_keytab(self) -> str | None:
        """The file with the principal's keys."""


def checked_text(value: Any) -> str:
    """Return `value` if it is a text without NUL that is not empty; otherwise raise `ValueError`."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError
    value.encode()  # raises a `ValueError` for a lone surrogate
    return value


def checked_name(value: Any) -> str:
    """Return `value` if it can be the first part of a service's principal; otherwise raise `ValueError`."""
    text = checked_text(value)
    if "/" in text or "@" in text:
        raise ValueError("the host is that of the broker, and the realm that of the host")
    return text


def settings_of(config: KerberosOptions) -> KerberosSettings | None:
    """Return what the options say; None if GSSAPI is not used."""
    if not config.uses_sasl or config.sasl_mechanism != "GSSAPI":
        return None
    entry = KerberosEntry() if config.sasl_jaas_config is None else read_jaas(config.sasl_jaas_config).kerberos
    return KerberosSettings(
        config.sasl_kerberos_service_name or entry.service_name or _DEFAULT_SERVICE,
        config.sasl_kerberos_principal or entry.principal,
        config.sasl_kerberos_keytab or entry.keytab,
        entry.ticket_cache,
    )


def conflicts(config: KerberosOptions, of_others: Iterable[str]) -> Iterator[str]:
    """Yield one text for each invalid combination of options if GSSAPI is the mechanism.

    `of_others` are the names of options that only other mechanisms use.
    """
    for name in of_others:
        if getattr(config, name) is not None:
            yield f"{name} is not used by sasl_mechanism GSSAPI: drop it"
    if config.sasl_jaas_config is None:
        return
    login = read_jaas(config.sasl_jaas_config)
    if "GSSAPI" not in login.mechanisms:
        yield "sasl_jaas_config has another login module than Krb5LoginModule, sasl_mechanism is GSSAPI"
        return
    for name in (_PRINCIPAL, _KEYTAB):
        if getattr(config, name) is not None:
            yield f"sasl_jaas_config and {name} are both given: drop one"
    given, service = config.sasl_kerberos_service_name, login.kerberos.service_name
    if given is not None and service is not None and given != service:
        yield f"{_SERVICE} is {given}, and serviceName in sasl_jaas_config is {service}: drop one"
