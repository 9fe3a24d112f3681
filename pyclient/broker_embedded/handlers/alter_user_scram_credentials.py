"""AlterUserScramCredentials v0: set and remove SCRAM credentials of users (KIP-554).

They are stored in Kafka's records, so that a Kafka on the same data directory can use them. A SASL listener takes them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyclient import errors
from pyclient.broker_embedded.controller import scram
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(AlterUserScramCredentialsRequest, versions=(0, 0), durable=Durable.METADATA, forwarded=True)
def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> IncrementalTask[AlterUserScramCredentialsResponse]:
    """Answer every user; all changes of a user are applied, or none."""
    changes: dict[str, list[ScramCredentialDeletion | ScramCredentialUpsertion]] = {}
    requested: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for change in requested:
        changes.setdefault(change.name, []).append(change)
    results = yield from in_steps(lambda change: _alter(*change, context), changes.items())
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


def _alter(
    name: str, requested: list[ScramCredentialDeletion | ScramCredentialUpsertion], context: RequestContext
) -> AlterUserScramCredentialsResult:
    code, message = 0, None
    try:
        records = [_record(change, context) for change in requested]
        if max(Counter(change.mechanism for change in requested).values()) > 1:
            raise errors.DuplicateResource(f"duplicate change of a credential of user {name!r}")
        context.services.controller.alter_scram_credentials(records)
    except errors.BrokerError as error:
        code, message = error.code, message_of(error)
    return AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)


def _record(change: ScramCredentialDeletion | ScramCredentialUpsertion, context: RequestContext) -> Any:
    scram.check_name(change.name, change.mechanism)
    if isinstance(change, ScramCredentialUpsertion):
        scram.check_iterations(change.iterations)
        return scram.record_of(
            change.name,
            change.mechanism,
            iterations=change.iterations,
            salt=change.salt,
            salted_password=change.salted_password,
        )
    if (change.name, change.mechanism) not in context.services.controller.image.scram_credentials:
        raise errors.ResourceNotFound(f"user {change.name!r} has no SCRAM credential of mechanism {change.mechanism}")
    from pyclient.protocol.messages.metadata_log import RemoveUserScramCredentialRecord

    return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
