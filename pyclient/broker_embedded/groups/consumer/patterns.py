"""Regular expressions that consumers subscribe with: compiled once, matched against the cluster's topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.consumer.model import ResolvedRegex
    from pyclient.broker_embedded.groups.consumer.topics import Topics


def compile_regex(pattern: str) -> None:
    """Refuses every expression: they are not served yet."""
    raise InvalidRegularExpression(f"SubscribedTopicRegex `{pattern}`: regular expressions are not served yet")


def resolve(pattern: str, topics: Topics, now_ms: int) -> ResolvedRegex:
    """The topics whose whole name matches, as of now."""
    raise InvalidRegularExpression(f"SubscribedTopicRegex `{pattern}`: regular expressions are not served yet")
