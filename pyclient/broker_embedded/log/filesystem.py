"""The file system interface of the log, and its implementation by the operating system.

All disk operations of the log use it, so that tests can make them fail, or lose data that was not synced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
from typing import Final, Protocol
from weakref import WeakValueDictionary

Buffer = bytes | bytearray | memoryview

_MOST_OPEN_FILES: Final = 4096
_RETAINED_OF_OPEN: Final = 4
"""A quarter of the open files may be retained; above it, data is read instead of sent from files."""


class File(Protocol):
    """One file by its path, opened (and created) on first use. Units are bytes; failures are `OSError`."""

    @property
    def path(self) -> str:
        """Return the current path; it follows renames."""
        ...

    def fileno(self) -> int:
        """Return a descriptor for `sendfile`; keep it only between `retain` and `release`."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`, or raise."""
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        ...

    def sync(self) -> None:
        """Return when written data is on the disk."""
        ...

    def retain(self) -> None:
        """Keep the descriptor open until `release`, even if the file is closed or deleted."""
        ...

    def release(self) -> None:
        """Undo one `retain`."""
        ...

    def close(self) -> None:
        """Close the descriptor, as soon as it is not retained. The next use of the file opens it again."""
        ...


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Release the lock."""
        ...


class FileSystem(Protocol):
    """A tree of files. Failures are `OSError`. Where `durable` is False, nothing waits for the disk."""

    durable: bool

    @property
    def few_descriptors_left(self) -> bool:
        """Return True if no more files should be retained, for lack of descriptors."""
        ...

    def limit_open_files(self, count: int) -> None:
        """Keep at most `count` files open, and never more than initially; retained ones stay open."""
        ...

    def close_idle_files(self) -> int:
        """Close every file that is not retained. Return how many were closed."""
        ...

    def file(self, path: str) -> File:
        """Return the file at `path`, which need not exist; needs no system call."""
        ...

    def exists(self, path: str) -> bool:
        """Return True if there is a file or directory."""
        ...

    def list_directories(self, path: str) -> list[str]:
        """Return the names of the directories in `path`."""
        ...

    def list_files(self, path: str) -> dict[str, int]:
        """Return the names and sizes of the files in `path`; empty if there is no such directory."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return when a file was last modified, in epoch ms; -1 if it does not exist."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set when a file was last modified, in epoch ms."""
        ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its missing parents."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return the contents of a small file; None if it does not exist."""
        ...

    def replace(self, path: str, content: bytes, *, sync: bool = True) -> None:
        """Replace the file at `path` atomically: readers and crashes see the old file or the new one.

        Two threads must not replace the same path at a time.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory."""
        ...

    def rename_file(self, file: File, new: str) -> None:
        """Move a file that may be open; `file.path` follows."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        ...

    def remove_tree(self, path: str) -> None:
        """Delete a directory with its contents, if it exists."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory are on the disk."""
        ...

    def sync_all(self, path: str) -> None:
        """Return when all written data of the file system of `path` is on the disk: cheaper than many single files."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the lock at `path`. Raise `BlockingIOError` if another broker holds it."""
        ...


