"""Raw requests about delegation tokens, and SCRAM logins with them."""

from __future__ import annotations

import base64
from typing import Any, Final

from pyclient.admin import DelegationToken
from pyclient.net.sasl import scram
from pyclient.net.sasl.exchanges import ScramExchange
from pyclient.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from pyclient.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from pyclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from pyclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_embedded.conftest import RawClient

CREATE: Final = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
DESCRIBE: Final = DescribeDelegationTokenRequest(owners=None)


def log_in(client: RawClient, user: str, password: str, *, by_token: bool = False) -> Any:
    """Log in by SCRAM; return the last answer."""
    mechanism = "SCRAM-SHA-256"
    assert client.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    exchange = ScramExchange(mechanism, user, password, "nonce", scram.salted_password, by_token=by_token)
    message: bytes | None = exchange.first()
    answer: Any = None
    while message is not None:
        answer = client.call(SaslAuthenticateRequest(auth_bytes=message), 2)
        if answer.error_code:
            break
        message = exchange.next(bytes(answer.auth_bytes))
    return answer


def password_of(token: DelegationToken) -> str:
    return base64.b64encode(token.hmac).decode()


def requests_about(hmac: bytes) -> list[tuple[Any, int]]:
    return [
        (CREATE, 3),
        (RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2),
        (ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2),
        (DESCRIBE, 3),
    ]
