"""Answers with injected errors: per partition, topic or group, or at the top level; the rest of the answer is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyclient.broker_embedded.faults.items import Item, Names, Selection, key_in, roles_in
from pyclient.broker_embedded.faults.shapes import TOP, Shape, field_named, item_class
from pyclient.net.file_region import FileRegion
from pyclient.protocol.kinds import ArrayOf, Nested
from pyclient.protocol.parts import blank, fields_of

if TYPE_CHECKING:
    from pyclient.broker_embedded.faults.shapes import Level
    from pyclient.protocol.fields import Request, Response
    from pyclient.protocol.kinds import Kind


class Failing:
    """Builds failed answers to requests of one API and version; `place` is the level whose error code is set."""

    def __init__(
        self, shape: Shape, version: int, place: int, code: int, text: str, selection: Selection, names: Names
    ) -> None:
        self._shape = shape
        self._version = version
        self._place = place
        self._code = code
        self._text = text
        self._selection = selection
        self._names = names

    def whole(self, request: Request[Any]) -> Response:
        """Return an answer that has only the error at its top level."""
        response: Response = self._failed(request.response)
        for name in self._shape.copied:
            if self._has(request.response, name):
                setattr(response, name, getattr(request, name))
        return response

    def put(
        self, request: Request[Any], items: list[Item] | None, response: Response | None, *, done: bool
    ) -> Response:
        """Return `response` (None: nothing was done) with the error for the `items` that failed.

        `done`: those were served, too, and their part of the answer is replaced.
        """
        answer: Response = blank(request.response) if response is None else response
        self._put_list(answer, items, 0, {}, replace=done or items is None)
        return answer

    def _put_list(
        self, answer: Any, items: list[Item] | None, index: int, above: dict[str, Any], *, replace: bool
    ) -> None:
        level = self._shape.levels[index]
        listed = field_named(type(answer), level.answered)
        assert listed is not None
        cls = item_class(listed)
        elements = list(getattr(answer, level.answered) or ())
        if items is not None and not level.keys:
            rest = iter(elements)
            elements = [self._by_position(item, cls, index, rest, replace=replace) for item in items]
        else:
            if replace:
                elements = [self._replaced(each, cls, index, above) for each in self._joined(elements, index)]
            if items is not None:
                elements = self._completed(elements, items, cls, index, replace=replace)
        setattr(answer, level.answered, elements)

    def _by_position(self, item: Item, cls: type, index: int, rest: Any, *, replace: bool) -> Any:
        """Return an element that is identified by its position only."""
        if not item.failed:
            return next(rest)
        if replace:
            release(next(rest))
        return self._failed(cls, item, index)

    def _replaced(self, element: Any, cls: type, index: int, above: dict[str, Any]) -> Any:
        """Return an element of an answer, failed if it is selected."""
        roles = above | roles_in(self._shape.levels[index], element, self._names, asked=False)
        if not self._selection.allows(roles):
            return element
        if index < self._place:
            self._put_list(element, None, index + 1, roles, replace=True)
            return element
        release(element)
        return self._failed(cls, Item(element, roles, None), index, asked=False)

    def _completed(self, elements: list[Any], items: list[Item], cls: type, index: int, *, replace: bool) -> list[Any]:
        """Return the elements plus those that failed and have no answer yet, in the order of the request."""
        level = self._shape.levels[index]
        found = {self._key(level, each): each for each in reversed(elements)}
        for item in items:
            if not item.lost or (item.failed and item.key in found):
                continue
            element = found.get(item.key)
            if element is None:
                element = found[item.key] = (
                    self._failed(cls, item, index) if item.failed else self._keyed(cls, item, index)
                )
                elements.append(element)
            if not item.failed:
                deeper = replace or item.children is None
                self._put_list(element, item.children, index + 1, item.roles, replace=deeper)
        order = {item.key: position for position, item in enumerate(items)}
        elements.sort(key=lambda each: order.get(self._key(level, each), len(order)))
        return elements

    def _joined(self, elements: list[Any], index: int) -> list[Any]:
        """Merge the elements with equal keys: an answer to a Fetch may name a topic several times."""
        if index + 1 >= len(self._shape.levels):
            return elements
        inner = self._shape.levels[index + 1].answered
        joined: dict[Any, Any] = {}
        for element in elements:
            first = joined.setdefault(self._key(self._shape.levels[index], element), element)
            if first is not element:
                setattr(first, inner, [*getattr(first, inner), *getattr(element, inner)])
        return list(joined.values())

    def _key(self, level: Level, element: Any) -> Any:
        return key_in(level, roles_in(level, element, self._names, asked=False), 0)

    def _failed(self, cls: type, item: Item | None = None, index: int = TOP, *, asked: bool = True) -> Any:
        made = blank(cls) if item is None else self._keyed(cls, item, index, asked=asked)
        for name, value in self._shape.fill.items():
            if self._has(cls, name):
                setattr(made, name, value)
        error = self._shape.error if self._has(cls, self._shape.error) else "error_code"
        setattr(made, error, self._code)
        if self._has(cls, "error_message"):
            made.error_message = self._text
        return made

    def _keyed(self, cls: type, item: Item, index: int, *, asked: bool = True) -> Any:
        """Return an element of an answer with the key fields copied from the element of the request."""
        made: Any = blank(cls)
        for key in self._shape.levels[index].keys:
            name = key.asked if asked else key.answered
            value = getattr(item.source, name, None) if name else item.source
            declared = field_named(cls, key.answered)
            if declared is not None and declared.present_in(self._version):
                setattr(made, key.answered, _as_kind(value, declared.kind))
        return made

    def _has(self, cls: type, name: str) -> bool:
        declared = field_named(cls, name)
        return declared is not None and declared.present_in(self._version)


def release(answer: Any) -> None:
    """Release the file regions of an answer that is not sent: a Fetch holds regions of segments."""
    if isinstance(answer, FileRegion):
        answer.release()
    elif isinstance(answer, list):
        for each in answer:
            release(each)
    elif hasattr(answer, "__fields__"):
        for field in fields_of(type(answer)):
            release(getattr(answer, field.name))


def _as_kind(value: Any, kind: Kind) -> Any:
    """Convert a value of a request to the classes that the answer declares for the same fields."""
    if isinstance(kind, ArrayOf):
        return [_as_kind(each, kind.item) for each in value]
    if isinstance(kind, Nested):
        return kind.cls(**{each.name: getattr(value, each.name) for each in fields_of(kind.cls)})
    return value