class RealFile:
    """A file of the operating system. It is opened lazily, and closed implicitly when too many files are open."""

    __slots__ = ("__weakref__", "_closing", "_fd", "_fs", "_users", "path")

    def __init__(self, fs: RealFileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._fd = -1
        self._users = 0
        self._closing = False

    @property
    def is_open(self) -> bool:
        """Return True if the file has a descriptor."""
        return self._fd >= 0

    def fileno(self) -> int:
        if self._fd < 0:
            self._fd = self._fs._open(self)
        self._closing = False
        return self._fd

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self.fileno(), length, position)
        if len(data) == length or not data:
            return data
        parts = [data]  # a read may stop early (a signal, 2 GiB): continue until the end of the file
        while length > (got := sum(map(len, parts))):
            more = os.pread(self._fd, length - got, position + got)
            if not more:
                break
            parts.append(more)
        return b"".join(parts)

    def pwrite(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self.fileno(), data, position)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(self._fd, view[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)

    def sync(self) -> None:
        if self._fs.durable:
            os.fdatasync(self.fileno())

    def retain(self) -> None:
        if not self._users:
            self._fs._retained += 1
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        if not self._users:
            self._fs._retained -= 1
            if self._closing or self._fs.has_too_many_open:
                self._close_now()

    def close(self) -> None:
        if self._users:
            self._closing = True
        else:
            self._close_now()

    @property
    def busy(self) -> bool:
        """Return True if the descriptor is retained."""
        return self._users > 0

    def _close_now(self) -> None:
        fd, self._fd = self._fd, -1
        self._closing = False
        if fd >= 0:
            self._fs._forget(self)
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:  # the last user dropped it without `release`
            os.close(self._fd)

    def __repr__(self) -> str:
        return f"<RealFile {self.path} fd={self._fd} users={self._users}>"


class RealLock:
    """A lock on a file, held by its descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.release()


class RealFileSystem:
    """The operating system's files. `durable=False` skips every sync: data may be lost with the machine's power."""

    def __init__(self, *, durable: bool = True, most_open_files: int | None = None) -> None:
        self.durable = durable
        if most_open_files is None:
            most_open_files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, _MOST_OPEN_FILES)
        self._most_at_first = self._most_open_files = most_open_files
        self._retained = 0
        self._open_files: WeakValueDictionary[int, RealFile] = WeakValueDictionary()  # by id, oldest first

    def file(self, path: str) -> RealFile:
        return RealFile(self, path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directories(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir()]

    def list_files(self, path: str) -> dict[str, int]:
        try:
            with os.scandir(path) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except FileNotFoundError:
            return {}

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return -1

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        try:
            with open(temporary, "wb", buffering=0) as file:
                rest = memoryview(content)
                while rest:  # a write may be partial: a signal, or a disk that is nearly full
                    rest = rest[file.write(rest) :]
                if sync and self.durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):  # it may use the last bytes of a full disk
                os.unlink(temporary)
            raise
        if sync:
            self.sync_directory(os.path.dirname(path))

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def rename_file(self, file: File, new: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # never written: only the name changes
            os.replace(file.path, new)
        if isinstance(file, RealFile):
            file.path = new

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        import shutil  # slow to import, and not needed to start

        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def lock(self, path: str) -> RealLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # excludes this process, too
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Kafka's kind of lock
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)

    def sync_directory(self, path: str) -> None:
        if not self.durable:
            return
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        if not self.durable:
            return
        import ctypes  # slow to import, and needed at the end only

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:  # not Linux
            os.sync()
            return
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if syncfs(fd):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(fd)

    @property
    def few_descriptors_left(self) -> bool:
        return self._retained >= self._most_at_first // _RETAINED_OF_OPEN

    @property
    def has_too_many_open(self) -> bool:
        """Return True if more files are open than allowed."""
        return len(self._open_files) > self._most_open_files

    def limit_open_files(self, count: int) -> None:
        self._most_open_files = min(count, self._most_at_first)
        if self.has_too_many_open:
            self._close_idle(len(self._open_files) - self._most_open_files)

    def close_idle_files(self) -> int:
        return self._close_idle(len(self._open_files))

    def _open(self, file: RealFile) -> int:
        if len(self._open_files) >= self._most_open_files:
            self._close_idle(len(self._open_files) // 4)
        try:
            fd = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self.close_idle_files():
                raise
            fd = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._open_files[id(file)] = file
        return fd

    def _close_idle(self, count: int) -> int:
        """Close `count` files that are not retained, the longest open ones first. Return how many were closed."""
        closed = 0
        for file in list(self._open_files.values()):
            if closed < count and not file.busy:
                closed += 1
                file.close()
        return closed

    def _forget(self, file: RealFile) -> None:
        self._open_files.pop(id(file), None)
