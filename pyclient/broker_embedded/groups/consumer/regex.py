"""Parse RE2 regular expressions over the characters of topic names.

Python's `re` is another language (it has back references and look-around, which RE2 rejects) and takes exponential time
for a pattern like `(a+)+b`. Characters that are not allowed in topic names are accepted and match nothing.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Final, NoReturn

from pyclient.broker_embedded.groups.consumer.automaton import (
    ALPHABET,
    Automaton,
    Chars,
    Choice,
    Edge,
    Node,
    Repeat,
    Sequence,
)
from pyclient.broker_embedded.groups.consumer.regex_classes import CONTROLS, PERL, POSIX, folded, unicode_class

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_REPEAT: Final = 1_000
_MAX_DEPTH: Final = 100
_MAX_LENGTH: Final = 10_000
_BRACES: Final = re.compile(r"\{([0-9]{1,9})(,([0-9]{1,9})?)?\}")
_GROUP_NAME: Final = re.compile(r"\?P?<[A-Za-z0-9_]+>")
_FLAGS: Final = re.compile(r"\?([imsU]*)(-[imsU]+)?([:)])")
_HEX: Final = re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,8})\}")
_OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_UNICODE: Final = re.compile(r"\{(\^?)([A-Za-z_]+)\}|([A-Z])")
_POSIX_CLASS: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_EDGES: Final = {"A": Edge.START, "z": Edge.END, "b": Edge.WORD, "B": Edge.NO_WORD}
_EMPTY: Final = Sequence(())


class RegexError(Exception):
    """The pattern is not valid in RE2; the text has the reason and the position."""


class Regex:
    """A pattern that matches whole topic names."""

    def __init__(self, pattern: str) -> None:
        """Raise `RegexError` for a pattern that RE2 rejects, or one of more than 2,500 states."""
        self.pattern = pattern
        try:
            self._automaton = Automaton(_Parser(pattern).parse())
        except OverflowError as error:
            raise RegexError(f"the expression is too large: {error}") from None

    def __repr__(self) -> str:
        return f"<Regex {self.pattern!r}>"

    def matching(self, names: Iterable[str]) -> list[str] | None:
        """Return the names that match as a whole; None if matching exceeds its work limit."""
        self._automaton.reset_budget()
        try:
            return [name for name in names if self._automaton.matches(name)]
        except OverflowError:
            return None

    def matches(self, name: str) -> bool:
        """Return True if the whole name matches. Raise OverflowError if matching exceeds its work limit."""
        self._automaton.reset_budget()
        return self._automaton.matches(name)


class _Parser:
    """A recursive-descent parser for one pattern."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._position = 0
        self._depth = 0
        self._folds = False

    def parse(self) -> Node:
        """Parse the whole pattern."""
        if len(self._text) > _MAX_LENGTH:
            self._fail(f"the expression is longer than {_MAX_LENGTH} characters")
        node = self._choice()
        if self._position < len(self._text):
            self._fail("unexpected )")
        return node

    def _fail(self, reason: str) -> NoReturn:
        raise RegexError(f"{reason} (at position {self._position})")

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._position):
            return False
        self._position += len(text)
        return True

    def _match(self, form: re.Pattern[str]) -> re.Match[str] | None:
        found = form.match(self._text, self._position)
        if found is not None:
            self._position = found.end()
        return found

    def _next(self, missing: str) -> str:
        if self._position >= len(self._text):
            self._fail(missing)
        self._position += 1
        return self._text[self._position - 1]

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._position < len(self._text) and self._text[self._position] not in "|)":
            if self._take(r"\Q"):
                parts += map(self._literal, self._quoted())
                parts[-1:] = map(self._repeated, parts[-1:])
            else:
                parts.append(self._repeated(self._atom()))
        return Sequence(tuple(parts))

    def _quoted(self) -> str:
        end = self._text.find(r"\E", self._position)
        quoted = self._text[self._position : end if end >= 0 else None]
        self._position = len(self._text) if end < 0 else end + 2
        return quoted

    def _repeated(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self._take("?")  # a lazy repetition matches the same whole names
        if self._bounds() is not None:
            self._fail("a repetition of a repetition")
        return Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        braces = self._match(_BRACES)
        if braces is None:
            return None
        low = int(braces[1])
        high = low if braces[2] is None else None if braces[3] is None else int(braces[3])
        if max(low, high or 0) > _MAX_REPEAT or (high is not None and high < low):
            self._fail(f"a repetition of {braces[0]}")
        return low, high

    def _atom(self) -> Node:
        char = self._next("nothing")
        match char:
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case ".":
                return Chars(ALPHABET)
            case "^":
                return Edge.START
            case "$":
                return Edge.END
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                self._fail(f"nothing to repeat with {char}")
        return self._literal(char)

    def _literal(self, char: str) -> Node:
        chars = frozenset({char})
        return Chars((folded(chars) if self._folds else chars) & ALPHABET)

    def _group(self) -> Node:
        outer = self._folds
        if self._text.startswith("?", self._position) and self._match(_GROUP_NAME) is None:
            flags = self._match(_FLAGS)
            if flags is None:
                self._fail("a group of a kind that RE2 does not have")
            self._folds = (outer or "i" in flags[1]) and "i" not in (flags[2] or "")
            if flags[3] == ")":  # the flags apply to the rest of the enclosing group
                return _EMPTY
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail("groups nested too deep")
        node = self._choice()
        if not self._take(")"):
            self._fail("a group without its end")
        self._depth -= 1
        self._folds = outer
        return node

    def _escape(self) -> Node:
        edge = _EDGES.get(self._text[self._position : self._position + 1])
        if edge is not None:
            self._position += 1
            return edge
        return Chars(self._escaped())

    def _escaped(self) -> frozenset[str]:
        r"""Parse the escape after a `\`, inside or outside of a class."""
        octal = self._match(_OCTAL)
        if octal is not None:
            return self._fold(chr(int(octal[0], 8)))
        char = self._next(r"a \ at the end")
        if char in PERL:
            return PERL[char]
        if char in "pP":
            return self._unicode(negated=char == "P")
        if char == "x":
            digits = self._match(_HEX)
            if digits is None or int(digits[1] or digits[2], 16) > 0x10FFFF:
                self._fail("a wrong hexadecimal escape")
            return self._fold(chr(int(digits[1] or digits[2], 16)))
        if char == "C":
            return ALPHABET
        if char not in CONTROLS and char not in string.punctuation:
            self._fail(f"RE2 has no \\{char}")
        return self._fold(CONTROLS.get(char, char))

    def _fold(self, char: str) -> frozenset[str]:
        chars = frozenset({char})
        return folded(chars) if self._folds else chars

    def _unicode(self, *, negated: bool) -> frozenset[str]:
        form = self._match(_UNICODE)
        chars = None if form is None else unicode_class(form[2] or form[3])
        if form is None or chars is None:
            self._fail("an unknown class of Unicode characters")
        return ALPHABET - chars if negated != bool(form[1]) else chars

    def _class(self) -> frozenset[str]:
        negated = self._take("^")
        chars: frozenset[str] = frozenset()
        first = True
        while first or not self._take("]"):
            chars |= self._class_part()
            first = False
        if self._folds:
            chars = folded(chars)
        return ALPHABET - chars if negated else chars & ALPHABET

    def _class_part(self) -> frozenset[str]:
        posix = self._match(_POSIX_CLASS)
        if posix is not None:
            if posix[2] not in POSIX:
                self._fail(f"an unknown class {posix[0]}")
            return ALPHABET - POSIX[posix[2]] if posix[1] else POSIX[posix[2]]
        low = self._class_chars()
        if not self._text.startswith("-", self._position) or self._text.startswith("-]", self._position):
            return low
        self._position += 1
        high = self._class_chars()
        if len(low) != 1 or len(high) != 1 or min(low) > min(high):
            self._fail("a wrong range of characters")
        return frozenset(char for char in ALPHABET if min(low) <= char <= min(high))

    def _class_chars(self) -> frozenset[str]:
        char = self._next("a class without its end")
        if char != "\\":
            return frozenset({char})
        fold, self._folds = self._folds, False  # the whole class is folded later
        chars = self._escaped()
        self._folds = fold
        return chars
