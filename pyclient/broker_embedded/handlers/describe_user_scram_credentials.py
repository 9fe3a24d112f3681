"""DescribeUserScramCredentials v0: users with SCRAM credentials and their mechanisms, without keys (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(DescribeUserScramCredentialsRequest, versions=(0, 0))
def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> IncrementalTask[DescribeUserScramCredentialsResponse]:
    """Answer for the named users, or for all users if none is named."""
    found: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), credential in list(context.services.image.scram_credentials.items()):
        info = CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        found.setdefault(name, []).append(info)
        yield None
    times = Counter(user.name for user in request.users or ())
    results = yield from in_steps(lambda name: _describe(name, found.get(name), times[name]), list(times or found))
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        results=results,
    )


def _describe(name: str, infos: list[CredentialInfo] | None, times: int) -> DescribeUserScramCredentialsResult:
    error: errors.BrokerError | None = None
    if times > 1:
        error = errors.DuplicateResource(f"user {name!r} is in the request {times} times")
    elif infos is None:
        error = errors.ResourceNotFound(f"user {name!r} has no SCRAM credentials")
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else message_of(error),
        credential_infos=[] if error is not None or infos is None else infos,
    )
