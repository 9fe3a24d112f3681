"""The security of an embedded cluster: its users, the certificates that it makes, and the options of clients."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyclient.acls import acl_of
from pyclient.broker_embedded.cluster.private_files import write_private
from pyclient.broker_embedded.config.listeners import INTER_BROKER_USER, OAUTHBEARER
from pyclient.broker_embedded.controller.delegation_tokens import SECRET_KEY
from pyclient.broker_embedded.log.data_directory import CERTIFICATES
from pyclient.config.addresses import parse_address
from pyclient.config.broker_security import AUTHORIZER, PROTOCOLS, STANDARD_AUTHORIZER
from pyclient.errors import ClosedError, ConfigError

if TYPE_CHECKING:
    from pyclient.broker_embedded.cluster.authority import Authority
    from pyclient.broker_embedded.cluster.token_key import TokenKey, UserTokens

_RULES: Final = "RULE:^CN=([^,]+)$/$1/,DEFAULT"
"""Make the common name of a certificate the user's name, as the cluster's own certificates have it."""

_RULES_OPTION: Final = "ssl.principal.mapping.rules"
_RULE_OF_NODES: Final = f"RULE:^CN={INTER_BROKER_USER}$/{INTER_BROKER_USER}/"

_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_KEYS: Final = frozenset({"ssl.keystore.location", "ssl.keystore.key"})
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"


class ClusterSecurity:
    """One protocol for all listeners of a cluster, and its users.

    Users without passwords authenticate by a certificate that names them (`SSL`), or by a token (SASL).
    """

    def __init__(
        self, protocol: str, users: Mapping[str, str] | Iterable[str] | None, acls: Iterable[Any] | None = None
    ) -> None:
        """With `acls`, also an empty list, there is an authorizer.

        Raise `ConfigError` for an unknown protocol, a user's name that nodes use, or what is no ACL.
        """
        if protocol not in PROTOCOLS:
            raise ConfigError(f"security is {protocol!r}: it must be one of {', '.join(PROTOCOLS)}")
        self._by_token = False
        if users is not None and not isinstance(users, Mapping):
            if protocol == "PLAINTEXT" or isinstance(users, str):
                raise ConfigError(f'users is {users!r}: it must be like {{"alice": "password"}}, or names in a list')
            users = {user: _password() for user in users}
            self._by_token = protocol != "SSL" and bool(users)
        if INTER_BROKER_USER in (users or ()):
            raise ConfigError(f"user {INTER_BROKER_USER!r} is the nodes' own: choose another name")
        self.protocol = protocol
        self.users = dict(users or {})
        self._nodes_password = _password()
        self._authority: Authority | None = None
        self._token_key: TokenKey | None = None
        self._has_acls = acls is not None
        try:
            self.acls = tuple(acl_of(each) for each in acls or ())
        except ValueError as error:
            raise ConfigError(f"acls: {error}") from None

    def __repr__(self) -> str:
        return f"<ClusterSecurity {self.protocol} users={len(self.users)}>"

    @property
    def uses_tls(self) -> bool:
        """Return True if connections are encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Return True if clients log in by SASL."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def node_users(self, *, several: bool) -> dict[str, str]:
        """Return the users that nodes know: with several nodes, the one as which these connect to each other, too."""
        by_password = {} if self._by_token else self.users
        if self.uses_sasl and self.users and several:
            return {**by_password, INTER_BROKER_USER: self._nodes_password}
        return by_password

    def mechanisms(self, *, several: bool) -> dict[str, Any]:
        """Return `sasl.enabled.mechanisms` for users with tokens; several nodes connect to each other by PLAIN."""
        if not self._by_token:
            return {}
        return {"sasl.enabled.mechanisms": f"PLAIN,{OAUTHBEARER}" if several else OAUTHBEARER}

    def authorizer(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the authorizer, with the nodes as super users in addition to those that are given."""
        if not self._has_acls:
            return {}
        users = [str(given["super.users"])] if given.get("super.users") else []
        if not self.users:
            raise ConfigError("acls are given without users: without users no client can authenticate; give users, too")
        return {AUTHORIZER: STANDARD_AUTHORIZER, "super.users": ";".join((*users, f"User:{INTER_BROKER_USER}"))}

    def rules_of_nodes(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rules for certificates' names that are in `options`, after one for the cluster's own nodes.

        Without it, rules that are for clients only would name the nodes otherwise than `super.users` does.
        """
        if self._authority is None:
            return {}
        return {
            name: f"{_RULE_OF_NODES},{text or 'DEFAULT'}"
            for name, text in options.items()
            if name.endswith(_RULES_OPTION) and text != _RULES
        }

    def options(self, data_dir: str, host: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the nodes' options for TLS and tokens. Create missing certificates and keys in `data_dir`.

        None are created for options that are `given`.
        """
        return {**self._tls_options(data_dir, host, given), **self._token_options(data_dir, given)}

    def secret_key(self, data_dir: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the option of delegation tokens' secret key, which is made in `data_dir` if it is not there.

        Empty without users for SASL, or if the key is `given`. Raise `ConfigError` for a file that cannot be read.
        """
        if not self.uses_sasl or not self.users or SECRET_KEY in given:
            return {}
        os.makedirs(data_dir, exist_ok=True)
        path = os.path.join(data_dir, f"{CERTIFICATES}delegation-tokens.key")
        try:
            if not os.path.exists(path):
                write_private(path, _password(48).encode())
            with open(path, encoding="ascii") as file:
                return {SECRET_KEY: file.read()}
        except (OSError, ValueError) as error:
            raise ConfigError(f"the key of delegation tokens in {data_dir} cannot be used: {error}") from error

    def _token_options(self, data_dir: str, given: Mapping[str, Any]) -> dict[str, Any]:
        asked = self._by_token or (self.users and OAUTHBEARER in str(given.get("sasl.enabled.mechanisms")))
        if not self.uses_sasl or not asked or _JWKS in given:
            return {}
        from pyclient.broker_embedded.cluster.token_key import AUDIENCE, ISSUER, TokenKey

        os.makedirs(data_dir, exist_ok=True)
        self._token_key = TokenKey(data_dir)
        return {
            _JWKS: self._token_key.keys_url,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    def _tls_options(self, data_dir: str, host: str, given: Mapping[str, Any]) -> dict[str, Any]:
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
            _RULES_OPTION: _RULES,
        }
        if self.protocol == "SSL" and self.users:
            options["ssl.client.auth"] = "required"
        return {name: value for name, value in options.items() if name not in given}

    def client_options(self, user: str | None, mechanism: str | None) -> dict[str, Any]:
        """Return the options of a client. Raise `ConfigError` for an unknown user, `ClosedError` before the start."""
        mechanism = mechanism or (OAUTHBEARER if self._by_token else "SCRAM-SHA-256")
        if user is None and self.users:
            raise ConfigError(f"the cluster has users, say as which one: {', '.join(sorted(self.users))}")
        if user is not None and user not in self.users:
            raise ConfigError(f"user {user!r} is not one of this cluster's, which are {sorted(self.users)}")
        options: dict[str, Any] = {} if self.protocol == "PLAINTEXT" else {"security_protocol": self.protocol}
        if self.uses_tls and self._authority is None:
            raise ClosedError("the cluster has certificates only after its start: use `with` or start() first")
        if self._authority is not None:
            options["ssl_cafile"] = self._authority.certificate_path
            if self.protocol == "SSL" and user is not None:
                options["ssl_certfile"] = self._authority.of_user(user)
        if self.uses_sasl and user is not None and mechanism == OAUTHBEARER:
            options |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": self._tokens_of(user)}
        elif self.uses_sasl and user is not None:
            if self._by_token:
                raise ConfigError(f"the users have tokens and no passwords: {mechanism} needs users with passwords")
            options |= {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": self.users[user]}
        return options

    def _tokens_of(self, user: str) -> UserTokens:
        if self._token_key is None:
            raise ClosedError(
                "the cluster signs tokens only after its start, if sasl.enabled.mechanisms has OAUTHBEARER and config "
                f"has no {_JWKS}: use `with` or start() first"
            )
        from pyclient.broker_embedded.cluster.token_key import UserTokens

        return UserTokens(self._token_key, user)


def host_of(settings: Mapping[str, Any], host: str) -> str:
    """Return the host of the first advertised address, or `host`."""
    text = str(settings.get("advertised.listeners") or "").partition(",")[0]
    return parse_address(text)[0] if text else host


def _password(size: int = 24) -> str:
    """Return a random password of `size` bytes in hexadecimal."""
    return os.urandom(size).hex()  # `secrets` takes the start of a node a millisecond to import
