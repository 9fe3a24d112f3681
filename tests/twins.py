"""Compare what exists twice, compiled and in Python."""

from __future__ import annotations

import inspect
from typing import Any


def check_interfaces(compiled: Any, pure: Any) -> None:
    """Assert that both have the same arguments, or for classes the same members with the same arguments."""
    if not inspect.isclass(pure):
        assert _arguments(compiled) == _arguments(pure)
        return
    assert _members(compiled) == _members(pure)
    for member in _members(pure):
        if inspect.isfunction(getattr(pure, member)):
            assert _arguments(getattr(compiled, member)) == _arguments(getattr(pure, member)), member


def _members(kind: Any) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def _arguments(function: Any) -> list[tuple[str, Any, Any]]:
    """Return names, kinds and defaults; compiled functions have theirs in the first line of their docstring."""
    parameters = inspect.signature(getattr(function, "__wrapped__", function)).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]
