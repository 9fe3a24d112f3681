"""DeleteAcls v1-3: the ACLs that filters select are removed. SECURITY_DISABLED without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.handlers.describe_acls import NO_AUTHORIZER, filter_in
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from pyclient.protocol.messages.metadata_log import RemoveAccessControlEntryRecord

if TYPE_CHECKING:
    from uuid import UUID

    from pyclient.acls import AclBinding
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(DeleteAclsRequest, versions=(1, 3), durable=Durable.METADATA, forwarded=True)
def handle(request: DeleteAclsRequest, context: RequestContext) -> IncrementalTask[DeleteAclsResponse]:
    """Answer every filter with the ACLs that it has removed."""
    filters = []
    for each in request.filters:
        filters.append(filter_in(each))
        yield None
    if context.services.authorizer is None:
        refused = DeleteAclsFilterResult(
            error_code=NO_AUTHORIZER.code, error_message=str(NO_AUTHORIZER), matching_acls=[]
        )
        return DeleteAclsResponse(throttle_time_ms=0, filter_results=[refused for _ in request.filters])
    controller = context.services.controller
    known = dict(controller.image.acls)
    removed: dict[UUID, AclBinding] = {}
    results = []
    for wanted in filters:
        found = {acl_id: acl for acl_id, acl in known.items() if wanted.matches(acl)}
        removed |= found
        matching = [_matching(acl) for acl in sorted(found.values())]
        results.append(DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=matching))
        yield None
    controller.append(
        [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed if acl_id in controller.image.acls]
    )
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _matching(acl: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=0,
        error_message=None,
        resource_type=int(acl.resource_type),
        resource_name=acl.name,
        pattern_type=int(acl.pattern),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
