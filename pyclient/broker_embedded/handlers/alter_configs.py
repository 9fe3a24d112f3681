"""AlterConfigs v0-2: replace the options of topics and of this broker; options that are not named are removed.

Each resource succeeds or fails independently. Only dynamic options may be set on a broker (KIP-226). As in Kafka,
loggers are changed by IncrementalAlterConfigs only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.controller.altering import Resource, alter
from pyclient.broker_embedded.controller.config_changes import replaced
from pyclient.broker_embedded.controller.image import LOGGER_RESOURCE
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.controller.config_changes import Changes
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(AlterConfigsRequest, versions=(0, 2), durable=Durable.METADATA, forwarded=True)
def handle(request: AlterConfigsRequest, context: RequestContext) -> IncrementalTask[AlterConfigsResponse]:
    """Answer every resource."""
    planned = [(each.resource_type, each.resource_name, _plan(each)) for each in request.resources]
    answers = yield from alter(
        context.services, planned, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return AlterConfigsResponse(throttle_time_ms=0, responses=answers)


def _plan(wanted: AlterConfigsResource) -> Callable[[Resource], Changes]:
    def plan(resource: Resource) -> Changes:
        if resource.kind == LOGGER_RESOURCE:
            raise errors.InvalidRequest("levels of loggers can only be changed by IncrementalAlterConfigs")
        return replaced([(each.name, each.value) for each in wanted.configs], resource.current)

    return plan
