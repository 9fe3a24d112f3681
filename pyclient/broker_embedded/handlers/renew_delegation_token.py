"""RenewDelegationToken v1-2: its owner and its renewers move the end of a token (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.controller import delegation_tokens
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


def _refusal(_request: RenewDelegationTokenRequest, context: RequestContext) -> RenewDelegationTokenResponse | None:
    if context.may_manage_tokens:
        return None
    return _answer(errors.DelegationTokenRequestNotAllowed.code, -1)


@handles(RenewDelegationTokenRequest, versions=(1, 2), durable=Durable.METADATA, forwarded=True, refused_by=_refusal)
def handle(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> IncrementalTask[RenewDelegationTokenResponse]:
    """Renew a token; never beyond its maximum lifetime."""
    services = context.services
    image = services.controller.image
    try:
        settings = delegation_tokens.TokenSettings.of(services.configs.current)
        delegation_tokens.check_supported(image.features)
        token = yield from delegation_tokens.find(settings, image.delegation_tokens, bytes(request.hmac))
        now = services.clock.time_ms()
        renewed = delegation_tokens.renew(settings, token, context.principal, request.renew_period_ms, now)
        services.controller.append([delegation_tokens.record_of(renewed)])
    except errors.BrokerError as error:
        return _answer(error.code, 0)
    return _answer(0, renewed.expiry_timestamp)


def _answer(code: int, expiry: int) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry, throttle_time_ms=0)
