"""A scripted broker with a SASL listener: PLAIN, SCRAM and OAUTHBEARER, with each step open to change."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from typing import Any

from pyclient.errors import MalformedMessage
from pyclient.net.sasl import scram
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.net.scripted import ScriptedBroker

SALT, ITERATIONS = b"salt of a user", 4096


def answer(data: bytes = b"", *, code: int = 0, text: str | None = None, lifetime_ms: int = 0) -> Any:
    return SaslAuthenticateResponse(
        error_code=code, error_message=text, auth_bytes=data, session_lifetime_ms=lifetime_ms
    )


class SaslServer:
    """Authenticates `users` and `tokens` on the connections of a `ScriptedBroker`; `state` is what was reached."""

    def __init__(
        self,
        users: Mapping[str, str] = {},
        *,
        tokens: Container[str] = (),
        mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        lifetime_ms: int = 0,
    ) -> None:
        self.users = users
        self.tokens = tokens
        self.mechanisms = mechanisms
        self.lifetime_ms = lifetime_ms
        self.accepted: list[str] = []
        self.extensions: list[str] = []
        self._mechanism = ""
        self._first: tuple[scram.ClientFirst, bytes] | None = None

    def broker(self, answers: Mapping[type, Any] | None = None, **options: Any) -> ScriptedBroker:
        return ScriptedBroker(
            {SaslHandshakeRequest: self._handshake, SaslAuthenticateRequest: self._authenticate, **(answers or {})},
            **options,
        )

    def _handshake(self, request: SaslHandshakeRequest, *_: Any) -> Any:
        self._mechanism, self._first = request.mechanism, None
        known = request.mechanism in self.mechanisms
        return SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=list(self.mechanisms))

    def _authenticate(self, request: SaslAuthenticateRequest, *_: Any) -> Any:
        step: Callable[[bytes], Any] = {"PLAIN": self._plain, "OAUTHBEARER": self._oauth}.get(
            self._mechanism, self._scram
        )
        return step(bytes(request.auth_bytes))

    def _accept(self, user: str, data: bytes = b"") -> Any:
        self.accepted.append(user)
        return answer(data, lifetime_ms=self.lifetime_ms)

    def _plain(self, data: bytes) -> Any:
        _, user, password = data.decode().split("\0")
        if self.users.get(user) != password:
            return answer(code=58, text="Authentication failed: Invalid username or password")
        return self._accept(user)

    def _scram(self, data: bytes) -> Any:
        if self._first is None:
            first = scram.ClientFirst.decode(data)
            said = scram.ServerFirst(first.nonce + "-server", SALT, ITERATIONS).encode()
            self._first = first, said
            return answer(said)
        first, said = self._first
        final = scram.ClientFinal.decode(data)
        salted = scram.salted_password(self._mechanism, self.users.get(first.user, "?"), SALT, ITERATIONS)
        signed = scram.auth_message(first.bare, said, final.without_proof)
        signature = scram.verify(self._mechanism, scram.keys_of(self._mechanism, salted), final.proof, signed)
        if signature is None:
            return answer(code=58, text="Authentication failed during authentication due to invalid credentials")
        return self._accept(first.user, scram.server_final(signature))

    def _oauth(self, data: bytes) -> Any:
        if data == b"\x01":
            return answer(code=58, text="the token is not valid")
        head, bearer, *rest = data.split(b"\x01")
        if head != b"n,,":
            raise MalformedMessage("no GS2 header")
        token = bearer.removeprefix(b"auth=Bearer ").decode()
        self.extensions += [each.decode() for each in rest if each]
        if token not in self.tokens:
            return answer(json.dumps({"status": "invalid_token"}).encode())
        return self._accept(token)
