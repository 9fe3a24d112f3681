"""An identity server on loopback: it signs tokens, serves its keys, and answers requests for tokens as a test says."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key

ISSUER: Final = "https://identity.test"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def encoded(part: Any) -> str:
    """Return a part of a token."""
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def claims_of(user: str = "alice", **changes: Any) -> dict[str, Any]:
    """Return the claims of a good token. A change to None leaves the claim out."""
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": "kafka", "sub": user, "iat": now, "exp": now + 600, **changes}
    return {name: value for name, value in claims.items() if value is not None}


class Signer:
    """A key with an id, and the tokens that it signs."""

    def __init__(self, key: Key | None = None, kid: str = "first", algorithm: str = "ES256") -> None:
        self.key = key or ECKey.generate_key("P-256")
        self.kid = kid
        self.algorithm = algorithm

    @property
    def public(self) -> dict[str, Any]:
        return {**self.key.as_dict(private=False), "kid": self.kid}

    def sign(self, claims: Any, **header: Any) -> str:
        payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
        registry = jws.JWSRegistry(algorithms=[self.algorithm], strict_check_header=False)
        registry.max_payload_length = 1 << 20
        given = {"alg": self.algorithm, "kid": self.kid, **header}
        protected = {name: value for name, value in given.items() if value is not None}
        return jws.serialize_compact(protected, payload, self.key, registry=registry)

    def token(self, user: str = "alice", **changes: Any) -> str:
        return self.sign(claims_of(user, **changes))


class Asked(NamedTuple):
    """One request for a token."""

    authorization: str | None
    form: dict[str, str]


class KnownClient:
    """Answers requests for tokens as a server that knows a client by its public key (RFC 7523, 3)."""

    def __init__(self, server: IdentityServer, key: Key, algorithm: str, name: str = "alice") -> None:
        """Make a client; `name` is both issuer and subject of its assertions."""
        self._server = server
        self._key = key
        self._registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        self._name = name
        self.headers: list[dict[str, Any]] = []
        self.claims: list[dict[str, Any]] = []
        """Of the assertions that were accepted."""

    def __call__(self, asked: Asked) -> tuple[int, Any]:
        form = asked.form
        is_grant = form.get("grant_type") == JWT_BEARER
        if asked.authorization is not None or "client_secret" in form:
            return 400, {"error": "invalid_request", "error_description": "two ways to authenticate"}
        if not is_grant and (form["grant_type"], form.get("client_assertion_type")) != (
            "client_credentials",
            CLIENT_ASSERTION,
        ):
            return 400, {"error": "unsupported_grant_type"}
        if form.get("client_id", self._name) != self._name:
            return 401, {"error": "invalid_client", "error_description": "client_id is not the subject"}
        try:
            found = jwt.decode(
                form["assertion" if is_grant else "client_assertion"], self._key, registry=self._registry
            )
            one = {"essential": True, "value": self._name}
            audience = {"essential": True, "value": f"{self._server.url}/token"}
            jwt.JWTClaimsRegistry(iss=one, sub=one, aud=audience, exp={"essential": True}).validate(found.claims)
        except JoseError as error:
            return (400 if is_grant else 401), {
                "error": "invalid_grant" if is_grant else "invalid_client",
                "error_description": f"{error.error}: {form.get('assertion', form.get('client_assertion'))}",
            }
        used = [claims["jti"] for claims in self.claims if "jti" in claims]
        if found.claims.get("jti") in used:
            return 401, {"error": "invalid_client", "error_description": "this assertion was used"}
        self.headers.append(found.header)
        self.claims.append(found.claims)
        return 200, {"access_token": self._server.signer.token(self._name), "token_type": "Bearer", "expires_in": 600}


class IdentityServer:
    """Serves `/keys`, and at `/token` what `answer` returns: a status and a JSON document, or bytes."""

    def __init__(self, signer: Signer | None = None, certificate: Path | None = None) -> None:
        """Make a server, with TLS if there is a `certificate`."""
        self.signer = signer or Signer()
        self.keys: Any = {"keys": [self.signer.public]}
        self.keys_status = 200
        self.keys_fetched = 0
        self.asked: list[Asked] = []
        self.answer: Callable[[Asked], tuple[int, Any]] = self._token
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._certificate = certificate
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that refuses it
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        scheme = "http" if self._certificate is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> IdentityServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _token(self, asked: Asked) -> tuple[int, Any]:
        return 200, {"access_token": self.signer.token(), "token_type": "Bearer", "expires_in": 600}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.keys_fetched += 1
                self.reply(served.keys_status, served.keys)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body, strict_parsing=True).items()}
                served.asked.append(Asked(self.headers["Authorization"], form))
                self.reply(*served.answer(served.asked[-1]))

            def reply(self, status: int, document: Any) -> None:
                content = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"{served.url}/elsewhere")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler
