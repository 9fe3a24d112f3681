"""Envelope v0: a client's request that another broker sends on to the active controller (KIP-590)."""

from __future__ import annotations

import asyncio
import ipaddress
from inspect import isawaitable
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from pyclient import errors
from pyclient.broker_embedded.controller.forwarding import answer_in_envelope, principal_in
from pyclient.broker_embedded.dispatch import ROUTES, handles
from pyclient.broker_embedded.failures import code_of
from pyclient.broker_embedded.request_context import ForwardedContext
from pyclient.broker_embedded.served_apis import ListenerType
from pyclient.protocol import framing
from pyclient.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(EnvelopeRequest, versions=(0, 0))
async def handle(request: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
    """Answer with the response to the request inside, or NOT_CONTROLLER for another node to be asked."""
    try:
        frame = memoryview(request.request_data)
        header = framing.decode_request_header(frame)
        route = ROUTES[ListenerType.CONTROLLER].find(header.api_key, header.api_version)
        if route is None or not route.forwarded:
            raise errors.InvalidRequest(f"API {header.api_key} version {header.api_version} is not forwarded")
        host = str(ipaddress.ip_address(request.client_host_address))
        inner = route.decode(frame, header.body_offset)
        client = ForwardedContext(
            context.services,
            header.api_key,
            header.api_version,
            header.client_id,
            context.connection,
            host,
            *principal_in(request.request_principal),
        )
        authorization = context.services.authorization
        if authorization is None:
            response = await _awaited(route.handler(inner, client))
        else:
            response = await _awaited(
                authorization.serve(route, inner, client, lambda chosen, left: chosen.handler(left, client))
            )
        return answer_in_envelope(response, header.api_version, header.correlation_id)
    except errors.ProtocolError as error:
        return EnvelopeResponse(error_code=code_of(errors.InvalidRequest(str(error)), "a forwarded request"))
    except ValueError as error:
        return EnvelopeResponse(error_code=code_of(errors.InvalidRequest(str(error)), "a forwarded request"))
    except Exception as error:  # every failure is answered with its error code
        return EnvelopeResponse(error_code=code_of(error, "a forwarded request"))


async def _awaited(answer: Any) -> Any:
    """Return the response of a handler, whose result may be steps or awaitable."""
    while True:
        if type(answer) is GeneratorType:
            answer = await _in_steps(answer)
        elif isawaitable(answer):
            answer = await answer
        else:
            return answer


async def _in_steps(steps: Any) -> Any:
    """Take the steps, and let the loop serve others between."""
    result: Any = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as end:
            return end.value
        result = None if step is None else step.work()
        await asyncio.sleep(0)
