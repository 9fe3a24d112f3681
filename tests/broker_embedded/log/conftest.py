"""Fixtures for logs: batches and markers, logs opened after a stop or a crash, failing disks."""

from __future__ import annotations

import errno
import os
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.data_directories import DataDirectories
from pyclient.broker_embedded.log.filesystem import Buffer, File, RealFile, RealFileSystem
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.broker_embedded.log.log_loader import LogCheckpoint, open_log
from pyclient.broker_embedded.log.manager import LogManager
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.records import (
    BatchBuilder,
    Compression,
    ControlType,
    Record,
    control_key,
    decode_batch,
    iter_batches,
)
from pyclient.testing.clock import ManualClock
from pyclient.types import TopicPartition

NOW = 1_700_000_000_000
TOPIC_ID = uuid.UUID(int=7)


class LogFixture:
    """Everything a test of the log needs, in one directory."""

    now = NOW
    topic_id = TOPIC_ID

    def __init__(self, directory: Path) -> None:
        self.root = directory
        self.directory = str(directory / "t-0")
        self.clock = ManualClock(epoch_ms=NOW)
        self.fs = FaultyFileSystem()
        self.config = LogConfig(segment_bytes=1 << 20, file_delete_delay_ms=0)
        self._open: list[UnifiedLog] = []

    def configure(self, **values: Any) -> LogConfig:
        """Set and return the configs of the logs opened from now on."""
        self.config = LogConfig(**{"segment_bytes": 1 << 20, "file_delete_delay_ms": 0, **values})
        return self.config

    def open(self, *, clean: bool = True, recovery_point: int = 0, **options: Any) -> UnifiedLog:
        """Open the log in the directory."""
        opening = open_log(
            self.directory,
            TopicPartition("t", 0),
            TOPIC_ID,
            self.config,
            LogCheckpoint(clean, recovery_point, **options),
            fs=self.fs,
            clock=self.clock,
        )
        log = run_here(opening)
        self._open.append(log)
        return log

    def crash(self, log: UnifiedLog, *, recovery_point: int | None = None) -> UnifiedLog:
        """Reopen the log as after a kill of its process. Without a recovery point it is the one it would have noted."""
        log.close(clean=False)
        return self.open(clean=False, recovery_point=log.recovery_point if recovery_point is None else recovery_point)

    def reopen(self, log: UnifiedLog) -> UnifiedLog:
        """Close the log in order and open it again."""
        log.close()
        return self.open()

    def close(self) -> None:
        """Release all files."""
        for log in self._open:
            log.close(clean=False)

    def path(self, name: str) -> Path:
        """Return a file of the log."""
        return Path(self.directory, name)

    def names(self) -> list[str]:
        """Return the names of the log's files."""
        return sorted(os.listdir(self.directory))

    @staticmethod
    def batch(
        *values: bytes | None,
        timestamp_ms: int | list[int] = NOW,
        key: bytes | None = None,
        compression: Compression = Compression.NONE,
        producer_id: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        transactional: bool = False,
    ) -> bytearray:
        """Return a batch as a producer sends it; one record of value b"v" if no value is given."""
        rows = values or (b"v",)
        times = timestamp_ms if isinstance(timestamp_ms, list) else [timestamp_ms] * len(rows)
        builder = BatchBuilder(bytearray(1000 + sum(len(value or b"") + 64 for value in rows)), None)
        for value, time in zip(rows, times, strict=True):
            assert builder.append(time, key, value, None) is not None
        return bytearray(
            builder.seal(
                compression=compression,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    @staticmethod
    def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> bytearray:
        """Return the end of a transaction, as a coordinator sends it."""
        builder = BatchBuilder(bytearray(1000), None)
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        builder.append(NOW, control_key(kind), struct.pack(">hi", 0, coordinator_epoch), None)
        return bytearray(builder.seal(producer_id=producer_id, producer_epoch=epoch, control=True, transactional=True))

    def append(self, log: UnifiedLog, *values: bytes, leader_epoch: int = 0, **options: Any) -> Any:
        """Append one batch as a client."""
        return log.append(self.batch(*values, **options), leader_epoch=leader_epoch, now_ms=NOW)

    def end(
        self,
        log: UnifiedLog,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> Any:
        """Append a transaction's end as its coordinator."""
        marker = self.marker(producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch)
        options: Any = {"origin": "coordinator", "transaction_version": transaction_version}
        return log.append(marker, leader_epoch=max(log.leader_epoch, 0), now_ms=NOW, **options)

    @staticmethod
    def records(log: UnifiedLog, offset: int | None = None, *, max_bytes: int = 1 << 20) -> list[Record[Any, Any]]:
        """Return every record from `offset` on, by as many reads as it takes."""
        found: list[Record[Any, Any]] = []
        at = log.start_offset if offset is None else offset
        while at < log.high_watermark:
            data = log.read_bytes(at, max_bytes)
            if not data:
                break
            for position, header in iter_batches(data):
                found += decode_batch(data, position, header, "t", 0, from_offset=at)
                at = header.next_offset
        return found

    def values(self, log: UnifiedLog) -> list[bytes | None]:
        """Return the value of every record."""
        return [record.value for record in self.records(log)]

    def manager(self, **options: Any) -> LogManager:
        """Return a manager of the directory above, not opened yet."""
        values = {
            "fs": self.fs,
            "clock": self.clock,
            "node_id": 1,
            "cluster_id": None,
            "defaults": self.config,
            **options,
        }
        rng = values.get("rng", Random())
        of_directories = {name: values.pop(name) for name in ("fs", "node_id", "cluster_id")}
        return LogManager(DataDirectories([str(self.root)], rng=rng, **of_directories), **values)

    def start(self, **options: Any) -> LogManager:
        """Return a manager that is open, and may change files."""
        manager = self.manager(**options)
        manager.open()
        manager.take_into_use()
        return manager


class FaultyFile(RealFile):
    """A file that counts what is read and written, and fails when its filesystem says so."""

    __slots__ = ()

    @property
    def _faults(self) -> FaultyFileSystem:
        assert isinstance(self._fs, FaultyFileSystem)
        return self._fs

    def pread(self, length: int, position: int) -> bytes:
        if self._faults.reads_fail:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        data = super().pread(length, position)
        self._faults.bytes_read += len(data)
        return data

    def pwrite(self, data: Buffer, position: int) -> None:
        faults = self._faults
        if faults.room is not None and len(data) > faults.room:
            super().pwrite(memoryview(data)[: faults.room], position)
            faults.room = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        super().pwrite(data, position)
        if faults.room is not None:
            faults.room -= len(data)

    def truncate(self, size: int) -> None:
        if self._faults.truncate_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._faults.report_slow_work()
        if self._faults.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        self._faults.synced[self.path] = Path(self.path).read_bytes()


class FaultyFileSystem(RealFileSystem):
    """A disk with `room` bytes left (None: plenty), whose truncations and syncs may fail; nothing waits for a real one.

    `synced` is what every file held when it was synced last: what a loss of power leaves for certain.
    """

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.room: int | None = None
        self.truncate_fails = False
        self.sync_fails = False
        self.reads_fail = False
        self.renames_left: int | None = None
        self.on_slow: Callable[[], object] | None = None
        self.bytes_read = 0
        self.synced: dict[str, bytes] = {}
        self.synced_directories: list[str] = []

    def report_slow_work(self) -> None:
        """Call `on_slow`: an operation waits for the disk."""
        if self.on_slow is not None:
            self.on_slow()

    def remove(self, path: str) -> None:
        self.report_slow_work()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.report_slow_work()
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        self.synced_directories.append(path)

    def sync_all(self, path: str) -> None:
        self.report_slow_work()
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        for directory, _, names in os.walk(path):
            self.synced |= {f"{directory}/{name}": Path(directory, name).read_bytes() for name in names}

    def file(self, path: str) -> FaultyFile:
        return FaultyFile(self, path)

    def read(self, path: str) -> bytes | None:
        data = super().read(path)
        self.bytes_read += len(data or b"")
        return data

    def rename_file(self, file: File, new: str) -> None:
        if self.renames_left is not None:
            if not self.renames_left:
                raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)
            self.renames_left -= 1
        super().rename_file(file, new)

    def replace(self, path: str, content: bytes, *, sync: bool = True) -> None:
        if self.room is not None and len(content) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().replace(path, content, sync=sync)
        if sync:
            self.synced[path] = content


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    """Yield a log fixture in its own directory."""
    made = LogFixture(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def new_fixture(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that creates log fixtures, for tests that need several."""
    return lambda: LogFixture(tmp_path_factory.mktemp("log"))
