"""CreateAcls v1-3: one that is there already is no error. SECURITY_DISABLED without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from pyclient.broker_embedded.controller import acls
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.broker_embedded.handlers.describe_acls import NO_AUTHORIZER, check_enums
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.errors import BrokerError
from pyclient.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(CreateAclsRequest, versions=(1, 3), durable=Durable.METADATA, forwarded=True)
def handle(request: CreateAclsRequest, context: RequestContext) -> IncrementalTask[CreateAclsResponse]:
    """Answer every creation."""
    for new in request.creations:
        check_enums(new.resource_type, new.resource_pattern_type, new.operation, new.permission_type)
        yield None
    if context.services.authorizer is None:
        refused = AclCreationResult(error_code=NO_AUTHORIZER.code, error_message=str(NO_AUTHORIZER))
        return CreateAclsResponse(throttle_time_ms=0, results=[refused for _ in request.creations])
    results = []
    valid = []
    for new in request.creations:
        acl = _acl(new)
        try:
            acls.check(acl)
        except BrokerError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=message_of(error)))
        else:
            valid.append(acl)
            results.append(AclCreationResult(error_code=0, error_message=None))
        yield None
    context.services.controller.add_acls(valid)
    return CreateAclsResponse(throttle_time_ms=0, results=results)


def _acl(new: AclCreation) -> AclBinding:
    return AclBinding(
        ResourceType(new.resource_type),
        new.resource_name,
        new.principal,
        AclOperation(new.operation),
        AclPermission(new.permission_type),
        PatternType(new.resource_pattern_type),
        new.host,
    )
