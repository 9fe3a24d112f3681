"""SaslHandshake v0-1, on a SASL listener: the client chooses a mechanism (KIP-43)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.request_context import CloseConnection
from pyclient.errors import IllegalSaslState, UnsupportedSaslMechanism
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(SaslHandshakeRequest, versions=(0, 1))
async def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Begin an exchange, or answer with what is offered and close the connection.

    A client that has logged in gets no answer then, as from Kafka. After version 0 the messages of the mechanism come
    without SaslAuthenticate.
    """
    session = context.connection.sasl
    assert session is not None, "only SASL listeners serve this API"
    if not session.may_begin():
        return SaslHandshakeResponse(error_code=IllegalSaslState.code, mechanisms=[])
    if session.handshake(request.mechanism, bare=context.version == 0):
        return SaslHandshakeResponse(error_code=0, mechanisms=session.mechanisms)
    await session.delay_refusal()
    if session.user is not None:
        raise CloseConnection(f"SASL {request.mechanism:.100} is not offered for a second authentication")
    context.connection.close_after_answer()
    return SaslHandshakeResponse(error_code=UnsupportedSaslMechanism.code, mechanisms=session.mechanisms)
