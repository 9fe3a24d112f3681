"""Names in certificates, as Java writes them, and the rules that make users' names of them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.config.principal_rules import ANONYMOUS, PrincipalRules, distinguished_name

NAME = (
    (("countryName", "US"),),
    (("organizationName", "Some, Inc."),),
    (("organizationalUnitName", "ServiceUsers"),),
    (("commonName", "serviceuser"),),
)
TEXT = "CN=serviceuser,OU=ServiceUsers,O=Some\\, Inc.,C=US"


def principal(rules: str, name: tuple[tuple[tuple[str, str], ...], ...] = NAME) -> str:
    return PrincipalRules(rules).principal({"subject": name})


def test_the_name_of_a_certificate_is_written_as_by_java() -> None:
    assert distinguished_name(NAME) == TEXT
    assert distinguished_name(((("commonName", " #a "),),)) == "CN=\\ #a\\ "
    assert distinguished_name(((("emailAddress", "a@b"), ("commonName", 'a"b')),)) == (
        '1.2.840.113549.1.9.1=#1603614062+CN=a\\"b'
    )


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", f"User:{TEXT}"),
        ("", f"User:{TEXT}"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "User:serviceuser"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U,DEFAULT", "User:SERVICEUSER@SERVICEUSERS"),
        ("RULE:^CN=other.*$/x/,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT", "User:serviceuser"),
        ("RULE:^CN=(.*?),.*$/$1\\/x/", "User:serviceuser/x"),
        ("RULE:CN/x/,DEFAULT", f"User:{TEXT}"),
        ("RULE:.*/$7/", "User:"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_is_applied(rules: str, expected: str) -> None:
    assert principal(rules) == expected


def test_a_client_without_a_certificate_is_anonymous() -> None:
    for certificate in (None, {}, {"subject": ()}):
        assert PrincipalRules("RULE:.*/x/").principal(certificate) == ANONYMOUS


@pytest.mark.parametrize("rules", ["X", "RULE:a", "RULE:a/b", "RULE:(/b/", "DEFAULT DEFAULT", "RULE:a/b/X"])
def test_texts_that_are_no_rules_are_refused(rules: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)


def test_a_name_that_no_rule_is_for_is_an_error() -> None:
    with pytest.raises(errors.ConfigError, match="no rule applies to CN=serviceuser"):
        principal("RULE:CN=other/x/")


@given(st.text())
def test_any_text_is_taken_or_refused(text: str) -> None:
    with contextlib.suppress(errors.ConfigError):
        PrincipalRules(text)


@given(st.lists(st.tuples(st.sampled_from(["commonName", "organizationName", "emailAddress"]), st.text(max_size=40))))
def test_any_name_can_be_written(parts: list[tuple[str, str]]) -> None:
    assert distinguished_name(tuple((part,) for part in parts)).count("=") >= len(parts)
