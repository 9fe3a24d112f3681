"""File regions are sent between bytes, and released exactly once, also if the stream fails."""

import os
import struct

import pytest

from pyclient.errors import ConnectionFailed
from pyclient.net.file_region import FileRegion
from tests.net.ends import End, framed, pair, tcp_pair


@pytest.fixture
def file_of(tmp_path):
    """Return a function `file_of(content)` that returns the descriptor of an open file with that content."""
    opened = []

    def make(content):
        path = tmp_path / str(len(opened))
        path.write_bytes(content)
        opened.append(os.open(path, os.O_RDONLY))
        return opened[-1]

    yield make
    for fd in opened:
        os.close(fd)


def tcp_ends():
    near, far = tcp_pair()
    return End(near), End(far)


def test_file_region_in_small_message_is_sent(run, file_of):
    fd = file_of(b"0123456789")
    released = []

    async def scenario():
        a, b = tcp_ends()
        a.stream.send([struct.pack(">i", 6), b"a", FileRegion(fd, 3, 4, lambda: released.append(1)), b"z"])
        assert await b.until(1) == [b"a3456z"]
        assert released == [1]
        a.stream.close()
        b.stream.close()

    run(scenario())


def test_file_regions_between_bytes_are_sent_and_released_once(run, file_of):
    content = os.urandom(3_000_000)
    fd = file_of(content)
    released = []

    async def scenario():
        a, b = tcp_ends()
        regions = [
            FileRegion(fd, 0, 2_500_000, lambda: released.append("big")),
            FileRegion(fd, 0, 0, lambda: released.append("empty")),
            FileRegion(fd, 2_999_000, 1_000, lambda: released.append("small")),
        ]
        size = 5 + sum(map(len, regions)) + 3
        a.stream.send([struct.pack(">i", size), b"begin", *regions, b"end"])
        a.stream.send([framed(b"next")])
        got = await b.until(2)
        assert got[0] == b"begin" + content[:2_500_000] + content[2_999_000:] + b"end"
        assert got[1] == b"next"
        assert released == ["big", "empty", "small"]
        a.stream.close()
        b.stream.close()

    run(scenario())


def test_closing_releases_unsent_file_regions(run, file_of):
    fd = file_of(bytes(20_000_000))
    released = []

    async def scenario():
        a, b = pair()
        b.stream.pause_reading()
        a.stream.send([FileRegion(fd, 0, 20_000_000, lambda: released.append(1)), b"x"])
        assert a.stream.pending > 0
        a.stream.close()
        a.stream.send([FileRegion(fd, 0, 10, lambda: released.append(2))])
        assert released == [1, 2]
        b.stream.close()

    run(scenario())


@pytest.mark.parametrize("sizes", [[1], [16_384, 16_385, 16_384], [100] * 200, [16_384] * 40, [0, 16_384, 0, 1]])
def test_small_and_large_file_regions_keep_their_order(run, file_of, sizes):
    content = os.urandom(sum(sizes))
    fd = file_of(content)
    released = []

    async def scenario():
        a, b = tcp_ends()
        parts, expected, at = [], b"", 0
        for number, size in enumerate(sizes):
            parts += [b"%d" % number, FileRegion(fd, at, size, lambda number=number: released.append(number))]
            expected += b"%d" % number + content[at : at + size]
            at += size
        a.stream.send([struct.pack(">i", len(expected)), *parts])
        a.stream.send([framed(b"next")])
        assert await b.until(2) == [expected, b"next"]
        assert released == list(range(len(sizes)))
        assert a.stream.pending == 0
        a.stream.close()
        b.stream.close()

    run(scenario())


@pytest.mark.parametrize("size", [100, 100_000])
def test_file_shorter_than_its_region_ends_connection(run, file_of, size):
    fd = file_of(b"short")
    released = []

    async def scenario():
        a, b = pair()
        a.stream.send([FileRegion(fd, 0, size, lambda: released.append(1))])
        error = await a.ended
        assert isinstance(error, ConnectionFailed)
        assert "ends after 5 bytes" in str(error)
        assert released == [1]
        b.stream.close()
        with pytest.raises(ConnectionFailed, match="ends after 5 bytes"):
            FileRegion(fd, 0, size).read()

    run(scenario())
