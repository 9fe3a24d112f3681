"""The items of a request, those that a fault selects, and the request without them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.faults.shapes import TOP, Shape
from pyclient.protocol.kinds import ZERO_UUID
from pyclient.protocol.parts import fields_of

if TYPE_CHECKING:
    from uuid import UUID

    from pyclient.broker_embedded.faults.shapes import Level

Names = Callable[["UUID"], "str | None"]
"""Returns the name of the topic with an id; None if there is none."""

_TOPIC: Final = 2  # the types of a config resource
_GROUP: Final = 32
_FIND_GROUP: Final = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """The limits of a fault; None: no limit. `*` in topic and group matches any text."""

    topic: str | None = None
    partitions: frozenset[int] | None = None
    group: str | None = None

    def allows(self, roles: Mapping[str, Any]) -> bool:
        """Return True if none of the known roles of an item contradicts the limits."""
        return (
            fits(self.topic, roles.get("topic", self.topic))
            and fits(self.group, roles.get("group", self.group))
            and (self.partitions is None or "partition" not in roles or roles["partition"] in self.partitions)
        )


def fits(pattern: str | None, text: object) -> bool:
    """Return True if a text matches the pattern; None matches all, `*` any text."""
    return pattern is None or text == pattern or (isinstance(text, str) and fnmatchcase(text, _plain(pattern)))


def _plain(pattern: str) -> str:
    """Escape all special characters of a pattern but `*`."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


@dataclass(slots=True)
class Item:
    """One element of a list of a request. `roles` include those of the enclosing items.

    `children` are the elements of the nested list, None where the request has no such list (it means all, or only the
    answer has one). `failed`: the fault selects it.
    """

    source: Any
    roles: dict[str, Any]
    key: Any
    children: list[Item] | None = None
    failed: bool = False
    lost: bool = field(default=False)
    """True if it or one of its children failed."""


def top_roles(shape: Shape, request: Any) -> dict[str, Any]:
    """Return the roles of the request itself: its group."""
    if not shape.group or getattr(request, "key_type", _FIND_GROUP) != _FIND_GROUP:
        return {}
    return {"group": getattr(request, shape.group)}


def items_of(shape: Shape, request: Any, names: Names) -> list[Item] | None:
    """Return the items of a request, level by level; None if it has no list, or asks for everything."""
    return _items(shape, 0, request, top_roles(shape, request), names)


def _items(shape: Shape, index: int, part: Any, above: dict[str, Any], names: Names) -> list[Item] | None:
    if index >= len(shape.levels):
        return None
    level = shape.levels[index]
    lists = [getattr(part, name, None) for name in level.lists]
    if not lists or None in lists:
        return None
    made: list[Item] = []
    for source in [element for elements in lists for element in elements or ()]:
        own = roles_in(level, source, names, asked=True)
        roles = above | own
        if getattr(part, "key_type", _FIND_GROUP) != _FIND_GROUP:  # FindCoordinator for transactions
            roles.pop("group", None)
        made.append(Item(source, roles, key_in(level, own, len(made)), _items(shape, index + 1, source, roles, names)))
    return made


def roles_in(level: Level, source: Any, names: Names, *, asked: bool) -> dict[str, Any]:
    """Return the roles of an element of a request (`asked`) or of an answer."""
    found: dict[str, Any] = {}
    for key in level.keys:
        name = key.asked if asked else key.answered
        found[key.role] = getattr(source, name, None) if name else source
    topic_id = found.get("topic_id")
    if topic_id is not None and not found.get("topic") and topic_id != ZERO_UUID:
        found["topic"] = names(topic_id)
    kind, resource = found.get("type"), found.get("resource")
    if kind is not None:
        found["topic"] = resource if kind == _TOPIC else None
        found["group"] = resource if kind == _GROUP else None
    return found


def key_in(level: Level, roles: Mapping[str, Any], position: int) -> Any:
    """Return the key of an element in its list; its position if the level has no keys."""
    if not level.keys:
        return position
    return tuple(
        _plain_value(roles[key.role])
        for key in level.keys
        if key.role != "topic_id" or (not roles.get("topic") and roles.get(key.role) != ZERO_UUID)
        if key.role != "topic" or roles.get("topic")
    )


def _plain_value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_plain_value, value))
    if hasattr(value, "__fields__"):
        return tuple(_plain_value(getattr(value, each.name)) for each in fields_of(type(value)))
    return value


def mentions(shape: Shape, request: Any, selection: Selection, names: Names) -> bool:
    """Return True if the request has an item that the selection allows."""
    if not selection.allows(top_roles(shape, request)):
        return False
    items = items_of(shape, request, names)
    return items is None or not shape.levels or _any(items, selection)


def _any(items: Iterable[Item], selection: Selection) -> bool:
    return any(
        selection.allows(item.roles) and (item.children is None or _any(item.children, selection)) for item in items
    )


def mark(items: list[Item], place: int, selection: Selection, level: int = TOP + 1) -> bool:
    """Mark the selected items of level `place` as failed, and their parents as `lost`. Return True if there are any."""
    for item in items:
        if not selection.allows(item.roles):
            continue
        if level == place:
            item.failed = item.lost = item.children is None or _any(item.children, selection)
        elif item.children is not None:
            item.lost = mark(item.children, place, selection, level + 1)
        else:
            item.lost = True  # only the answer has the level that fails
    return any(item.lost for item in items)


def without_failed(shape: Shape, request: Any, items: list[Item], index: int = 0) -> Any | None:
    """Return a copy of the request (or a part of it) without the failed items; None if no other items are left."""
    level = shape.levels[index]
    kept: dict[int, Any] = {}
    for item in items:
        if not item.lost or item.children is None:
            rest = None if item.failed else item.source
        else:
            rest = None if item.failed else without_failed(shape, item.source, item.children, index + 1)
        if rest is not None:
            kept[id(item.source)] = rest
    if not kept and items:
        return None
    changed = {
        name: [kept[id(source)] for source in getattr(request, name) if id(source) in kept] for name in level.lists
    }
    return copy_with(request, changed)


def copy_with(part: Any, changed: Mapping[str, Any]) -> Any:
    """Return a copy of the part with some fields changed."""
    cls = type(part)
    made = object.__new__(cls)
    for each in fields_of(cls):
        setattr(made, each.name, changed[each.name] if each.name in changed else getattr(part, each.name))
    return made
