"""Regular expressions of subscriptions: compiled once, matched against the cluster's topics."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.groups.consumer.model import ResolvedRegex
from pyclient.broker_embedded.groups.consumer.regex import Regex, RegexError
from pyclient.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.consumer.topics import Topics

_log = logging.getLogger(__name__)

_CACHE_SIZE: Final = 64


@lru_cache(_CACHE_SIZE)
def compile_regex(pattern: str) -> Regex:
    """Return the compiled expression; raise InvalidRegularExpression with the reason."""
    try:
        return Regex(pattern)
    except RegexError as error:
        text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
        raise InvalidRegularExpression(text) from None


def resolve(pattern: str, topics: Topics, now_ms: int) -> ResolvedRegex:
    """Return the topics whose whole name matches; none if matching exceeds its work limit."""
    found = compile_regex(pattern).matching(topics.names())
    if found is None:
        _log.warning("regular expression %.200r is too expensive: it matches no topic until topics change", pattern)
    return ResolvedRegex(tuple(sorted(found or ())), topics.version, now_ms)
