import random

import pytest

from pyclient.net.frames import FrameAssembler
from pyclient.net.receive_buffers import ReceiveBuffers


def feed(assembler, data, most=1 << 30):
    """Pass `data` to the assembler like a socket, up to `most` bytes at once; return the rest after a pause."""
    while data and not assembler.paused:
        space = assembler.space()
        count = min(len(space), len(data), most)
        space[:count] = data[:count]
        assembler.received(count)
        data = data[count:]
    return data


def framed(size):
    return size.to_bytes(4, "big") + bytes(range(256)) * (size // 256) + bytes(size % 256)


def test_buffer_is_free_without_views():
    buffers = ReceiveBuffers()
    view = buffers.new(1_000_000)
    part = view[10:20]
    del view
    assert buffers.spare(1_000_000) is None
    del part
    assert buffers.spare(1_000_000) is not None


def test_spare_returns_smallest_sufficient_buffer():
    buffers = ReceiveBuffers()
    sizes = [len(buffers.new(size)) for size in (3_000_000, 1_000_000, 2_000_000)]
    spare = buffers.spare(1_000_001)
    assert len(spare) == min(size for size in sizes if size > 1_000_000)
    assert buffers.spare(10_000) is None  # far too large, all of them


def test_idle_buffers_are_kept_up_to_limit():
    buffers = ReceiveBuffers(idle_bytes=3_000_000)
    views = [buffers.new(1_000_000) for _ in range(8)]
    del views
    assert buffers.spare(900_000) is not None
    kept = 0
    held = []
    while (view := buffers.spare(900_000)) is not None:
        held.append(view)
        kept += len(view)
    assert 2_000_000 < kept <= 4_200_000


def test_release_drops_free_buffers_only():
    buffers = ReceiveBuffers()
    held = buffers.new(1_000_000)
    buffers.new(2_000_000)
    buffers.release()
    assert buffers.spare(2_000_000) is None
    held[:3] = b"abc"
    del held
    again = buffers.spare(1_000_000)
    assert again is not None and bytes(again[:3]) == b"abc"


def test_large_frame_is_received_into_reused_buffer():
    places = []
    assembler = FrameAssembler(100_000_000, lambda frame: places.append(id(frame.obj)))
    for _ in range(3):
        data = framed(900_000)
        while data:
            space = assembler.space()
            count = min(len(space), len(data), 100_000)
            space[:count] = data[:count]
            assembler.received(count)
            data = data[count:]
    assert places[1] == places[2]


def test_kept_frames_never_share_memory():
    kept = []
    assembler = FrameAssembler(100_000_000, kept.append)
    for number in range(6):
        size = 300_000
        data = size.to_bytes(4, "big") + bytes([number]) * size
        while data:
            space = assembler.space()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            assembler.received(count)
            data = data[count:]
    assert [bytes(frame) == bytes([number]) * 300_000 for number, frame in enumerate(kept)] == [True] * 6


def test_frame_of_half_a_buffer_is_received_into_reused_buffer():
    places = []
    assembler = FrameAssembler(1_000_000, lambda frame: places.append(id(frame.obj)))
    for size in (140_000, 131_090, 131_020, 90_000, 131_050):
        feed(assembler, framed(size))
    assert len(set(places)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_frames_of_all_sizes_are_delivered_unchanged(seed):
    chance = random.Random(seed)
    sizes = [chance.choice((0, 3, 5_000, 70_000, 131_000, 131_077, 255_000, 262_140, 300_000)) for _ in range(30)]
    frames = [chance.randbytes(size) for size in sizes]
    got, kept = [], []

    def take(frame):
        got.append(bytes(frame))
        if chance.random() < 0.3:
            kept.append((len(got) - 1, frame))
        assembler.paused = chance.random() < 0.3

    assembler = FrameAssembler(1_000_000, take)
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    while data or assembler.paused:
        piece = chance.choice((1_000, 60_000, 140_000, 600_000))
        data = feed(assembler, data[:piece], chance.choice((700, 50_000, 1 << 30))) + data[piece:]
        if assembler.paused:
            assembler.resume()
    assert got == frames
    assert all(bytes(frame) == frames[number] for number, frame in kept)


def test_small_frames_after_large_one_survive_pause_after_each():
    got = []

    def take(frame):
        got.append(bytes(frame))
        assembler.paused = True

    assembler = FrameAssembler(1_000_000, take)
    small = [b"%05d" % number for number in range(30_000)]
    data = framed(250_000) + b"".join(len(frame).to_bytes(4, "big") + frame for frame in small)
    while data or assembler.paused:
        data = feed(assembler, data)
        assembler.resume()
    assert got[1:] == small
