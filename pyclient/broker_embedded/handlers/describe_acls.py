"""DescribeAcls v1-3: SECURITY_DISABLED, as of a Kafka without an authorizer. Not done: ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.errors import SecurityDisabled
from pyclient.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext

NO_AUTHORIZER = SecurityDisabled("this broker has no ACLs: everybody may do everything")


@handles(DescribeAclsRequest, versions=(1, 3))
def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Say that there are none, and why."""
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=NO_AUTHORIZER.code, error_message=str(NO_AUTHORIZER), resources=[]
    )
