"""ExpireDelegationToken v1-2: its owner and its renewers end a token, at once or earlier (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.controller import delegation_tokens
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


def _refusal(_request: ExpireDelegationTokenRequest, context: RequestContext) -> ExpireDelegationTokenResponse | None:
    if context.may_manage_tokens:
        return None
    return _answer(errors.DelegationTokenRequestNotAllowed.code, -1)


@handles(ExpireDelegationTokenRequest, versions=(1, 2), durable=Durable.METADATA, forwarded=True, refused_by=_refusal)
def handle(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> IncrementalTask[ExpireDelegationTokenResponse]:
    """Change the end of a token. A negative period removes it; the answer has the time of that."""
    services = context.services
    image = services.controller.image
    try:
        settings = delegation_tokens.TokenSettings.of(services.configs.current)
        delegation_tokens.check_supported(image.features)
        token = yield from delegation_tokens.find(settings, image.delegation_tokens, bytes(request.hmac))
        now = services.clock.time_ms()
        changed = delegation_tokens.expire(token, context.principal, request.expiry_time_period_ms, now)
        record = delegation_tokens.removal_of(token) if changed is None else delegation_tokens.record_of(changed)
        services.controller.append([record])
    except errors.BrokerError as error:
        return _answer(error.code, 0)
    return _answer(0, now if changed is None else changed.expiry_timestamp)


def _answer(code: int, expiry: int) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry, throttle_time_ms=0)
