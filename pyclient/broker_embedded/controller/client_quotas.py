"""Client quotas (KIP-546): validation, the quota of a client, and filters of DescribeClientQuotas. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyclient import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

USER, CLIENT_ID, IP = "user", "client-id", "ip"

Entity = tuple[tuple[str, "str | None"], ...]
"""(type, name) pairs in the order of their types; the name None is the default entity."""

Owner = tuple["str | None", "str | None"]
"""The user and the client id that share a quota; None matches any."""

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUESTS: Final = "request_percentage"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"

_OF_CLIENTS: Final = {PRODUCE: True, FETCH: True, REQUESTS: False, MUTATIONS: False}  # True: must be a whole number
_OF_ADDRESSES: Final = {CONNECTIONS: True}

_TOO_LARGE: Final = 2.0**63

EXACT, DEFAULT, ANY = 0, 1, 2


def entity_of(pairs: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity of a request. Raise `InvalidRequest` for one that cannot have quotas."""
    found: dict[str, str | None] = {}
    for kind, name in pairs:
        if kind not in (USER, CLIENT_ID, IP):
            raise errors.InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if kind in found:
            raise errors.InvalidRequest(f"duplicate {kind} in an entity")
        if name == "":
            raise errors.InvalidRequest(f"Empty {kind} not supported")
        found[kind] = name
    if not found:
        raise errors.InvalidRequest("Invalid empty client quota entity")
    if IP in found:
        if len(found) > 1:
            raise errors.InvalidRequest(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
            )
        _check_address(found[IP])
    return tuple(sorted(found.items()))


def check_value(entity: Entity, key: str, value: float) -> None:
    """Raise `InvalidRequest`, with Kafka's message, unless the entity may have that quota."""
    allowed = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    if key not in allowed:
        raise errors.InvalidRequest(f"Invalid configuration key {key}")
    if not value > 0:
        raise errors.InvalidRequest(f"Quota {key} must be greater than 0")
    if allowed[key]:
        if value >= _TOO_LARGE:
            raise errors.InvalidRequest(f"Proposed value for {key} is too large for a LONG.")
        if value != int(value):
            raise errors.InvalidRequest(f"{key} cannot be a fractional value.")
    elif math.isinf(value):
        raise errors.InvalidRequest(f"{key} is {value}: must be finite")


def limit_of(
    quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str
) -> tuple[float, Owner] | None:
    """Return the quota of a client and its owner; None if there is none.

    The most specific quota applies, user before client id. A default quota applies to each client separately.
    """
    for entity in _candidates(user, client_id):
        value = quotas.get(entity, {}).get(key)
        if value is not None:
            kinds = dict(entity)
            return value, (user if USER in kinds else None, client_id if CLIENT_ID in kinds else None)
    return None


def _candidates(user: str, client_id: str) -> Iterator[Entity]:
    for name in (user, None):
        for client in (client_id, None):
            yield (CLIENT_ID, client), (USER, name)
        yield ((USER, name),)
    yield ((CLIENT_ID, client_id),)
    yield ((CLIENT_ID, None),)


class Filter:
    """The filter of DescribeClientQuotas: a match for each type; `strict` matches entities with only these types.

    Raise `InvalidRequest`, and `UnsupportedVersion` for an unknown type.
    """

    def __init__(self, components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> None:
        self._strict = strict
        self._matches: dict[str, tuple[int, str | None]] = {}
        for kind, match_type, name in components:
            if not kind:
                raise errors.InvalidRequest("Invalid empty entity type.")
            if kind in self._matches:
                raise errors.InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
            if kind not in (USER, CLIENT_ID, IP):
                raise errors.UnsupportedVersion(f"Unsupported entity type {kind}")
            if match_type not in (EXACT, DEFAULT, ANY):
                raise errors.InvalidRequest(f"Unknown match type {match_type}")
            if match_type == EXACT and name is None:
                raise errors.InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            if match_type != EXACT and name is not None:
                named = "DEFAULT" if match_type == DEFAULT else "SPECIFIED"
                raise errors.InvalidRequest(f"Request specified MATCH_TYPE_{named}, but also specified a match string.")
            self._matches[kind] = match_type, name
        if IP in self._matches and len(self._matches) > 1:
            raise errors.InvalidRequest(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )

    def finds(self, entity: Entity) -> bool:
        """Return True if the entity matches."""
        names = dict(entity)
        if self._strict and names.keys() != self._matches.keys():
            return False
        return all(
            kind in names and (match_type == ANY or names[kind] == name)
            for kind, (match_type, name) in self._matches.items()
        )


def _check_address(name: str | None) -> None:
    if name is not None:
        import ipaddress  # keeps the broker's start fast

        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise errors.InvalidRequest(f"{name} is not a valid IP or resolvable host.") from None
