"""What a request is about, item by item: which of them a fault means, and the request without them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.faults_shapes import TOP, Shape
from pyclient.protocol.kinds import ZERO_UUID
from pyclient.protocol.parts import fields_of

if TYPE_CHECKING:
    from uuid import UUID

    from pyclient.broker_embedded.faults_shapes import Level

Names = Callable[["UUID"], "str | None"]
"""The name of the topic with an id, if there is one."""

_TOPIC: Final = 2  # the types of a config resource
_GROUP: Final = 32
_FIND_GROUP: Final = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """What a fault is limited to; None: to nothing. In topic and group a `*` stands for any text."""

    topic: str | None = None
    partitions: frozenset[int] | None = None
    group: str | None = None

    def allows(self, roles: Mapping[str, Any]) -> bool:
        """Whether nothing that is known of an item speaks against it."""
        return (
            fits(self.topic, roles.get("topic", self.topic))
            and fits(self.group, roles.get("group", self.group))
            and (self.partitions is None or "partition" not in roles or roles["partition"] in self.partitions)
        )


def fits(pattern: str | None, text: object) -> bool:
    """Whether a text is what the pattern means; None means all, a `*` in it any text."""
    return pattern is None or text == pattern or (isinstance(text, str) and fnmatchcase(text, _plain(pattern)))


def _plain(pattern: str) -> str:
    """`*` as the only special character of a pattern."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


@dataclass(slots=True)
class Item:
    """One element of a list of a request. `roles` include those of the items around it.

    `children` are the elements of the list in it, None where the request has no such list (which means: all, or it is
    only in the answer); `failed` says that the fault means it.
    """

    source: Any
    roles: dict[str, Any]
    key: Any
    children: list[Item] | None = None
    failed: bool = False
    lost: bool = field(default=False)
    """Whether it or something in it failed."""


def top_roles(shape: Shape, request: Any) -> dict[str, Any]:
    """What the request itself says: its group."""
    if not shape.group or getattr(request, "key_type", _FIND_GROUP) != _FIND_GROUP:
        return {}
    return {"group": getattr(request, shape.group)}


def items_of(shape: Shape, request: Any, names: Names) -> list[Item] | None:
    """The items of a request, level by level; None where it has no list, or asks for all there is."""
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
    """What an element of a request (`asked`) or of an answer says about itself, by role."""
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
    """What an element is found by among the others; its position where it has nothing to be found by."""
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
    """Whether the request has anything that the selection means."""
    if not selection.allows(top_roles(shape, request)):
        return False
    items = items_of(shape, request, names)
    return items is None or not shape.levels or _any(items, selection)


def _any(items: Iterable[Item], selection: Selection) -> bool:
    return any(
        selection.allows(item.roles) and (item.children is None or _any(item.children, selection)) for item in items
    )


def mark(items: list[Item], place: int, selection: Selection, level: int = TOP + 1) -> bool:
    """Mark what fails: the selected items of level `place`, and what they are in as `lost`. Whether there is any."""
    for item in items:
        if not selection.allows(item.roles):
            continue
        if level == place:
            item.failed = item.lost = item.children is None or _any(item.children, selection)
        elif item.children is not None:
            item.lost = mark(item.children, place, selection, level + 1)
        else:
            item.lost = True  # the answer alone has what fails
    return any(item.lost for item in items)


def without_failed(shape: Shape, request: Any, items: list[Item], index: int = 0) -> Any | None:
    """A copy of the request (or of a part of it) without what failed; None when nothing else is in it."""
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
    """The part with some fields changed; the original stays as it is."""
    cls = type(part)
    made = object.__new__(cls)
    for each in fields_of(cls):
        setattr(made, each.name, changed[each.name] if each.name in changed else getattr(part, each.name))
    return made
