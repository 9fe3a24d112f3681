"""The names of users in certificates: distinguished names as Java writes them, and mapping rules. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated."""

_OPTION: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(r"RULE:((?:\\/|[^/])*)/((?:\\/|[^/])*)/([LU]?)|DEFAULT")
_GROUP: Final = re.compile(r"\$(\d+)")
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The attributes that RFC 2253 names; Java writes the others as numbers."""

_NUMBERS: Final = {"emailAddress": ("1.2.840.113549.1.9.1", 0x16), "serialNumber": ("2.5.4.5", 0x13)}
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')


def user_of(principal: str) -> str:
    """Return the name in a principal: `alice` of `User:alice`."""
    return principal.partition(":")[2]


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return the subject of `ssl.SSLObject.getpeercert` as Java writes it (RFC 2253), the last attribute first."""
    return ",".join("+".join(_attribute(*each) for each in part) for part in reversed(subject))


def _attribute(name: str, value: str) -> str:
    if name in _SHORT:
        text = _SPECIAL.sub(r"\\\1", value)
        if text.startswith(("#", " ")):
            text = "\\" + text
        if text.endswith(" ") and len(text) > 1:
            text = text[:-1] + "\\ "
        return f"{_SHORT[name]}={text}"
    number, kind = _NUMBERS.get(name, (name, 0x0C))
    data = value.encode()
    return f"{number}=#{kind:02x}{len(data):02x}{data.hex()}"


class Rule(NamedTuple):
    """One rule: a name that matches the whole pattern becomes `replacement`; without a pattern it stays as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    change_case: Callable[[str], str] = str

    def apply(self, name: str) -> str | None:
        """Return the user's name; None if the rule is not for that name."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        return self.change_case(_GROUP.sub(lambda group: _group(found, int(group[1])), self.replacement))


def _group(found: re.Match[str], number: int) -> str:
    return (found[number] or "") if number <= (found.re.groups or 0) else ""


class PrincipalRules:
    """The rules of `ssl.principal.mapping.rules`, of which the first that matches is applied."""

    def __init__(self, text: str) -> None:
        """Raise `ConfigError` for a text that has no rules, or an invalid one."""
        self._rules = tuple(_rules(text))

    def __repr__(self) -> str:
        return f"<PrincipalRules {len(self._rules)}>"

    def principal(self, certificate: dict[str, Any] | None) -> str:
        """Return the principal of a client with a verified certificate, None: of one without."""
        if not certificate or not certificate.get("subject"):
            return ANONYMOUS
        name = distinguished_name(certificate["subject"])
        for rule in self._rules:
            user = rule.apply(name)
            if user is not None:
                return f"User:{user}"
        raise ConfigError(f"{_OPTION}: no rule applies to {name}: end the rules with DEFAULT")


def _rules(text: str) -> list[Rule]:
    rules: list[Rule] = []
    position = 0
    text = text.strip()
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ConfigError(
                f"{_OPTION} is {text!r}: from character {position + 1} on it must be DEFAULT, or "
                "RULE:pattern/replacement/ with an L or U after it for lower or upper case"
            )
        position = found.end()
        if found[0] == "DEFAULT":
            rules.append(Rule(None))
        else:
            try:
                pattern = re.compile(found[1].replace("\\/", "/"))
            except re.error as error:
                raise ConfigError(f"{_OPTION} has the pattern {found[1]!r}: {error}") from None
            change = {"L": str.lower, "U": str.upper}.get(found[3], str)
            rules.append(Rule(pattern, found[2].replace("\\/", "/"), change))
        rest = text[position:].lstrip()
        if rest and not rest.startswith(","):
            raise ConfigError(f"{_OPTION} is {text!r}: rules are separated by commas")
        position = len(text) - len(rest[1:].lstrip()) if rest else len(text)
    return rules or [Rule(None)]
