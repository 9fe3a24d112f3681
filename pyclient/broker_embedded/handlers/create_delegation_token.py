"""CreateDelegationToken v1-3: a token with which others may log in as its owner (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.controller import delegation_tokens
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.log.checkpoints import uuid_text
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.delegation_tokens import Token
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext

_NO_TIME = -1
"""The times in the answer to a request that is not allowed, as in Kafka."""


def _refusal(request: CreateDelegationTokenRequest, context: RequestContext) -> CreateDelegationTokenResponse | None:
    error: errors.BrokerError | None = None
    owner = _owner(request, context)
    if not context.may_manage_tokens:
        error = errors.DelegationTokenRequestNotAllowed(
            "this connection is not authenticated, or by a delegation token: it may not manage tokens"
        )
    elif request.owner_principal_name and request.owner_principal_type is None:
        error = errors.InvalidPrincipalType("the owner has a name and no type")
    elif owner != context.principal and not context.may(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        error = errors.DelegationTokenAuthorizationFailed(f"{context.principal} may not create tokens of {owner}")
    return None if error is None else _answer(request, context, error.code, no_token=_NO_TIME)


@handles(CreateDelegationTokenRequest, versions=(1, 3), durable=Durable.METADATA, forwarded=True, refused_by=_refusal)
def handle(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> IncrementalTask[CreateDelegationTokenResponse]:
    """Create a token of the client, or of another owner if the client may."""
    services = context.services
    try:
        renewers = yield from in_steps(
            lambda each: delegation_tokens.renewer_of(each.principal_type, each.principal_name), request.renewers
        )
        delegation_tokens.check_size(_owner(request, context), renewers)
        settings = delegation_tokens.TokenSettings.of(services.configs.current)
        delegation_tokens.check_supported(services.controller.image.features)
        token = delegation_tokens.create(
            settings,
            uuid_text(services.controller.new_id()),
            owner=_owner(request, context),
            requester=context.principal,
            renewers=renewers,
            max_lifetime_ms=request.max_lifetime_ms,
            now=services.clock.time_ms(),
        )
        services.controller.append([delegation_tokens.record_of(token)])
    except errors.InvalidPrincipalType as error:  # Kafka checks this on the broker that is asked
        return _answer(request, context, error.code, no_token=_NO_TIME)
    except errors.BrokerError as error:
        return _answer(request, context, error.code)
    return _answer(request, context, 0, token, settings.hmac(token.token_id))


def _owner(request: CreateDelegationTokenRequest, context: RequestContext) -> str:
    if not request.owner_principal_name or request.owner_principal_type is None:
        return context.principal
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def _answer(
    request: CreateDelegationTokenRequest,
    context: RequestContext,
    code: int,
    token: Token | None = None,
    hmac: bytes = b"",
    *,
    no_token: int = 0,
) -> CreateDelegationTokenResponse:
    kind, _, name = _owner(request, context).partition(":")
    response = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=kind,
        principal_name=name,
        issue_timestamp_ms=no_token if token is None else token.issue_timestamp,
        expiry_timestamp_ms=no_token if token is None else token.expiry_timestamp,
        max_timestamp_ms=no_token if token is None else token.max_timestamp,
        token_id="" if token is None else token.token_id,
        hmac=hmac,
        throttle_time_ms=0,
    )
    if context.version >= 3:
        requester_type, _, requester_name = context.principal.partition(":")
        response.token_requester_principal_type = requester_type
        response.token_requester_principal_name = requester_name
    return response
