"""Client options: declared once as typed fields, read from keywords and Kafka-style dictionaries."""

from __future__ import annotations

from pyclient.config.addresses import format_address, parse_address
from pyclient.config.client import ClientConfig, ClientOptions
from pyclient.config.options import Option, Spec, option, options_of
from pyclient.config.resolving import resolve
from pyclient.config.values import INT_MAX, read_int

__all__ = [
    "INT_MAX",
    "ClientConfig",
    "ClientOptions",
    "Option",
    "Spec",
    "format_address",
    "option",
    "options_of",
    "parse_address",
    "read_int",
    "resolve",
]
