"""A node's disk in memory with the log's file system interface: it outlives the node, and may forget what was not
synced."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.log.disk_thread import DiskThread, Dropped

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from pyclient.broker_embedded.log.disk_thread import Done
    from pyclient.broker_embedded.log.filesystem import Buffer, File
    from tests.simulation.world import Process

_LATENCY: Final = (0.0002, 0.004)


class Inode:
    """The contents of a file, and how many of its bytes are on the disk."""

    __slots__ = ("_cut", "data", "modified_ms", "synced")

    def __init__(self, data: bytes | bytearray = b"", synced: int = 0) -> None:
        self.data = bytearray(data)
        self.synced = synced
        self.modified_ms = 0
        self._cut = b""  # bytes from `synced` on that are on the disk as long as their truncation is not

    def truncate(self, size: int) -> None:
        """Cut the file. Until the next sync the disk has the bytes from there on."""
        if size < self.synced:
            self._cut = bytes(self.data[size : self.synced]) + self._cut
            self.synced = size
        del self.data[size:]

    def sync(self) -> None:
        """Bring the contents to the disk."""
        self.synced = len(self.data)
        self._cut = b""

    def lose_unsynced(self, rng: Random, *, everything: bool) -> int:
        """Forget what is not synced, or a random part of it. Return the number of bytes; truncations may be undone."""
        size = len(self.data)
        if self._cut and (everything or rng.random() < 0.5):
            lost = size - self.synced
            self.data[self.synced :] = self._cut
        else:
            kept = self.synced if everything else rng.randint(self.synced, size)
            lost = size - kept
            del self.data[kept:]
        self.sync()
        return lost


class Disk:
    """The files of a node by path, and its directories.

    Contents are on the disk when the file is synced, and names when their directory is.
    """

    def __init__(self) -> None:
        self.files: dict[str, Inode] = {}
        self.directories: set[str] = set()
        self._named: dict[str, Inode] = {}
        self._named_directories: set[str] = set()

    def copy(self) -> Disk:
        """Return a copy of all files as they are."""
        copied = Disk()
        copied.files = {path: Inode(inode.data, len(inode.data)) for path, inode in self.files.items()}
        copied.directories = set(self.directories)
        copied.sync_names()
        return copied

    def lose_unsynced(self, rng: Random) -> int:
        """Forget all that is not synced, or a random part of it, as with the power. Return the number of bytes."""
        everything = rng.random() < 0.5
        if everything or rng.random() < 0.5:
            self.directories = set(self._named_directories)
            self.files = {path: each for path, each in self._named.items() if _parent(path) in self.directories}
        lost = sum(inode.lose_unsynced(rng, everything=everything) for inode in self.files.values())
        self.sync_names()
        return lost

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory. The old name is on the disk until the directory is synced."""
        if old in self.files:
            self.files[new] = self.files.pop(old)
            return
        if old not in self.directories:
            raise FileNotFoundError(2, "no such file or directory", old)
        for path in [each for each in self.files if each.startswith(old + "/")]:
            self.files[new + path[len(old) :]] = self.files.pop(path)
        for path in [each for each in self._named if each.startswith(old + "/")]:
            self._named[new + path[len(old) :]] = self._named[path]  # on the disk if the new directory is
        for path in [each for each in self.directories if each == old or each.startswith(old + "/")]:
            self.directories.discard(path)
            self.directories.add(new + path[len(old) :])

    def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to the disk."""
        gone = {each for each in self._named_directories - self.directories if _parent(each) == path}
        self._named_directories -= gone
        self._named_directories |= {each for each in self.directories if _parent(each) == path}
        for each in [name for name in self._named if _parent(name) == path or _parent(name) in gone]:
            del self._named[each]
        self._named |= {name: inode for name, inode in self.files.items() if _parent(name) == path}

    def sync_names(self) -> None:
        """Bring all names to the disk."""
        self._named, self._named_directories = dict(self.files), set(self.directories)


def _parent(path: str) -> str:
    return os.path.dirname(path)


class MemoryFile:
    """A file by its path, opened on first use."""

    def __init__(self, fs: MemoryFileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._inode: Inode | None = None

    def _open(self) -> Inode:
        if self._inode is None:
            self._inode = self._fs.opened(self.path)
        return self._inode

    def fileno(self) -> int:
        self._open()
        return -1

    def pread(self, length: int, position: int) -> bytes:
        return bytes(self._open().data[position : position + length])

    def pwrite(self, data: Buffer, position: int) -> None:
        inode = self._open()
        if self._fs.dead:
            return
        if position > len(inode.data):
            inode.data.extend(bytes(position - len(inode.data)))
        inode.data[position : position + len(data)] = data
        inode.modified_ms = self._fs.time_ms()

    def truncate(self, size: int) -> None:
        inode = self._open()
        if self._fs.dead:
            return
        if size > len(inode.data):
            inode.data.extend(bytes(size - len(inode.data)))
        inode.truncate(size)

    def sync(self) -> None:
        if not self._fs.dead:
            self._open().sync()

    def retain(self) -> None:
        """Do nothing: the contents stay as long as the file object."""

    def release(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        self._inode = None


class _Held:
    """A lock; the process that would compete for it is dead before the next one starts."""

    def release(self) -> None:
        """Do nothing."""


class MemoryFileSystem:
    """A disk as one life of a node sees it: when that is over, nothing it still does has an effect."""

    durable = True
    few_descriptors_left = True  # data is read instead of sent from files, which have no descriptors here

    def __init__(self, disk: Disk, time_ms: Callable[[], int]) -> None:
        self.dead = False
        self.time_ms = time_ms
        self._disk = disk

    def limit_open_files(self, count: int) -> None:
        """Do nothing: there are no descriptors."""

    def close_idle_files(self) -> int:
        return 0

    def opened(self, path: str) -> Inode:
        """Return the contents of a file, which is created if it does not exist."""
        inode = self._disk.files.get(path)
        if inode is None:
            if os.path.dirname(path) not in self._disk.directories:
                raise FileNotFoundError(2, "no such directory", path)
            inode = Inode()
            inode.modified_ms = self.time_ms()
            if not self.dead:
                self._disk.files[path] = inode
        return inode

    def file(self, path: str) -> MemoryFile:
        return MemoryFile(self, path)

    def exists(self, path: str) -> bool:
        return path in self._disk.files or path in self._disk.directories

    def list_directories(self, path: str) -> list[str]:
        if path not in self._disk.directories:
            raise FileNotFoundError(2, "no such directory", path)
        return sorted(os.path.basename(each) for each in self._disk.directories if os.path.dirname(each) == path)

    def list_files(self, path: str) -> dict[str, int]:
        files = self._disk.files.items()
        return {os.path.basename(each): len(inode.data) for each, inode in files if os.path.dirname(each) == path}

    def modified_ms(self, path: str) -> int:
        inode = self._disk.files.get(path)
        return -1 if inode is None else inode.modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._disk.files[path].modified_ms = modified_ms

    def make_directory(self, path: str) -> None:
        while path not in self._disk.directories and not self.dead:
            self._disk.directories.add(path)
            path = os.path.dirname(path)

    def read(self, path: str) -> bytes | None:
        inode = self._disk.files.get(path)
        return None if inode is None else bytes(inode.data)

    def replace(self, path: str, content: bytes, *, sync: bool = True) -> None:
        if not self.dead:
            if os.path.dirname(path) not in self._disk.directories:
                raise FileNotFoundError(2, "no such directory", path)
            inode = self._disk.files[path] = Inode(content, len(content) if sync else 0)
            inode.modified_ms = self.time_ms()
            if sync:
                self._disk.sync_directory(_parent(path))

    def rename(self, old: str, new: str) -> None:
        if not self.dead:
            self._disk.rename(old, new)

    def rename_file(self, file: File, new: str) -> None:
        if not self.dead and file.path in self._disk.files:
            self._disk.files[new] = self._disk.files.pop(file.path)
        if isinstance(file, MemoryFile):
            file.path = new

    def remove(self, path: str) -> None:
        if not self.dead:
            self._disk.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        if self.dead:
            return
        disk = self._disk
        for name in [each for each in disk.files if each.startswith(path + "/")]:
            del disk.files[name]
        disk.directories -= {each for each in disk.directories if each == path or each.startswith(path + "/")}

    def sync_directory(self, path: str) -> None:
        if not self.dead:
            self._disk.sync_directory(path)

    def sync_all(self, path: str) -> None:
        if not self.dead:
            for inode in self._disk.files.values():
                inode.sync()
            self._disk.sync_names()

    def lock(self, path: str) -> _Held:
        return _Held()


class SimulatedDiskThread(DiskThread):
    """Does the work of the disk thread on the process's loop, in order, each piece after a random time."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._rng = process.new_rng()
        self._pending: deque[tuple[Callable[[], Any], Done]] = deque()

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        self._pending.append((work, done))
        if len(self._pending) == 1:
            self._arm()

    def wait_until_idle(self) -> None:
        while self._pending:
            self._do(*self._pending.popleft())

    def close(self, *, wait: bool) -> None:
        while self._pending:
            work, done = self._pending.popleft()
            if wait:
                self._do(work, done)
            else:
                done(None, Dropped("the node ended"))

    def _arm(self) -> None:
        self._process.loop.call_later(self._rng.uniform(*_LATENCY), self._next)

    def _next(self) -> None:
        if self._pending:
            self._do(*self._pending.popleft())
            if self._pending:
                self._arm()

    def _do(self, work: Callable[[], Any], done: Done) -> None:
        answer, failure = None, None
        try:
            answer = work()
        except Exception as error:
            failure = error
        done(answer, failure)
