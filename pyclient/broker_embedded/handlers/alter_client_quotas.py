"""AlterClientQuotas v0-1: set and remove quotas of users, client ids and addresses (KIP-546).

Users are named as in their principals, without `User:`; a client without a login is the user ANONYMOUS.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.client_quotas import check_value, entity_of
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.errors import InvalidRequest
from pyclient.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(AlterClientQuotasRequest, versions=(0, 1), durable=Durable.METADATA, forwarded=True)
def handle(request: AlterClientQuotasRequest, context: RequestContext) -> IncrementalTask[AlterClientQuotasResponse]:
    """Answer every entity; a duplicate entity is an error, and the last of duplicate components counts."""
    entries = {}
    times: Counter[object] = Counter()
    for entry in request.entries:
        entry.entity = list({each.entity_type: each for each in entry.entity}.values())
        key = frozenset((each.entity_type, each.entity_name) for each in entry.entity)
        entries[key] = entry
        times[key] += 1
        yield None
    answers = []
    for key, entry in entries.items():
        answers.append(_alter(entry, context, duplicate=times[key] > 1, validate_only=request.validate_only))
        yield None
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=answers)


def _alter(
    entry: AlterClientQuotasRequestEntryData, context: RequestContext, *, duplicate: bool, validate_only: bool
) -> AlterClientQuotasResponseEntryData:
    code, message = 0, None
    try:
        if duplicate:
            raise InvalidRequest("duplicate entity in the request")
        entity = entity_of((each.entity_type, each.entity_name) for each in entry.entity)
        changes: dict[str, float | None] = {}
        for op in entry.ops:
            if op.key in changes:
                raise InvalidRequest(f"duplicate {op.key} for one entity")
            if not op.remove:
                check_value(entity, op.key, op.value)
            changes[op.key] = None if op.remove else op.value
        if not validate_only:
            context.services.controller.alter_client_quotas(entity, changes)
    except Exception as error:  # every failure is answered with its error code
        code, message = code_of(error, "AlterClientQuotas"), message_of(error)
    return AlterClientQuotasResponseEntryData(
        error_code=code,
        error_message=message,
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=each.entity_type, entity_name=each.entity_name)
            for each in entry.entity
        ],
    )
