"""Files that are opened and closed automatically, whole replacements, and locks."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from pyclient.broker_embedded.log.filesystem import RealFileSystem


def test_a_file_is_opened_when_it_is_needed(tmp_path: Path) -> None:
    fs = RealFileSystem()
    file = fs.file(str(tmp_path / "f"))
    assert not (tmp_path / "f").exists()
    file.pwrite(b"hello", 3)
    assert (file.pread(100, 0), file.pread(2, 4), file.pread(1, 50)) == (b"\0\0\0hello", b"el", b"")
    file.truncate(4)
    file.sync()
    assert file.pread(100, 3) == b"h"
    file.close()
    assert file.pread(1, 3) == b"h"
    file.close()
    assert repr(file).endswith("fd=-1 users=0>")


def test_open_files_are_limited_and_files_in_use_stay_open(tmp_path: Path) -> None:
    fs = RealFileSystem(most_open_files=4)
    files = [fs.file(str(tmp_path / str(index))) for index in range(20)]
    files[0].retain()
    first = files[0].fileno()
    for index, file in enumerate(files):
        file.pwrite(b"%d" % index, 0)
    before = len(os.listdir("/proc/self/fd"))
    assert [file.pread(9, 0) for file in files] == [b"%d" % index for index in range(20)]
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    assert files[0].fileno() == first
    files[0].release()
    for file in files:
        file.close()


def test_closed_file_stays_open_while_it_is_retained(tmp_path: Path) -> None:
    fs = RealFileSystem()
    file = fs.file(str(tmp_path / "f"))
    file.pwrite(b"x", 0)
    file.retain()
    fd = file.fileno()
    file.close()
    assert os.pread(fd, 1, 0) == b"x"
    file.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(fd, 1, 0)


def test_file_that_is_not_closed_closes_itself(tmp_path: Path) -> None:
    fs = RealFileSystem()
    file = fs.file(str(tmp_path / "f"))
    file.retain()
    fd = file.fileno()
    del file
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_an_open_file_follows_its_name(tmp_path: Path) -> None:
    fs = RealFileSystem()
    file, never = fs.file(str(tmp_path / "a")), fs.file(str(tmp_path / "b"))
    file.pwrite(b"x", 0)
    for moved in (file, never):
        fs.rename_file(moved, moved.path + ".gone")
    assert sorted(os.listdir(tmp_path)) == ["a.gone"]
    file.close()
    assert file.pread(1, 0) == b"x"
    file.close()


def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    fs = RealFileSystem()
    path = str(tmp_path / "f")
    assert fs.read(path) is None
    for content in (b"one", b"two"):
        fs.replace(path, content)
        assert fs.read(path) == content
    fs.replace(path, b"three", sync=False)
    assert (fs.list_files(str(tmp_path)), fs.list_files(str(tmp_path / "none"))) == ({"f": 5}, {})
    fs.remove(path)
    fs.remove(path)
    assert not fs.exists(path)
    assert fs.modified_ms(path) == -1


def test_directories_are_made_listed_and_removed(tmp_path: Path) -> None:
    fs = RealFileSystem()
    for _ in range(2):
        fs.make_directory(str(tmp_path / "a" / "b"))
    fs.replace(str(tmp_path / "a" / "f"), b"")
    assert fs.list_directories(str(tmp_path / "a")) == ["b"]
    for _ in range(2):
        fs.remove_tree(str(tmp_path / "a"))
    assert fs.list_directories(str(tmp_path)) == []


def test_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    fs = RealFileSystem()
    held = fs.lock(str(tmp_path / ".lock"))
    with pytest.raises(BlockingIOError):
        RealFileSystem().lock(str(tmp_path / ".lock"))
    held.release()
    held.release()
    fs.lock(str(tmp_path / ".lock")).release()
