"""CreateAcls v1-3: SECURITY_DISABLED, as in a Kafka without an authorizer. Not done: ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.handlers.describe_acls import NO_AUTHORIZER, check_enums
from pyclient.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask


@handles(CreateAclsRequest, versions=(1, 3))
def handle(request: CreateAclsRequest, context: RequestContext) -> IncrementalTask[CreateAclsResponse]:
    """Refuse every creation."""
    for new in request.creations:
        check_enums(new.resource_type, new.resource_pattern_type, new.operation, new.permission_type)
        yield None
    refused = AclCreationResult(error_code=NO_AUTHORIZER.code, error_message=str(NO_AUTHORIZER))
    return CreateAclsResponse(throttle_time_ms=0, results=[refused for _ in request.creations])
