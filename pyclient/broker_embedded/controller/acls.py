"""ACLs in the metadata log: which new ones are valid, and their records. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.acls import CLUSTER_NAME, AclBinding, AclOperation, AclPermission, PatternType, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

_UNDEFINED: Final = (0, 1)
"""The numbers of `unknown` and `any`, which an ACL cannot have."""


def check(acl: AclBinding) -> None:
    """Raise `InvalidRequest`, with Kafka's message, for an ACL that cannot be created."""
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise errors.InvalidRequest(f"Invalid patternType {acl.pattern.name}")
    if acl.resource_type in _UNDEFINED:
        raise errors.InvalidRequest(f"Invalid resourceType {acl.resource_type.name}")
    if acl.permission not in (AclPermission.ALLOW, AclPermission.DENY):
        raise errors.InvalidRequest(f"Invalid permissionType {acl.permission.name}")
    if acl.operation in _UNDEFINED:
        raise errors.InvalidRequest(f"Invalid operation {acl.operation.name}")
    if not acl.name:
        raise errors.InvalidRequest("Resource name should not be empty")
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise errors.InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in acl.principal:
        raise errors.InvalidRequest(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )


def records_of(acls: Iterable[AclBinding], known: Mapping[UUID, AclBinding], new_id: Callable[[], UUID]) -> list[Any]:
    """Return the records of those ACLs that are not there yet."""
    return [record_of(new_id(), acl) for acl in dict.fromkeys(acls) if acl not in set(known.values())]


def record_of(acl_id: UUID, acl: AclBinding) -> Any:
    """Return the record of an ACL."""
    from pyclient.protocol.messages.metadata_log import AccessControlEntryRecord  # imported where ACLs are used

    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=int(acl.resource_type),
        resource_name=acl.name,
        pattern_type=int(acl.pattern),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )


def acl_in(record: Any) -> AclBinding:
    """Return the ACL of a record."""
    return AclBinding(
        ResourceType(record.resource_type),
        record.resource_name,
        record.principal,
        AclOperation(record.operation),
        AclPermission(record.permission_type),
        PatternType(record.pattern_type),
        record.host,
    )
