"""The parts inside a producer that its tests look into, so that only this module names its private attributes."""

from __future__ import annotations

from typing import Any


def core_of(producer: Any) -> Any:
    """Return the `ProducerCore`."""
    return producer._core


def engine_of(producer: Any) -> Any:
    """Return what runs the core: the `Engine` or the `AsyncEngine`."""
    return producer._engine


def lane_of(producer: Any) -> Any:
    """Return the compiled fast path of a `Producer`, None without one."""
    return producer._lane
