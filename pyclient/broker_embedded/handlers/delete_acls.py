"""DeleteAcls v1-3: SECURITY_DISABLED, as in a Kafka without an authorizer. Not done: ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.handlers.describe_acls import NO_AUTHORIZER, check_enums
from pyclient.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask


@handles(DeleteAclsRequest, versions=(1, 3))
def handle(request: DeleteAclsRequest, context: RequestContext) -> IncrementalTask[DeleteAclsResponse]:
    """Refuse every filter."""
    for each in request.filters:
        check_enums(each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
        yield None
    refused = DeleteAclsFilterResult(error_code=NO_AUTHORIZER.code, error_message=str(NO_AUTHORIZER), matching_acls=[])
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[refused for _ in request.filters])
