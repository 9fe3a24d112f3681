"""ListGroups 0-4: the groups that this broker coordinates; 4 has their state, and a filter by it (KIP-518).

Not done: the filter by type (5), which matters once there are groups of another type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.state import CONSUMER_PROTOCOL_TYPE
from pyclient.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.groups.state import ClassicGroup


@handles(ListGroupsRequest, versions=(0, 4))
def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List the groups whose state is asked for; all, if none is."""
    wanted = {state.lower() for state in request.states_filter}
    groups = [_listed(entry.group) for entry in context.node.groups.groups]
    return ListGroupsResponse(
        error_code=0, groups=[group for group in groups if not wanted or group.group_state.lower() in wanted]
    )


def _listed(group: ClassicGroup | ConsumerGroup) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            group_state=group.phase.value,
            group_type="consumer",
        )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type="classic",
    )
