"""A file system whose k-th call fails, for every k: what was acknowledged is there when the disk works again."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyclient.broker_embedded.log.filesystem import Buffer, File, RealFile, RealFileSystem
from pyclient.errors import KafkaError
from tests.torture.client import Client, Gone
from tests.torture.load import Load, check
from tests.torture.node import Node
from tests.torture.oracle import Oracle, PromiseBroken

KINDS: Final = ("EIO", "ENOSPC", "short write", "dead disk", "full disk")
STEPS: Final = 25


class FailingFileSystem(RealFileSystem):
    """Counts its calls; the one with number `fails_at` fails as `kind` says (of a dead or a full disk all later ones).

    `unsynced` are the `.log` files whose sync failed, and how much of them was synced before: as on Linux, a later sync
    succeeds although the rest never reached the disk.
    """

    def __init__(self, kind: str = "", fails_at: int = 0) -> None:
        super().__init__(durable=False)
        self.durable = True
        self.kind = kind
        self.fails_at = fails_at
        self.calls = 0
        self.failed_call = ""
        self.synced: dict[str, int] = {}
        self.unsynced: dict[str, int] = {}
        self._lock = threading.Lock()

    def fails(self, call: str, path: str, *, writes: bool) -> OSError | None:
        """Count a call; the error it ends with, if any."""
        with self._lock:
            self.calls += 1
            lasting = self.kind in ("dead disk", "full disk")
            if not self.fails_at or self.calls < self.fails_at or (self.failed_call and not lasting):
                return None
            full = self.kind in ("ENOSPC", "short write", "full disk")
            if full and not writes:
                if not lasting:
                    self.fails_at += 1  # the next one that needs room
                return None
            self.failed_call = self.failed_call or f"{call} {path}"
        number = errno.ENOSPC if full else errno.EIO
        return OSError(number, os.strerror(number), path)

    def check(self, call: str, path: str, *, writes: bool = False) -> None:
        """Count a call and raise its error."""
        error = self.fails(call, path, writes=writes)
        if error is not None:
            raise error

    def file(self, path: str) -> FailingFile:
        return FailingFile(self, path)

    def list_directories(self, path: str) -> list[str]:
        self.check("list_directories", path)
        return super().list_directories(path)

    def list_files(self, path: str) -> dict[str, int]:
        self.check("list_files", path)
        return super().list_files(path)

    def modified_ms(self, path: str) -> int:
        self.check("modified_ms", path)
        return super().modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.check("set_modified_ms", path)
        super().set_modified_ms(path, modified_ms)

    def make_directory(self, path: str) -> None:
        self.check("make_directory", path, writes=True)
        super().make_directory(path)

    def read(self, path: str) -> bytes | None:
        self.check("read", path)
        return super().read(path)

    def replace(self, path: str, content: bytes, *, sync: bool = True) -> None:
        error = self.fails("replace", path, writes=True)
        if error is not None:
            if self.kind == "short write":
                Path(path + ".tmp").write_bytes(content[: len(content) // 2])
            raise error
        super().replace(path, content, sync=False)

    def rename(self, old: str, new: str) -> None:
        self.check("rename", old, writes=True)
        super().rename(old, new)

    def rename_file(self, file: File, new: str) -> None:
        self.check("rename_file", file.path, writes=True)
        super().rename_file(file, new)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.check("remove_tree", path)
        super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)

    def sync_all(self, path: str) -> None:
        self.check("sync_all", path)

    def lose_what_was_not_synced(self) -> None:
        """Make the files what the disk has of those whose sync failed."""
        for path, size in self.unsynced.items():
            if os.path.exists(path) and os.path.getsize(path) > size:
                with open(path, "r+b") as file:
                    file.seek(size)
                    file.write(bytes(os.path.getsize(path) - size))


class FailingFile(RealFile):
    """A file of it."""

    __slots__ = ()

    @property
    def _failing(self) -> FailingFileSystem:
        assert isinstance(self._fs, FailingFileSystem)
        return self._fs

    def pread(self, length: int, position: int) -> bytes:
        self._failing.check("pread", self.path)
        return super().pread(length, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        error = self._failing.fails("pwrite", self.path, writes=True)
        if error is not None:
            if self._failing.kind == "short write":
                super().pwrite(memoryview(data)[: len(data) // 2], position)
            raise error
        super().pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._failing.check("truncate", self.path)
        super().truncate(size)
        synced = self._failing.synced
        synced[self.path] = min(size, synced.get(self.path, 0))

    def sync(self) -> None:
        failing = self._failing
        error = failing.fails("sync", self.path, writes=True)
        if error is not None:
            if self.path.endswith(".log"):
                failing.unsynced.setdefault(self.path, failing.synced.get(self.path, 0))
            raise error
        failing.synced[self.path] = os.path.getsize(self.path) if os.path.exists(self.path) else 0


def run_load(node: Node, oracle: Oracle, rng: random.Random, *, cleans: bool) -> None:
    """Do random work on a node, and what a node does from time to time."""
    client = Client(node.bootstrap, oracle, rng)
    load = Load(oracle, rng)
    try:
        for step in range(STEPS):
            load.step(client)
            if step % 8 == 7:
                _tolerate(node, lambda: node.node.logs.flush_checkpoints())
                _tolerate(node, lambda: node.node.logs.run_retention(node.node.clock.time_ms()))
            if cleans and step % 12 == 11:
                _tolerate(node, lambda: node.node.logs.compact_now())
    except Gone as error:
        raise PromiseBroken(f"the broker closed a connection: {error}") from error
    finally:
        client.close()


def _tolerate(node: Node, work: Any) -> None:
    """Do work that may fail with an error that was foreseen."""
    with contextlib.suppress(OSError, KafkaError):
        node.on_loop(work)


def one_case(seed: int, kind: str, fails_at: int) -> int:
    """Run once with a failure of call number `fails_at`; return the number of calls. Raise `PromiseBroken`."""
    rng = random.Random(seed)
    directory = tempfile.mkdtemp(prefix="torture-failing-")
    failing = FailingFileSystem(kind, fails_at)
    try:
        oracle = Oracle()
        try:
            node = Node(directory, failing)
        except KafkaError:
            pass
        else:
            try:
                run_load(node, oracle, rng, cleans=bool(seed % 2))
            finally:
                node.stop(clean=seed % 3 != 0)
        failing.lose_what_was_not_synced()
        for _ in range(2):
            node = Node(directory, RealFileSystem(durable=False))
            client = Client(node.bootstrap, oracle, rng)
            try:
                check(client)
                Load(oracle, random.Random(seed)).produce(client) if oracle.living else None
            except Gone as error:
                raise PromiseBroken(f"the broker closed a connection: {error}") from error
            finally:
                client.close()
                node.stop()
        return failing.calls
    except Exception as error:
        where = f"{kind} at call {fails_at} of load {seed} ({failing.failed_call})"
        raise PromiseBroken(f"{where}: {error if isinstance(error, PromiseBroken) else repr(error)}") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def cases(seed: int) -> Generator[Callable[[], object], None, None]:
    """Yield cases without end: of each load every call fails once, in random order, with a random kind of failure."""
    rng = random.Random(seed)
    while True:
        load = rng.randrange(1 << 30)
        calls = one_case(load, "", 0)
        for fails_at in rng.sample(range(1, calls + 1), calls):
            yield partial(one_case, load, rng.choice(KINDS), fails_at)
