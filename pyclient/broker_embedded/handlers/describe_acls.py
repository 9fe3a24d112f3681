"""DescribeAcls v1-3: SECURITY_DISABLED, as in a Kafka without an authorizer. Not done: ACLs.

An unknown type, pattern, operation or permission closes the connection, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.dispatch import CloseConnection, handles
from pyclient.errors import SecurityDisabled
from pyclient.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext

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


@handles(DescribeAclsRequest, versions=(1, 3))
def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Answer with SECURITY_DISABLED and no ACLs."""
    check_enums(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=NO_AUTHORIZER.code, error_message=str(NO_AUTHORIZER), resources=[]
    )
