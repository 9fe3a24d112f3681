"""Helpers for tests of compaction: append keyed records, compact a log, read what is left."""

from __future__ import annotations

from typing import Any

from pyclient.broker_embedded.log.compaction.log_cleaner import LogCleaner
from pyclient.broker_embedded.log.compaction.offset_map import KEY_BYTES
from pyclient.records import BatchBuilder, Compression

DAY = 86_400_000
CODECS = list(Compression)


def compactor(fixture: Any, keys: int = 100_000) -> LogCleaner:
    def saved() -> Any:
        yield None

    return LogCleaner(fixture.fs, memory=keys * KEY_BYTES, save=saved)


def compact(fixture: Any, log: Any, *, after_ms: int = 0, keys: int = 100_000) -> int:
    return compactor(fixture, keys).everything(log, fixture.now + after_ms)


def keyed(*rows: tuple[bytes, bytes | None], timestamp_ms: int, **options: Any) -> bytearray:
    builder = BatchBuilder(bytearray(1000 + sum(100 + len(key) + len(value or b"") for key, value in rows)), None)
    for number, (key, value) in enumerate(rows):
        assert builder.append(timestamp_ms + number, key, value, (("h", b"x"),)) is not None
    return bytearray(builder.seal(**options))


def put(fixture: Any, log: Any, *rows: tuple[bytes, bytes | None], **options: Any) -> Any:
    return log.append(keyed(*rows, timestamp_ms=fixture.now, **options), leader_epoch=0, now_ms=fixture.now)


def pairs(fixture: Any, log: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in fixture.records(log)]
