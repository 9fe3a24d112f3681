"""Envelope (key 58): a client request that a broker forwards to the controller (KIP-590)."""

from pyclient.protocol.fields import Int16, Message, Request, Response, api, message


@message(versions=(0, 0), flexible=0)
class DefaultPrincipalData(Message):
    type: str
    name: str
    token_authenticated: bool


@api(key=58, versions=(0, 0), flexible=0)
class EnvelopeResponse(Response):
    response_data: bytes | None = None
    error_code: Int16


@api(key=58, versions=(0, 0), flexible=0)
class EnvelopeRequest(Request[EnvelopeResponse]):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes
