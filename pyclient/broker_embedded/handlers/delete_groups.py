"""DeleteGroups 0-2: remove empty groups with their committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext


@handles(DeleteGroupsRequest, versions=(0, 2))
def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete each group that was named; a group with members stays."""
    results = [
        DeletableGroupResult(group_id=group_id, error_code=context.node.groups.delete(group_id))
        for group_id in dict.fromkeys(request.groups_names)
    ]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)
