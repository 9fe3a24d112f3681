"""Tests with the fixture `twin` run twice in one process: [c] with the compiled codec, [py] with the one in Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from pyclient.records import HEADER_SIZE, Compression, RecordColumns, _pure, check_crc, read_header, stamp_offsets

Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Twin:
    """One implementation of the codec, with helpers for most tests."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.Record: Any = module.Record
        self.RecordHandle: Any = module.RecordHandle
        self.BatchBuilder: Any = module.BatchBuilder
        self.ColumnsBuilder: Any = module.ColumnsBuilder

    def builder(self, rows: list[Row], room: int | None = None) -> Any:
        size = sum(self.module.record_size_bound(key, value, headers) for _, key, value, headers in rows)
        builder = self.BatchBuilder(bytearray(HEADER_SIZE + size if room is None else room), "batch")
        for row in rows:
            assert builder.append(*row) is not None
        return builder

    def build(self, rows: list[Row], *, base_offset: int = 0, leader_epoch: int = -1, **options: Any) -> bytes:
        batch = self.builder(rows).seal(**options)
        stamp_offsets(batch, 0, base_offset, leader_epoch)
        return bytes(batch)

    def decode(self, batch: Any, **options: Any) -> list[Any]:
        header = read_header(batch)
        check_crc(batch, 0, header)
        records: list[Any] = self.module.decode_batch(batch, 0, header, "orders", 3, **options)
        return records

    def rows(self, batch: Any, **options: Any) -> list[Row]:
        return [(r.timestamp_ms, r.key, r.value, r.headers) for r in self.decode(batch, **options)]

    def columns(self, *batches: Any, **options: Any) -> RecordColumns:
        builder = self.ColumnsBuilder()
        for batch in batches:
            builder.add(batch, 0, read_header(batch), "orders", 3, **options)
        columns: RecordColumns = builder.finish()
        return columns


def required(name: str, how: str) -> ModuleType:
    """Import a module that a test needs; skip without it, or fail under PYCLIENT_REQUIRE_ALL=1."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of other libraries on import
            return import_module(name)
    except ImportError:
        if os.environ.get("PYCLIENT_REQUIRE_ALL") == "1":
            pytest.fail(f"{name} is missing: {how}", pytrace=False)
        pytest.skip(f"{name} is not there")


def compiled() -> ModuleType:
    return required("pyclient.records._speedups", "python setup.py build_ext --inplace")


@pytest.fixture(scope="session")
def peer() -> Callable[[str], ModuleType]:
    """Return a function that imports a module of another client."""
    return lambda name: required(name, "pip install 'pyclient-kafka[test]'")


@pytest.fixture(scope="session", params=["c", "py"])
def twin(request: pytest.FixtureRequest) -> Twin:
    return Twin(compiled() if request.param == "c" else _pure)


@pytest.fixture(scope="session")
def twins() -> tuple[Twin, Twin]:
    """Both implementations, to compare them."""
    return Twin(compiled()), Twin(_pure)


@pytest.fixture(params=list(Compression), ids=lambda codec: codec.name.lower())
def codec(request: pytest.FixtureRequest) -> Compression:
    value: Compression = request.param
    return value
