import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import MalformedMessage
from pyclient.net.frames import FrameAssembler
from tests.net.ends import framed


def feed(assembler, data, chunk=1 << 30):
    for start in range(0, len(data), chunk):
        piece = data[start : start + chunk]
        while piece:
            space = assembler.space()
            assert len(space) > 0
            count = min(len(space), len(piece))
            space[:count] = piece[:count]
            assembler.received(count)
            piece = piece[count:]


def collecting(max_frame=100_000_000):
    got = []
    return FrameAssembler(max_frame, lambda frame: got.append(bytes(frame))), got


BODIES = (b"abcd", b"", b"x" * 300, b"y" * 20_000, b"z" * 700_000, b"tail")


@pytest.mark.parametrize("chunk", [1 << 30, 131_072, 65_537, 4_096, 1_001])
def test_frames_are_delivered_whole_in_any_chunks(chunk):
    assembler, got = collecting()
    feed(assembler, framed(*BODIES), chunk)
    assert got == list(BODIES)
    assert assembler.partial is None


def test_frames_are_delivered_whole_byte_by_byte():
    bodies = (b"abcd", b"", b"x" * 300, b"y" * 20_000, b"tail")
    assembler, got = collecting()
    feed(assembler, framed(*bodies), 1)
    assert got == list(bodies)


@given(
    bodies=st.lists(st.binary(max_size=40) | st.integers(0, 200_000).map(lambda n: bytes(n)), max_size=12),
    cuts=st.lists(st.integers(1, 100_000), max_size=40),
)
def test_random_frames_cut_anywhere_are_delivered_whole(bodies, cuts):
    assembler, got = collecting()
    data = framed(*bodies)
    for cut in cuts:
        feed(assembler, data[:cut])
        data = data[cut:]
    feed(assembler, data)
    assert got == bodies


def test_partial_describes_every_prefix_of_frame():
    data = framed(b"0123456789")
    for end in range(1, len(data)):
        assembler, got = collecting()
        feed(assembler, data[:end])
        assert got == []
        assert assembler.partial == (f"{end} bytes of its length" if end < 4 else f"{end - 4} of 10 bytes")


def test_partial_describes_large_frame():
    assembler, _ = collecting()
    feed(assembler, framed(bytes(50_000))[:30_004])
    assert assembler.partial == "30000 of 50000 bytes"


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (struct.pack(">i", -1), "a frame of -1 bytes was announced"),
        (struct.pack(">i", -(2**31)), "a frame of -2147483648 bytes"),
        (struct.pack(">i", 1001), "a frame of 1001 bytes was announced, more than the 1000 bytes allowed"),
        (struct.pack(">i", 2**31 - 1), "more than the 1000 bytes allowed"),
        (b"\x15\x03\x03\x00", "the port speaks TLS; set security_protocol='SSL'"),
        (b"\x15\x03\x01\x00", "the port speaks TLS; set security_protocol='SSL'"),
        (b"\x16\x03\x01\x02", "the other side speaks TLS to a plaintext port"),
        (b"HTTP", "the port speaks HTTP, it is not a Kafka broker"),
        (b"GET ", "the other side speaks HTTP"),
        (b"SSH-", "the port speaks SSH"),
    ],
)
def test_impossible_frame_length_is_refused_with_likely_cause(head, says):
    assembler, got = collecting(max_frame=1000)
    with pytest.raises(MalformedMessage, match=says):
        feed(assembler, framed(b"good one") + head + b"more")
    assert got == [b"good one"]


def test_announced_frame_length_allocates_no_memory():
    tracemalloc.start()
    try:
        assemblers = [collecting()[0] for _ in range(20)]
        before = tracemalloc.get_traced_memory()[0]
        for assembler in assemblers:
            feed(assembler, struct.pack(">i", 99_999_999) + b"few")
        assert tracemalloc.get_traced_memory()[0] - before < 20 * 200_000
    finally:
        tracemalloc.stop()


def test_no_frame_is_delivered_while_paused():
    got = []

    def pause_after_each(frame):
        got.append(bytes(frame))
        assembler.paused = True

    assembler = FrameAssembler(1000, pause_after_each)
    feed(assembler, framed(b"one", b"two", b"three") + b"\x00\x00")
    assert got == [b"one"]
    assembler.resume()
    assert got == [b"one", b"two"]
    assembler.resume()
    assembler.resume()
    feed(assembler, b"\x00\x04four")
    assert got == [b"one", b"two", b"three", b"four"]


def test_delivered_frame_is_not_overwritten():
    kept = []
    assembler = FrameAssembler(1 << 20, kept.append)
    feed(assembler, framed(b"first", b"a" * 50_000, b"second", b"b" * 50_000))
    feed(assembler, framed(*[b"#" * 5_000] * 100))
    assert [bytes(frame) for frame in kept[:4]] == [b"first", b"a" * 50_000, b"second", b"b" * 50_000]


def test_error_of_receiver_is_raised_and_later_frames_are_kept():
    def refuse(frame):
        raise ValueError(bytes(frame))

    assembler = FrameAssembler(1000, refuse)
    with pytest.raises(ValueError, match="one"):
        feed(assembler, framed(b"one", b"two"))
    assert assembler.backlog
