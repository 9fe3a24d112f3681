"""Check the URLs of identity servers, tokens and keys in options."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
"""Hosts that are this machine."""


def checked_url(value: Any) -> str:
    """Return an absolute `https:`, `http:` or `file:` URL. Raise `ValueError`, without the value, for anything else.

    User and password in it are refused: error messages name the URL.
    """
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("it is not an https:, http: or file: URL")
    parts = urlsplit(value)  # raises a `ValueError` for an invalid address
    if parts.scheme == "file":
        if not parts.path.startswith("/") or parts.netloc not in ("", "localhost"):
            raise ValueError("a file: URL has an absolute path, like file:///etc/kafka/token")
        return value
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.port == 0:
        raise ValueError("it is not an https:, http: or file: URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it has a user or a password, which belong into options of their own")
    return value


def is_readable_by_others(url: str) -> bool:
    """Return True for an `http:` URL of another machine, whose traffic can be read and changed on its way."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in LOOPBACK
