"""ListGroups 0-4: the groups that this broker coordinates; 4 has their state, and a filter by it (KIP-518).

Not done: the filter by type (5), which matters once there are groups of another type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext


@handles(ListGroupsRequest, versions=(0, 4))
def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List the groups whose state is asked for; all, if none is."""
    wanted = {state.lower() for state in request.states_filter}
    groups = [
        ListedGroup(
            group_id=entry.group_id,
            protocol_type=entry.classic.protocol_type or "",
            group_state=entry.classic.state.value,
        )
        for entry in context.node.groups.groups
        if not wanted or entry.classic.state.value.lower() in wanted
    ]
    return ListGroupsResponse(error_code=0, groups=groups)
