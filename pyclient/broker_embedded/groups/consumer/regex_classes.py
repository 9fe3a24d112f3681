"""RE2's character classes, restricted to the characters of topic names."""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Final

from pyclient.broker_embedded.groups.consumer.automaton import ALPHABET

_DIGITS: Final = frozenset(string.digits)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")

PERL: Final = {
    "d": _DIGITS,
    "D": ALPHABET - _DIGITS,
    "w": _WORD,
    "W": ALPHABET - _WORD,
    "s": frozenset[str](),
    "S": ALPHABET,
}
r"""`\d` and so on; topic names have no whitespace."""

POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
"""`[:alpha:]` and so on."""

CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
r"""`\n` and so on."""

_CATEGORY: Final = re.compile("C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
_OTHER_SCRIPTS: Final = re.compile(
    "Arabic|Armenian|Bengali|Cyrillic|Devanagari|Ethiopic|Georgian|Greek|Gujarati|Han|Hangul|Hebrew|Hiragana|Kannada|"
    "Katakana|Khmer|Lao|Malayalam|Mongolian|Myanmar|Sinhala|Syriac|Tamil|Telugu|Thai|Tibetan"
)


def unicode_class(name: str) -> frozenset[str] | None:
    r"""Return the characters of `\p{name}`, a general category or a script; None for an unknown name."""
    if name == "Any":
        return ALPHABET
    if _CATEGORY.fullmatch(name):
        return frozenset(char for char in ALPHABET if unicodedata.category(char).startswith(name))
    if name in ("Latin", "Common"):
        letters = frozenset(string.ascii_letters)
        return letters if name == "Latin" else ALPHABET - letters
    return frozenset() if _OTHER_SCRIPTS.fullmatch(name) else None


def folded(chars: frozenset[str]) -> frozenset[str]:
    """Return the characters in both cases."""
    return chars | {char.swapcase() for char in chars}
