"""Parse and format broker addresses: host and port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DEFAULT_HOST: Final = "127.0.0.1"
"""The default listen address of brokers and control ports: loopback only."""

DEFAULT_PORT: Final = 9092
"""The port of the `pyclient` commands; brokers of tests listen on any free one."""


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of "host:port", "[::1]:9092" or "PLAINTEXT://host:port"; raise `ValueError` otherwise."""
    rest = text.strip().rpartition("://")[2].rstrip("/")
    host, _, port = rest.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address goes in brackets, like [::1]:9092")
    if not host or any(character.isspace() or character in "/@[]" for character in host):
        raise ValueError(f"{text!r} is not host:port")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
        raise ValueError(f"{text!r}: the port must be a number from 1 to 65535")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Return an address as Kafka writes it: "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def addresses(value: Any) -> tuple[str, ...]:
    """Return the distinct addresses of "host:port,host:port" or a list; raise `ValueError` with an invalid one."""
    if isinstance(value, Mapping):
        raise ValueError("a dictionary of options is given as config={...}")
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"{value!r} is neither a string nor a list of strings")
    parsed = (parse_address(item) for item in items if item.strip())
    return tuple(dict.fromkeys(format_address(host, port) for host, port in parsed))
