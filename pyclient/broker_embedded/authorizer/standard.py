"""`StandardAuthorizer`: decides as Kafka's authorizer of that name. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.acls import ANY_USER, WILDCARD, AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from pyclient.errors import UnknownServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

log = logging.getLogger("pyclient.authorizer")

_IMPLY: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
}
"""Operations whose permission is implied by that of others; a denial implies none."""

_MOST_KEPT: Final = 10_000
_CHECKED_FIRST: Final = "hardcode"


class Decision(NamedTuple):
    """Return True if something is allowed, and by what: an ACL, or the name of a rule."""

    allowed: bool
    rule: str


class AuthorizerNotReady(UnknownServerError):
    """The authorizer cannot decide yet; Kafka's AuthorizerNotReadyException has no error code of its own either."""


class _OfType:
    """The ACLs of one resource type by their names."""

    __slots__ = ("literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, list[AclBinding]] = {}
        self.prefixed: dict[str, list[AclBinding]] = {}

    def of(self, name: str) -> Iterable[AclBinding]:
        """Yield the ACLs that apply to a resource."""
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        if len(self.prefixed) <= len(name):
            for prefix, acls in self.prefixed.items():
                if name.startswith(prefix):
                    yield from acls
        else:
            for end in range(1, len(name) + 1):
                yield from self.prefixed.get(name[:end], ())


class StandardAuthorizer:
    """Decides by the ACLs that `acls` returns, which are read again when `version` returns another value.

    A denial ends the search at once. Without an ACL for a resource, all is denied, or allowed with `allow_everyone`.
    Until `is_loaded` returns True, only super users get a decision: `AuthorizerNotReady` is raised for others.
    """

    def __init__(
        self,
        acls: Callable[[], Iterable[AclBinding]],
        version: Callable[[], Hashable] = lambda: 0,
        *,
        super_users: Iterable[str] = (),
        allow_everyone: bool = False,
        is_loaded: Callable[[], bool] = lambda: True,
    ) -> None:
        self.super_users = frozenset(super_users)
        self._acls = acls
        self._version = version
        self._is_loaded = is_loaded
        self._no_acl = Decision(allow_everyone, "allow.everyone.if.no.acl.found" if allow_everyone else "no ACL")
        self._seen: Hashable = None
        self._index: Mapping[ResourceType, _OfType] = {}
        self._decided: dict[tuple[str, str, AclOperation, ResourceType, str], Decision] = {}

    def __repr__(self) -> str:
        return f"<StandardAuthorizer super_users={sorted(self.super_users)}>"

    def may(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str, *, quiet: bool = False
    ) -> bool:
        """Return True if the principal may do it. Log the decision, unless `quiet`. Raise `AuthorizerNotReady`."""
        decision = self.decide(principal, host, operation, kind, name)
        if not quiet:
            level = logging.DEBUG if decision.allowed else logging.INFO
            if log.isEnabledFor(level):
                log.log(
                    level,
                    "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s based on rule %s",
                    principal,
                    "Allowed" if decision.allowed else "Denied",
                    operation.name,
                    host,
                    kind.name,
                    name,
                    decision.rule,
                )
        return decision.allowed

    def decide(self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str) -> Decision:
        """Return the decision about one operation on one resource. Raise `AuthorizerNotReady`."""
        if principal in self.super_users:
            return Decision(True, "super user")
        if not self._is_loaded():
            raise AuthorizerNotReady(
                "the ACLs are not read yet: until this node has the committed metadata it serves super.users only"
            )
        self._refresh()
        key = (principal, host, operation, kind, name)
        known = self._decided.get(key)
        if known is None:
            if len(self._decided) >= _MOST_KEPT:
                self._decided.clear()
            known = self._decided[key] = self._search(*key)
        return known

    def may_any(self, principal: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Return True if the principal may do it to at least one resource of that type, also to one to come."""
        if self.may(principal, host, operation, kind, _CHECKED_FIRST, quiet=True):
            return True
        self._refresh()
        of_type = self._index.get(kind)
        if of_type is None:
            return False
        applying = [
            acl
            for acls in (*of_type.literal.values(), *of_type.prefixed.values())
            for acl in acls
            if acl.principal in (principal, ANY_USER)
            and acl.host in (host, WILDCARD)
            and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = [acl for acl in applying if acl.permission is AclPermission.DENY]
        if any(acl.pattern is PatternType.LITERAL and acl.name == WILDCARD for acl in denied):
            return False
        return any(acl.permission is AclPermission.ALLOW and not _is_covered(acl, denied) for acl in applying)

    def operations(self, principal: str, host: str, possible: int, kind: ResourceType, name: str) -> int:
        """Return those of the `possible` operations (as bits) that the principal may do."""
        return sum(
            1 << operation
            for operation in AclOperation
            if possible >> operation & 1 and self.may(principal, host, operation, kind, name, quiet=True)
        )

    def _search(self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str) -> Decision:
        allowed: AclBinding | None = None
        found = False
        of_type = self._index.get(kind)
        for acl in of_type.of(name) if of_type is not None else ():
            found = True
            if not _applies(acl, principal, host, operation):
                continue
            if acl.permission is AclPermission.DENY:
                return Decision(False, str(acl))
            allowed = allowed or acl
        if allowed is not None:
            return Decision(True, str(allowed))
        return Decision(False, "no ACL for this principal") if found else self._no_acl

    def _refresh(self) -> None:
        version = self._version()
        if version == self._seen:
            return
        index: dict[ResourceType, _OfType] = {}
        for acl in self._acls():
            of_type = index.setdefault(acl.resource_type, _OfType())
            names = of_type.literal if acl.pattern is PatternType.LITERAL else of_type.prefixed
            names.setdefault(acl.name, []).append(acl)
        self._index, self._seen = index, version
        self._decided.clear()


def _applies(acl: AclBinding, principal: str, host: str, operation: AclOperation) -> bool:
    if acl.principal not in (principal, ANY_USER) or acl.host not in (host, WILDCARD):
        return False
    if acl.operation in (AclOperation.ALL, operation):
        return True
    return acl.permission is AclPermission.ALLOW and acl.operation in _IMPLY.get(operation, ())


def _is_covered(acl: AclBinding, denied: list[AclBinding]) -> bool:
    """Return True if what an ACL allows is denied as a whole."""
    for other in denied:
        if other.pattern is PatternType.PREFIXED and acl.name.startswith(other.name) and acl.name != WILDCARD:
            return True
        if other.pattern is acl.pattern is PatternType.LITERAL and other.name == acl.name:
            return True
    return False
