"""Topic patterns in RE2 syntax: matches, refused patterns, and limits of work."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded.groups.consumer.automaton import ALPHABET
from pyclient.broker_embedded.groups.consumer.regex import Regex, RegexError

NAMES = (
    "", "-", "a", "aab", "ab", "abab", "al_ph", "abc-9", "A9.", "b", "foo", "foo-1", "foobar", "orders", "ORDERS",
    "topic-12", "x", "x.y", "xy", "xzy",
)  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    ["a*b", "topic-[0-9]+", "(a+)+b", "(?i)ORD.*s", "(?i:or)d.*", "^foo$", r"x\.y", r"\w{2,3}-\d", "a|b|", "a{0}",
     "(?P<n>x)y?", "(?:ab){2}", "[^a-z]+", r"\bfoo\b.*", r".*\B.", ".*", "[a-]", "[]a]", r"[\d.A]+", r"\x61b?", "a??b"],
)  # fmt: skip
def test_pattern_matches_whole_names_like_python_re(pattern: str) -> None:
    assert [Regex(pattern).matches(name) for name in NAMES] == [bool(re.fullmatch(pattern, name)) for name in NAMES]


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        (r"\Qa.b\E+", "a.bb", True), (r"\Qa.b\E+", "aab", False), (r"\Qa.b", "a.b", True),
        ("[[:alpha:]_]+", "al_ph", True),
        ("[[:^digit:]]+", "ab-1", False), (r"\pL+", "abc", True), (r"\p{Lu}+", "abc", False), (r"\P{N}+", "a1", False),
        (r"\p{^N}+", "ab", True), (r"\p{Greek}*", "a", False), (r"\pZ|a", "a", True), (r"\101", "A", True),
        (r"\x{62}", "b", True), (r"\C", "a", True), (r"\Aab\z", "ab", True),
        ("(?i)[A-C]+", "abC", True), ("(?i-i)A", "a", False),
        ("ä|a", "a", True), (r"\n", "n", False), ("a{,2}", "a", False), ("(?s).(?m)b", "ab", True),
        ("(|a)*", "aa", True),
    ],
)  # fmt: skip
def test_re2_syntax_missing_in_python_matches(pattern: str, name: str, matches: bool) -> None:
    assert Regex(pattern).matches(name) is matches


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "a**", "*a", "+", "(?=a)", "(?<=a)", "(?>a)", "[a", "[", "[z-a]", "[a-\\d]", "a{2,1}", "a{1001}",
     r"\1", r"(a)\1", r"\k", "(((a{100}){100}){100})", r"\p{Foo}", r"\pX", "[[:foo:]]", "a\\", "(?z)", r"\xg",
     "x{3000}",
     "(" * 200 + ")" * 200, "a" * 10_001, r"\x{110000}", "(?P<n", "a{999999999}"],
)  # fmt: skip
def test_pattern_refused_by_re2_is_refused(pattern: str) -> None:
    with pytest.raises(RegexError):
        Regex(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*b", "(a?){200}a{200}b"])
def test_no_pattern_exceeds_work_limit(pattern: str) -> None:
    assert not Regex(pattern).matches("a" * 249)


letters = st.sampled_from("ab.-")
pieces = st.recursive(
    letters.map(re.escape) | st.sampled_from([".", "[ab]", "[^a]", r"\w", "^", "$", r"\b"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: f"(?:{''.join(parts)})"),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,}"])).map(
            lambda it: f"(?:{it[0]}){it[1]}"
        ),
    ),
    max_leaves=8,
)


@given(pieces, st.text(letters, max_size=6))
def test_generated_pattern_matches_like_python_re(pattern: str, name: str) -> None:
    assert Regex(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@given(st.text(string.printable, max_size=12), st.text(st.sampled_from(sorted(ALPHABET)), max_size=6))
def test_arbitrary_text_is_parsed_or_refused(pattern: str, name: str) -> None:
    try:
        Regex(pattern).matches(name)
    except RegexError as error:
        assert str(error)
