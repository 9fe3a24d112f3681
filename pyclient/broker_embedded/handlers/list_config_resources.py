"""ListConfigResources v0-1: all topics, brokers and loggers, and the groups and client metrics that have options.

Missing or empty types are all types. v0 requests client metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.image import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    LOGGER_RESOURCE,
    METRICS_RESOURCE,
    TOPIC_RESOURCE,
)
from pyclient.broker_embedded.dispatch import handles
from pyclient.errors import UnsupportedVersion
from pyclient.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext

_KINDS: Final = (GROUP_RESOURCE, METRICS_RESOURCE, LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE)


@handles(ListConfigResourcesRequest, versions=(0, 1))
def handle(
    request: ListConfigResourcesRequest, context: RequestContext
) -> IncrementalTask[ListConfigResourcesResponse]:
    """Answer with the resources of each type; UNSUPPORTED_VERSION for an unknown type."""
    image = context.services.image
    wanted = (METRICS_RESOURCE,) if context.version == 0 else tuple(dict.fromkeys(request.resource_types)) or _KINDS
    if not set(wanted) <= set(_KINDS):
        return ListConfigResourcesResponse(throttle_time_ms=0, error_code=UnsupportedVersion.code, config_resources=[])
    names = {
        BROKER_RESOURCE: [str(node_id) for node_id in image.brokers],
        LOGGER_RESOURCE: [str(node_id) for node_id in image.brokers],
        TOPIC_RESOURCE: list(image.topics),
        GROUP_RESOURCE: [name for kind, name in image.configs if kind == GROUP_RESOURCE],
        METRICS_RESOURCE: [name for kind, name in image.configs if kind == METRICS_RESOURCE],
    }
    resources = []
    for kind in wanted:
        for name in names.get(kind, ()):
            resources.append(ConfigResource(resource_name=name, resource_type=kind))
            yield None
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=0, config_resources=resources)
