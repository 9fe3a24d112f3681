"""SaslAuthenticate v0-2, on a SASL listener: the messages of a mechanism (KIP-152, KIP-368)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.errors import BrokerError, IllegalSaslState
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(SaslAuthenticateRequest, versions=(0, 2))
async def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Answer a message. A refusal comes late, and ends the connection, but not that of a client that has logged in."""
    session = context.connection.sasl
    assert session is not None, "only SASL listeners serve this API"
    if session.user is not None and not session.is_begun:
        text = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(error_code=IllegalSaslState.code, error_message=text, auth_bytes=b"")
    try:
        data, lifetime_ms = await session.next(bytes(request.auth_bytes))
    except BrokerError as error:
        await session.delay_refusal()
        context.connection.close_after_answer()
        return SaslAuthenticateResponse(error_code=error.code, error_message=message_of(error), auth_bytes=b"")
    return SaslAuthenticateResponse(error_code=0, error_message="", auth_bytes=data, session_lifetime_ms=lifetime_ms)
