"""The dispatch table and the handlers say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyclient.broker_embedded import handlers
from pyclient.broker_embedded.dispatch import SERVED, handler_of, route
from pyclient.protocol.versions import API_KEYS, request_class


@pytest.mark.parametrize("name", SERVED)
def test_the_table_says_what_the_handler_says(name: str) -> None:
    handler = handler_of(name)
    served = SERVED[name]
    assert handler.versions == (served.first, served.last)  # type: ignore[attr-defined]
    assert handler.request is request_class(API_KEYS[name])  # type: ignore[attr-defined]
    first, last = request_class(API_KEYS[name]).versions
    assert first <= served.first <= served.last <= last
    assert 0 <= served.advertised_first <= served.first


def test_every_handler_is_in_the_table() -> None:
    modules = {path.stem for path in Path(str(handlers.__file__)).parent.glob("*.py")} - {"__init__"}
    assert modules == {served.module for served in SERVED.values()}


def test_every_handler_says_which_versions_it_serves_in_its_first_line() -> None:
    for name, served in SERVED.items():
        head = (Path(str(handlers.__file__)).parent / f"{served.module}.py").read_text().split("\n", 1)[0]
        versions = str(served.first) if served.first == served.last else f"{served.first}-{served.last}"
        assert re.match(rf'"""{name} v?{versions}\b[^-]', head), head


def test_a_route_is_made_once() -> None:
    assert route(API_KEYS["Metadata"], 1) is route(API_KEYS["Metadata"], 1)


def test_what_is_not_served_has_no_route() -> None:
    assert route(API_KEYS["Produce"], 2) is None
    assert route(API_KEYS["Produce"], -1) is None
    assert route(API_KEYS["Vote"], 0) is None
    assert route(-1, 65535) is None
