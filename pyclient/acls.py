"""ACLs: the operations on resources that principals are allowed or denied. The names and numbers are Kafka's."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

E = TypeVar("E", bound=IntEnum)


class ResourceType(IntEnum):
    """The types of resources that ACLs are for."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The ways in which an ACL names resources. ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operations that an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Return True if it is allowed."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
ANY_USER: Final = "User:*"


class AclBinding(NamedTuple):
    """One ACL: `principal`, like `User:alice`, may do `operation` from `host` to the resources with that name.

    The name `*` with LITERAL means all resources of the type, `User:*` all users, the host `*` any.
    """

    resource_type: ResourceType
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = WILDCARD

    def __str__(self) -> str:
        return (
            f"{self.principal} has {self.permission.name} permission for operation {self.operation.name} from host "
            f"{self.host} on {self.resource_type.name}:{self.pattern.name}:{self.name}"
        )


class AclFilter(NamedTuple):
    """Selects ACLs: ANY and None match all. MATCH finds those that apply to a resource of that name."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern: PatternType = PatternType.ANY
    host: str | None = None

    def matches(self, acl: AclBinding) -> bool:
        """Return True if the filter selects an ACL."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _names(self, acl: AclBinding) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is not PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern is PatternType.LITERAL:
            return acl.name in (self.name, WILDCARD)
        return self.name.startswith(acl.name)


def acl_of(value: Any) -> AclBinding:
    """Return an `AclBinding` of one, or of a tuple with names in place of numbers: ("topic", "t", "User:a", "read").

    Raise `ValueError` for anything else.
    """
    if not isinstance(value, tuple) or not 4 <= len(value) <= 7:
        raise ValueError(f"{value!r} is no AclBinding")
    kind, name, principal, operation, *rest = value
    defaults: tuple[Any, ...] = (AclPermission.ALLOW, PatternType.LITERAL, WILDCARD)
    permission, pattern, host = tuple(rest) + defaults[len(rest) :]
    if not all(isinstance(text, str) and text for text in (name, principal, host)) or ":" not in principal:
        raise ValueError(f"{value!r}: name, principal (like User:alice) and host are texts")
    return AclBinding(
        _member(ResourceType, kind),
        name,
        principal,
        _member(AclOperation, operation),
        _member(AclPermission, permission),
        _member(PatternType, pattern),
        host,
    )


def _member(kind: type[E], value: Any) -> E:
    if isinstance(value, str):
        found = kind.__members__.get(value.upper())
        if found is None:
            raise ValueError(f"{value!r} is none of {', '.join(each.name.lower() for each in kind if each > 0)}")
        return found
    return kind(value)
