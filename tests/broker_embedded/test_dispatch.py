"""The dispatch table equals the declarations of the handlers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyclient.broker_embedded import handlers
from pyclient.broker_embedded.dispatch import ROUTES, declaration_of, route
from pyclient.broker_embedded.served_apis import SERVED, ListenerType, served_on
from pyclient.protocol.versions import API_KEYS, request_class


@pytest.mark.parametrize("name", SERVED)
def test_table_equals_declaration_of_handler(name: str) -> None:
    declared = declaration_of(name)
    served = SERVED[name]
    assert declared.versions == (served.first, served.last)
    assert declared.request is request_class(API_KEYS[name])
    first, last = request_class(API_KEYS[name]).versions
    assert first <= served.first <= served.last <= last
    assert 0 <= served.advertised_first <= served.first


def test_every_handler_is_in_table() -> None:
    modules = {path.stem for path in Path(str(handlers.__file__)).parent.glob("*.py")} - {"__init__"}
    assert modules == {served.module for listener in ListenerType for served in served_on(listener).values()}


def test_first_line_of_handler_module_has_versions() -> None:
    for name, served in SERVED.items():
        head = (Path(str(handlers.__file__)).parent / f"{served.module}.py").read_text().split("\n", 1)[0]
        versions = str(served.first) if served.first == served.last else f"{served.first}-{served.last}"
        assert re.match(rf'"""{name} v?{versions}\b[^-]', head), head


def test_route_is_created_once() -> None:
    assert route(API_KEYS["Metadata"], 1) is route(API_KEYS["Metadata"], 1)


def test_unserved_api_has_no_route() -> None:
    assert route(API_KEYS["Produce"], 2) is None
    assert route(API_KEYS["Produce"], -1) is None
    assert route(API_KEYS["Vote"], 0) is None
    assert route(-1, 65535) is None


def test_each_listener_has_its_own_apis() -> None:
    at_controller = ROUTES[ListenerType.CONTROLLER]
    assert at_controller.find(API_KEYS["ApiVersions"], 4) is not None
    assert at_controller.find(API_KEYS["Produce"], 9) is None
    assert route(API_KEYS["Produce"], 9) is not None
