"""DeleteGroups 0-2: remove empty groups with their committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(DeleteGroupsRequest, versions=(0, 2), durable=Durable.GROUPS)
def handle(request: DeleteGroupsRequest, context: RequestContext) -> IncrementalTask[DeleteGroupsResponse]:
    """Delete each named group; NON_EMPTY_GROUP for a group with members."""
    groups = context.services.groups
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        results.append(DeletableGroupResult(group_id=group_id, error_code=groups.delete(group_id)))
        yield None
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)
