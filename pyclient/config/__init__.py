"""Options of clients, brokers, topics and groups: declared once, with types, defaults, limits and documentation.

Client options are typed fields of `ClientConfig` and its subclasses, read from keywords and Kafka-style dictionaries by
`resolve`. The tables of the others are in modules of their own (`pyclient.config.topic`); these names are imported on
first use, as the broker needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyclient.config.addresses import format_address, parse_address
    from pyclient.config.client import ClientConfig, ClientOptions
    from pyclient.config.fields import option, options_of, read_int
    from pyclient.config.options import INT_MAX
    from pyclient.config.resolving import resolve

__all__ = [
    "INT_MAX",
    "ClientConfig",
    "ClientOptions",
    "format_address",
    "option",
    "options_of",
    "parse_address",
    "read_int",
    "resolve",
]

_MODULES = {
    "INT_MAX": "options",
    "ClientConfig": "client",
    "ClientOptions": "client",
    "format_address": "addresses",
    "option": "fields",
    "options_of": "fields",
    "parse_address": "addresses",
    "read_int": "fields",
    "resolve": "resolving",
}

if not TYPE_CHECKING:  # to a type checker, a module with this function has every name

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'pyclient.config' has no attribute {name!r}")
        value = getattr(import_module(f"pyclient.config.{module}"), name)
        globals()[name] = value
        return value
