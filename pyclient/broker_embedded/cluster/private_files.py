"""Files of keys, which other users of the machine must not read."""

from __future__ import annotations

import os


def write_private(path: str, content: bytes) -> None:
    """Write a file that only this user can read; replace an older one atomically."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    os.replace(temporary, path)
