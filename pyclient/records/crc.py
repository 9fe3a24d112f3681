"""CRC-32C, from the `crc32c` package's compiled module."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

Checksum = Callable[[bytes | bytearray | memoryview], int]


def _load() -> Checksum:
    """Load the compiled module alone: the package asks for its own version first, which takes 35 ms at every start."""
    package = PathFinder.find_spec("crc32c")
    spec = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c as whole

        return whole
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    alone: Checksum = module.crc32c
    return alone


crc32c = _load()
