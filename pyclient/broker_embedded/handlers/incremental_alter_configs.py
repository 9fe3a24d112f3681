"""IncrementalAlterConfigs v0-1: set and remove single options of topics and of this broker, or change their lists.

Each resource succeeds or fails independently. APPEND and SUBTRACT start from the value in effect. Only dynamic options
may be set on a broker (KIP-226), and the levels of its loggers (KIP-412).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.config import loggers
from pyclient.broker_embedded.controller.altering import Resource, alter
from pyclient.broker_embedded.controller.config_changes import Alteration, incremental
from pyclient.broker_embedded.controller.image import LOGGER_RESOURCE
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.controller.config_changes import Changes
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(IncrementalAlterConfigsRequest, versions=(0, 1), durable=Durable.METADATA, forwarded=True)
def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalTask[IncrementalAlterConfigsResponse]:
    """Answer every resource."""
    planned = [(each.resource_type, each.resource_name, _plan(each)) for each in request.resources]
    answers = yield from alter(
        context.services, planned, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=answers)


def _plan(wanted: AlterConfigsResource) -> Callable[[Resource], Changes]:
    alterations = [Alteration(each.name, each.config_operation, each.value) for each in wanted.configs]

    def plan(resource: Resource) -> Changes:
        if resource.kind == LOGGER_RESOURCE:
            loggers.check_names(each.name for each in alterations)
        return incremental(alterations, resource.current, resource.type_of, resource.default_of)

    return plan
