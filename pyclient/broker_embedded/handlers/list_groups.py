"""ListGroups 0-5: the groups that this broker coordinates.

Version 4 has their state and a filter by state (KIP-518), 5 their type (`classic`, `consumer`) and a filter by type
(KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.acls import CLUSTER_NAME, AclOperation, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.state import CONSUMER_PROTOCOL_TYPE
from pyclient.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.state import ClassicGroup
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(ListGroupsRequest, versions=(0, 5))
def handle(request: ListGroupsRequest, context: RequestContext) -> IncrementalTask[ListGroupsResponse]:
    """List the groups that match the filters; an empty filter matches all."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups = []
    all_of_them = context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    for entry in context.services.groups.groups:
        group = _listed(entry.group)
        if not (all_of_them or context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)):
            continue
        if (not states or group.group_state.lower() in states) and (not types or group.group_type in types):
            groups.append(group)
        yield None
    return ListGroupsResponse(error_code=0, groups=groups)


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
