"""The key pair of an embedded cluster with which it signs the tokens of its users, in place of an identity server."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Final

from pyclient.broker_embedded.cluster.private_files import write_private
from pyclient.broker_embedded.log.data_directory import CERTIFICATES
from pyclient.errors import ConfigError

try:
    from joserfc import jwt
    from joserfc.jwk import ECKey
except ModuleNotFoundError as error:
    raise ConfigError(
        f"a cluster that signs tokens needs the package joserfc ({error}): pip install 'pyclient-kafka[security]', or "
        "give sasl.oauthbearer.jwks.endpoint.url"
    ) from error

ISSUER: Final = "pyclient-embedded-cluster"
AUDIENCE: Final = "kafka"
_SECONDS: Final = 3600
_ALGORITHM: Final = "ES256"


class TokenKey:
    """Keeps the key pair as files in `directory`, which only this user can read."""

    def __init__(self, directory: str) -> None:
        """Create the key, or load the existing one. Raise `ConfigError` if its file cannot be read."""
        path = os.path.join(directory, f"{CERTIFICATES}tokens.key")
        try:
            if os.path.exists(path):
                self._key = ECKey.import_key(Path(path).read_bytes())
            else:
                self._key = ECKey.generate_key("P-256")
                write_private(path, self._key.as_pem(private=True))
            public = {"keys": [{**self._key.as_dict(private=False), "kid": self._key.thumbprint(), "use": "sig"}]}
            keys_path = os.path.join(directory, f"{CERTIFICATES}tokens.jwks")
            write_private(keys_path, json.dumps(public).encode())
        except (OSError, ValueError) as error:
            raise ConfigError(f"the key that signs tokens in {directory} cannot be used: {error}") from error
        self.keys_url = Path(os.path.abspath(keys_path)).as_uri()
        """The URL of the public key, for `sasl.oauthbearer.jwks.endpoint.url`."""

    def __repr__(self) -> str:
        return f"<TokenKey {self.keys_url}>"

    def sign(self, user: str) -> tuple[str, float]:
        """Return a token for a user, and its expiry in seconds since 1970."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + _SECONDS}
        token: str = jwt.encode({"alg": _ALGORITHM, "kid": self._key.thumbprint()}, claims, self._key)
        return token, float(now + _SECONDS)


class UserTokens:
    """A token provider for clients: called without arguments, it signs a new token."""

    def __init__(self, key: TokenKey, user: str) -> None:
        self._key = key
        self._user = user

    def __repr__(self) -> str:
        return f"<UserTokens of {self._user!r}>"

    def __call__(self) -> tuple[str, float]:
        return self._key.sign(self._user)
