"""DescribeAcls v1-3: the ACLs that a filter selects; SECURITY_DISABLED without an authorizer.

An unknown type, pattern, operation or permission closes the connection, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.acls import AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.request_context import CloseConnection
from pyclient.errors import SecurityDisabled
from pyclient.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext

NO_AUTHORIZER = SecurityDisabled("this broker has no authorizer: every client may do everything")

_KINDS: Final = 7  # any, topic, group, cluster, transactional id, delegation token, user
_PATTERNS: Final = 4  # any, match, literal, prefixed
_OPERATIONS: Final = 15  # any, all, read, ..., the last is two-phase commit
_PERMISSIONS: Final = 3  # any, deny, allow


def check_enums(kind: int, pattern: int, operation: int, permission: int) -> None:
    """Raise `CloseConnection` for a number that is not in Kafka's enumerations; 0 is "unknown" in each."""
    fields = ((kind, _KINDS), (pattern, _PATTERNS), (operation, _OPERATIONS), (permission, _PERMISSIONS))
    if not all(0 < number <= last for number, last in fields):
        raise CloseConnection("an ACL of an unknown type, pattern, operation or permission")


def filter_in(part: Any) -> AclFilter:
    """Return the filter in a request, or in a part of one."""
    check_enums(part.resource_type_filter, part.pattern_type_filter, part.operation, part.permission_type)
    return AclFilter(
        ResourceType(part.resource_type_filter),
        part.resource_name_filter,
        part.principal_filter,
        AclOperation(part.operation),
        AclPermission(part.permission_type),
        PatternType(part.pattern_type_filter),
        part.host_filter,
    )


@handles(DescribeAclsRequest, versions=(1, 3))
def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Answer with the ACLs by resource."""
    wanted = filter_in(request)
    if context.services.authorizer is None:
        return DescribeAclsResponse(
            throttle_time_ms=0, error_code=NO_AUTHORIZER.code, error_message=str(NO_AUTHORIZER), resources=[]
        )
    resources: dict[tuple[ResourceType, str, PatternType], list[AclDescription]] = {}
    for acl in sorted(context.services.image.acls.values()):
        if wanted.matches(acl):
            described = AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
            resources.setdefault((acl.resource_type, acl.name, acl.pattern), []).append(described)
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        resources=[
            DescribeAclsResource(resource_type=int(kind), resource_name=name, pattern_type=int(pattern), acls=acls)
            for (kind, name, pattern), acls in resources.items()
        ],
    )
