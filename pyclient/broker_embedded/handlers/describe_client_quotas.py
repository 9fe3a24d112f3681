"""DescribeClientQuotas v0-1: the quotas of the entities that match a filter (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.client_quotas import Filter
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.errors import BrokerError
from pyclient.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(DescribeClientQuotasRequest, versions=(0, 1))
def handle(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> IncrementalTask[DescribeClientQuotasResponse]:
    """Answer with every entity that matches; an empty filter matches all entities."""
    try:
        components = [(each.entity_type, each.match_type, each.match) for each in request.components]
        entity_filter = Filter(components, strict=request.strict)
    except BrokerError as error:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error.code, error_message=message_of(error), entries=None
        )
    entries = []
    for entity, values in list(context.services.image.client_quotas.items()):
        if entity_filter.finds(entity):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
        yield None
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=0, error_message=None, entries=entries)
