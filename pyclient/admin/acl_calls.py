"""An admin client's calls about ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyclient.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType, acl_of
from pyclient.errors import ConfigError, MalformedMessage, from_code
from pyclient.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pyclient.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pyclient.protocol.messages.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from pyclient.admin.group_calls import Deadline
    from pyclient.cluster.client import ClusterClient


def acls_in(values: Iterable[Any]) -> list[AclBinding]:
    """Return ACLs of `AclBinding`s and tuples. Raise `ConfigError` for anything else."""
    try:
        return [acl_of(each) for each in values]
    except (ValueError, TypeError) as error:
        raise ConfigError(f"acls: {error}") from None


class AclCalls:
    """The admin client's calls about ACLs."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def create(self, acls: Sequence[AclBinding], deadline: Deadline) -> None:
        """Create ACLs; raise the first error."""
        creations = [
            AclCreation(
                resource_type=int(acl.resource_type),
                resource_name=acl.name,
                resource_pattern_type=int(acl.pattern),
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
            for acl in acls
        ]
        request = CreateAclsRequest(creations=creations)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        if len(response.results) != len(creations):
            raise MalformedMessage("the answer to CreateAcls is not about the ACLs that were sent")
        for acl, result in zip(acls, response.results, strict=True):
            _raise(result, f"creating the ACL {acl}", request.name)

    async def describe(self, wanted: AclFilter, deadline: Deadline) -> list[AclBinding]:
        """Return the ACLs that a filter selects."""
        request = DescribeAclsRequest(**_fields(wanted))
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        _raise(response, "describing ACLs", request.name)
        return [
            _acl(resource.resource_type, resource.resource_name, resource.pattern_type, acl)
            for resource in response.resources
            for acl in resource.acls
        ]

    async def delete(self, filters: Sequence[AclFilter], deadline: Deadline) -> list[AclBinding]:
        """Delete the ACLs that any of the filters selects, and return them; raise the first error."""
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_fields(each)) for each in filters])
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        found: dict[AclBinding, None] = {}
        for result in response.filter_results:
            _raise(result, "deleting ACLs", request.name)
            for acl in result.matching_acls:
                _raise(acl, "deleting ACLs", request.name)
                found[_acl(acl.resource_type, acl.resource_name, acl.pattern_type, acl)] = None
        return list(found)


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }


def _acl(kind: int, name: str, pattern: int, acl: Any) -> AclBinding:
    try:
        return AclBinding(
            ResourceType(kind),
            name,
            acl.principal,
            AclOperation(acl.operation),
            AclPermission(acl.permission_type),
            PatternType(pattern),
            acl.host,
        )
    except ValueError as error:
        raise MalformedMessage(f"an ACL that this client does not know: {error}") from error


def _raise(answer: Any, what: str, api: str) -> None:
    if answer.error_code:
        raise from_code(answer.error_code, f"{what}: {answer.error_message or 'refused'}", api)
