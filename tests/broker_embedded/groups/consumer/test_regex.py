"""Patterns of topics in RE2 syntax: whole names are matched, wrong patterns refused, and the work is limited."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.broker_embedded.groups.consumer.patterns import Regex, compile_regex, resolve
from pyclient.broker_embedded.groups.consumer.topics import KnownTopics, TopicInfo
from pyclient.errors import InvalidRegularExpression
from pyclient.protocol.fields import ZERO_UUID

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
        (r"\Qa.b\E+", "a.bb", True),
        ("[[:alpha:]_]+", "al_ph", True),
        (r"\p{Lu}+", "abc", False),
        (r"\Aab\z", "ab", True),
    ],
)
def test_re2_syntax_missing_in_python_matches(pattern: str, name: str, matches: bool) -> None:
    assert Regex(pattern).matches(name) is matches


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a**", "*a", "(?=a)", "(?<=a)", "(?>a)", "[a", "[z-a]", "a{2,1}", "a{1001}", r"(a)\1", r"\p{Foo}",
     "[[:foo:]]", "a\\", "(((a{100}){100}){100})", "a" * 10_001, "(?P<n"],
)  # fmt: skip
def test_pattern_refused_by_re2_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match=r"^SubscribedTopicRegex `(?s:.*)` is not a valid .*: .+\.$"):
        compile_regex(pattern)


def test_a_pattern_that_takes_too_much_work_matches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bits = ["".join("ab"[number >> digit & 1] for digit in range(12)) * 20 for number in range(4096)]
    topics = KnownTopics({name: TopicInfo(ZERO_UUID, 1) for name in bits}, version=7)
    assert resolve("(?:[ab]*a[ab]{50}){4}", topics, 0).topics == ()
    assert "too expensive" in caplog.text
    assert len(resolve("(a+)+[ab]*", topics, 0).topics) == 2048


def test_error_without_the_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    compile_regex.cache_clear()
    with pytest.raises(InvalidRegularExpression, match=re.escape("pip install 'pyclient-kafka[re2]'")):
        compile_regex("a.*")
    assert resolve("a.*", KnownTopics({"a": TopicInfo(ZERO_UUID, 1)}, version=1), 0).topics == ()
    assert "pyclient-kafka[re2]" in caplog.text


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
