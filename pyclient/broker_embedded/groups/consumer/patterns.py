"""Regular expressions in RE2 syntax, which the google-re2 library matches (extra `re2`): of topics and transactions."""

from __future__ import annotations

import logging
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.groups.consumer.model import ResolvedRegex
from pyclient.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.groups.consumer.topics import Topics

_log = logging.getLogger(__name__)

_CACHE_SIZE: Final = 64
_MAX_LENGTH: Final = 10_000  # characters of an expression
_MAX_MEMORY: Final = 1 << 20  # bytes of a compiled one; RE2 refuses those that need more
_SECONDS: Final = 0.04  # of the processor, for matching all names ...
_SECONDS_PER_NAME: Final = 20e-6  # ... and for each (docs/measurements.md, "Regular expressions of groups")


class Regex:
    """A compiled expression; matching takes time proportional to the length of the text."""

    def __init__(self, pattern: str) -> None:
        """Raise InvalidRegularExpression with the reason, also if the library is missing."""
        if len(pattern) > _MAX_LENGTH:
            raise InvalidRegularExpression(f"it has {len(pattern)} characters, more than {_MAX_LENGTH}")
        self._match: Any = _compiled(pattern).fullmatch

    def matches(self, text: str) -> bool:
        """Return True if the expression matches the whole text."""
        return self._match(text) is not None

    def matching(self, names: Iterable[str]) -> list[str] | None:
        """Return the names that match, or None if that takes too much work."""
        found = []
        match, clock = self._match, time.thread_time
        until = clock() + _SECONDS
        for name in names:
            if match(name) is not None:
                found.append(name)
            until += _SECONDS_PER_NAME
            if clock() > until:
                return None
        return found


def _compiled(pattern: str) -> Any:
    try:
        import re2
    except ImportError:
        raise InvalidRegularExpression(
            "this broker has no library for RE2's syntax: pip install 'pyclient-kafka[re2]' where it runs"
        ) from None
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRegularExpression(text) from None


@lru_cache(_CACHE_SIZE)
def compile_regex(pattern: str) -> Regex:
    """Return the compiled expression of a subscription; raise InvalidRegularExpression with the reason."""
    try:
        return Regex(pattern)
    except InvalidRegularExpression as error:
        text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
        raise InvalidRegularExpression(text) from None


def resolve(pattern: str, topics: Topics, now_ms: int) -> ResolvedRegex:
    """Return the topics whose whole name matches; none if matching takes too much work or cannot be done here."""
    found: list[str] | None = []
    try:
        found = compile_regex(pattern).matching(topics.names())
    except InvalidRegularExpression as error:  # of a group that a broker with the library has stored
        _log.warning("%s It matches no topic", error)
    if found is None:
        _log.warning("regular expression %.200r is too expensive: it matches no topic until topics change", pattern)
    return ResolvedRegex(tuple(sorted(found or ())), topics.version, now_ms)
