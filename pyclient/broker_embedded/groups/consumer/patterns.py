"""Regular expressions that consumers subscribe with: compiled once, matched against the cluster's topics."""

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

_COMPILED: Final = 64


@lru_cache(_COMPILED)
def compile_regex(pattern: str) -> Regex:
    """The expression, ready to match; raises InvalidRegularExpression with the reason."""
    try:
        return Regex(pattern)
    except RegexError as error:
        text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
        raise InvalidRegularExpression(text) from None


def resolve(pattern: str, topics: Topics, now_ms: int) -> ResolvedRegex:
    """The topics whose whole name matches, as of now; none if it takes too much work to find out."""
    found = compile_regex(pattern).matching(topics.names())
    if found is None:
        _log.warning("regular expression %.200r takes too much work: no topic matches until topics change", pattern)
    return ResolvedRegex(tuple(sorted(found or ())), topics.version, now_ms)
