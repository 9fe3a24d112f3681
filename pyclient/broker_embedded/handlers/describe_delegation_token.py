"""DescribeDelegationToken v1-3: the tokens that a client may see, with their HMACs (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.controller import delegation_tokens
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.delegation_tokens import Token, TokenSettings
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(DescribeDelegationTokenRequest, versions=(1, 3))
def handle(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> IncrementalTask[DescribeDelegationTokenResponse]:
    """Answer with the tokens of the owners that are asked for, and of all without a list of them."""
    try:
        if not context.may_manage_tokens:
            raise errors.DelegationTokenRequestNotAllowed(
                "this connection is not authenticated, or by a delegation token: it may not manage tokens"
            )
        settings = delegation_tokens.TokenSettings.of(context.services.configs.current)
    except errors.BrokerError as error:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[], throttle_time_ms=0)
    owners = None
    if request.owners is not None:
        owners = set((yield from in_steps(_principal, request.owners)))
    found = []
    for token in list(context.services.image.delegation_tokens.values()):
        if delegation_tokens.is_visible(token, owners, context.principal, context.may):
            found.append(_described(token, settings, context.version))
        yield None
    return DescribeDelegationTokenResponse(error_code=0, tokens=found, throttle_time_ms=0)


def _principal(owner: DescribeDelegationTokenOwner) -> str:
    return f"{owner.principal_type}:{owner.principal_name}"


def _described(token: Token, settings: TokenSettings, version: int) -> DescribedDelegationToken:
    kind, _, name = token.owner.partition(":")
    described = DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiry_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=settings.hmac(token.token_id),
        renewers=[_renewer(each) for each in token.renewers],
    )
    if version >= 3:
        requester_type, _, requester_name = token.requester.partition(":")
        described.token_requester_principal_type = requester_type
        described.token_requester_principal_name = requester_name
    return described


def _renewer(principal: str) -> DescribedDelegationTokenRenewer:
    kind, _, name = principal.partition(":")
    return DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
