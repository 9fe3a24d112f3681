"""The security of an embedded cluster: its users, the certificates that it makes, and the options of clients."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyclient.acls import acl_of
from pyclient.broker_embedded.config.listeners import INTER_BROKER_USER
from pyclient.config.addresses import parse_address
from pyclient.config.broker_security import AUTHORIZER, PROTOCOLS, STANDARD_AUTHORIZER
from pyclient.errors import ClosedError, ConfigError

if TYPE_CHECKING:
    from pyclient.broker_embedded.cluster.authority import Authority

_RULES: Final = "RULE:^CN=([^,]+)$/$1/,DEFAULT"
"""Make the common name of a certificate the user's name, as the cluster's own certificates have it."""

_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_KEYS: Final = frozenset({"ssl.keystore.location", "ssl.keystore.key"})


class ClusterSecurity:
    """One protocol for all listeners of a cluster. With `SSL` and users, clients show a certificate that names one."""

    def __init__(
        self, protocol: str, users: Mapping[str, str] | Iterable[str] | None, acls: Iterable[Any] | None = None
    ) -> None:
        """With `acls`, also an empty list, there is an authorizer.

        Raise `ConfigError` for an unknown protocol, a user's name that nodes use, or what is no ACL.
        """
        if protocol not in PROTOCOLS:
            raise ConfigError(f"security is {protocol!r}: it must be one of {', '.join(PROTOCOLS)}")
        if users is not None and not isinstance(users, Mapping):
            if protocol != "SSL":
                raise ConfigError(f'users is {users!r}: with {protocol} it has passwords, like {{"alice": "password"}}')
            users = {user: secrets.token_urlsafe(24) for user in users}
        if INTER_BROKER_USER in (users or ()):
            raise ConfigError(f"user {INTER_BROKER_USER!r} is the nodes' own: choose another name")
        self.protocol = protocol
        self.users = dict(users or {})
        self._nodes_password = secrets.token_urlsafe(24)
        self._authority: Authority | None = None
        self._has_acls = acls is not None
        try:
            self.acls = tuple(acl_of(each) for each in acls or ())
        except ValueError as error:
            raise ConfigError(f"acls: {error}") from None

    def __repr__(self) -> str:
        return f"<ClusterSecurity {self.protocol} users={len(self.users)}>"

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in by SASL."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def node_users(self, *, several: bool) -> dict[str, str]:
        """Return the users that nodes know: with several nodes, the one as which these connect to each other, too."""
        if self.uses_sasl and self.users and several:
            return {**self.users, INTER_BROKER_USER: self._nodes_password}
        return self.users

    def authorizer(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the authorizer, with the nodes as super users in addition to those that are given."""
        if not self._has_acls:
            return {}
        users = [str(given["super.users"])] if given.get("super.users") else []
        if not self.users:
            raise ConfigError("acls are given without users: nobody could say who it is")
        return {AUTHORIZER: STANDARD_AUTHORIZER, "super.users": ";".join((*users, f"User:{INTER_BROKER_USER}"))}

    def options(self, data_dir: str, host: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of nodes for TLS. Make what certificates are missing, in `data_dir`.

        Certificates that are `given` take the place of the cluster's own.
        """
        if not self.uses_tls or _KEYS & given.keys():
            return {}
        from pyclient.broker_embedded.cluster.authority import Authority

        os.makedirs(data_dir, exist_ok=True)
        self._authority = Authority(data_dir)
        options = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._authority.of_nodes(INTER_BROKER_USER, (*_HOSTS, host)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._authority.certificate_path,
            "ssl.principal.mapping.rules": _RULES,
        }
        if self.protocol == "SSL" and self.users:
            options["ssl.client.auth"] = "required"
        return {name: value for name, value in options.items() if name not in given}

    def client_options(self, user: str | None, mechanism: str) -> dict[str, Any]:
        """Return the options of a client. Raise `ConfigError` for an unknown user, `ClosedError` before the start."""
        if user is None and self.users:
            raise ConfigError(f"the cluster has users, say as which one: {', '.join(sorted(self.users))}")
        if user is not None and user not in self.users:
            raise ConfigError(f"user {user!r} is not one of this cluster's, which are {sorted(self.users)}")
        options: dict[str, Any] = {} if self.protocol == "PLAINTEXT" else {"security_protocol": self.protocol}
        if self.uses_tls and self._authority is None:
            raise ClosedError("the cluster has its certificates once it was started: use `with` or start() first")
        if self._authority is not None:
            options["ssl_cafile"] = self._authority.certificate_path
            if self.protocol == "SSL" and user is not None:
                options["ssl_certfile"] = self._authority.of_user(user)
        if self.uses_sasl and user is not None:
            options |= {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": self.users[user]}
        return options


def host_of(settings: Mapping[str, Any], host: str) -> str:
    """Return the host of the first advertised address, or `host`."""
    text = str(settings.get("advertised.listeners") or "").partition(",")[0]
    return parse_address(text)[0] if text else host
