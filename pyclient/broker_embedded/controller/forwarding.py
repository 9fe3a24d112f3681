"""Clients' requests that only the active controller can answer: sent on to it in an Envelope (KIP-590)."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from pyclient import errors
from pyclient.broker_embedded.controller.image import LOGGER_RESOURCE
from pyclient.errors.codes import from_code
from pyclient.protocol import codec, framing
from pyclient.protocol.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.protocol.fields import Request, Response


def principal_bytes(principal: str, *, token_authenticated: bool) -> bytes:
    """Return a principal as Kafka's nodes send it."""
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=token_authenticated)
    return b"\0\0" + codec.encode(data, 0)


def principal_in(data: bytes | None) -> tuple[str, bool]:
    """Return the principal that another node has sent, and whether it logged in by a delegation token.

    Raise `ProtocolError` for other bytes.
    """
    if data is None or len(data) < 2:
        raise errors.MalformedMessage("an Envelope without a principal")
    found = codec.decode(DefaultPrincipalData, 0, memoryview(data), 2)
    return f"{found.type}:{found.name}", found.token_authenticated


def by_active_controller(handler: Callable[[Any, RequestContext], Any]) -> Callable[[Any, RequestContext], Any]:
    """Wrap a handler of clients: on a node that is not the active controller the request is sent on to that."""

    def handle(request: Any, context: RequestContext) -> Any:
        quorum = context.services.quorum
        if quorum is None or quorum.is_active or _is_of_this_node(request):
            return handler(request, context)
        return _forwarded(request, context)

    return handle


def as_active_controller(handler: Callable[[Any, RequestContext], Any]) -> Callable[[Any, RequestContext], Any]:
    """Wrap a handler of the CONTROLLER listener: it raises `NotController` on a node that is not active."""

    def handle(request: Any, context: RequestContext) -> Any:
        quorum = context.services.quorum
        if quorum is not None and not quorum.is_active:
            raise quorum.not_controller()
        return handler(request, context)

    return handle


def _is_of_this_node(request: Any) -> bool:
    """Return True if a request is only about log levels, which each node has of its own."""
    resources = getattr(request, "resources", ())
    return bool(resources) and all(each.resource_type == LOGGER_RESOURCE for each in resources)


async def _forwarded(request: Request[Any], context: RequestContext) -> Response:
    services = context.services
    assert services.to_controller is not None
    parts = framing.encode_request(request, context.version, 0, context.client_id)
    envelope = EnvelopeRequest(
        request_data=_joined(parts),
        request_principal=principal_bytes(context.principal, token_authenticated=context.token_authenticated),
        client_host_address=ipaddress.ip_address(context.client_host.lstrip("/")).packed,
    )
    timeout = services.configs.current.seconds("request.timeout.ms")
    try:
        answer: EnvelopeResponse = await services.to_controller.send(envelope, timeout)
    except errors.KafkaTimeout as error:
        raise errors.RequestTimedOut(str(error)) from error
    if answer.error_code or answer.response_data is None:
        raise from_code(answer.error_code, f"the active controller refused {type(request).__name__}")
    response: Response
    _, response = framing.decode_response(type(request).response, context.version, memoryview(answer.response_data))
    throttle_ms = getattr(response, "throttle_time_ms", 0)
    if throttle_ms:
        context.throttle(throttle_ms / 1000)
    return response


def answer_in_envelope(response: Response, version: int, correlation_id: int) -> EnvelopeResponse:
    """Return the answer to an Envelope with the response to the request in it."""
    return EnvelopeResponse(
        error_code=0, response_data=_joined(framing.encode_response(response, version, correlation_id))
    )


def _joined(parts: list[Any]) -> bytes:
    """Return a frame without its length."""
    return b"".join(parts)[4:]
