"""CRC-32C, from the `crc32c` package's compiled module."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

Checksum = Callable[[bytes | bytearray | memoryview], int]

_KEEP_GIL = 0
# 128 KiB take 10 us, but a thread that releases the GIL may wait 5 ms to get it back: polls were 2x slower.


def _load() -> Callable[..., int]:
    """Load only the compiled module: importing the package looks up its own version, which takes 35 ms."""
    package = PathFinder.find_spec("crc32c")
    spec = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c as from_package

        return from_package
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    compiled: Callable[..., int] = module.crc32c
    return compiled


crc32c: Checksum = partial(_load(), gil_release_mode=_KEEP_GIL)
