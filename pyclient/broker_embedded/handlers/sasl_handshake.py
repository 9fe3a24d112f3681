"""SaslHandshake v1, on a SASL listener: the client chooses a mechanism (KIP-43)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.errors import UnsupportedSaslMechanism
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext


@handles(SaslHandshakeRequest, versions=(1, 1))
async def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Begin an exchange, or answer with what is offered and close the connection."""
    session = context.connection.sasl
    assert session is not None, "only SASL listeners serve this API"
    if session.handshake(request.mechanism):
        return SaslHandshakeResponse(error_code=0, mechanisms=session.mechanisms)
    await session.hold_back()
    context.connection.close_after_answer()
    return SaslHandshakeResponse(error_code=UnsupportedSaslMechanism.code, mechanisms=session.mechanisms)
