"""The demo's input: the lines of a tree of Python files, with the counts and checksums of a correct copy."""

from __future__ import annotations

import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_IDENTIFIER = re.compile(IDENTIFIER.encode())
_NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}


def standard_library() -> Path:
    """Return the directory of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file; `key` is its path below the input folder, which is also its records' key."""

    path: Path
    key: str

    @property
    def package(self) -> str:
        """The first directory of the path, or the module's name for a file at the top."""
        return package_of(self.key)

    def lines(self) -> list[bytes]:
        """Return the file's lines without line ends, as bytes, since not every file is UTF-8."""
        return self.path.read_bytes().splitlines()


def package_of(key: str) -> str:
    """Return `json` for `json/decoder.py`, `ast` for `ast.py`."""
    return key.split("/", 1)[0].removesuffix(".py")


def find_files(root: Path) -> list[SourceFile]:
    """Return every `.py` file below `root`, in a fixed order, installed packages excluded."""
    found = []
    for path in sorted(root.rglob("*.py")):
        below = path.relative_to(root)
        if not _NOT_THE_LIBRARY.intersection(below.parts) and path.is_file():
            found.append(SourceFile(path, below.as_posix()))
    return found


@dataclass(slots=True)
class FileDigest:
    """The number of lines of one file, and a CRC over them in order."""

    lines: int = 0
    crc: int = 0

    def add(self, line: bytes) -> None:
        self.lines += 1
        self.crc = zlib.crc32(b"\n", zlib.crc32(line, self.crc))


@dataclass(slots=True)
class DirectCount:
    """The expected counts, taken from the files themselves."""

    files: dict[str, FileDigest] = field(default_factory=dict)
    identifiers: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    value_bytes: int = 0

    def by_package(self) -> Counter[str]:
        return lines_by_package(self.files)


def lines_by_package(files: dict[str, FileDigest]) -> Counter[str]:
    """Return the number of lines of each package."""
    packages: Counter[str] = Counter()
    for key, digest in files.items():
        packages[package_of(key)] += digest.lines
    return packages


def count_directly(files: list[SourceFile], *, identifiers: bool) -> DirectCount:
    """Read every file once and count lines, and with `identifiers` also identifiers."""
    count = DirectCount()
    for source in files:
        digest = FileDigest()
        for line in source.lines():
            digest.add(line)
            count.value_bytes += len(line)
        if digest.lines:
            count.files[source.key] = digest
            count.lines += digest.lines
        if identifiers:
            count.identifiers.update(_identifiers(source))
    return count


def _identifiers(source: SourceFile) -> Iterator[str]:
    return (match.decode("ascii") for match in _IDENTIFIER.findall(source.path.read_bytes()))
