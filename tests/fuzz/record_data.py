"""Record batches for Produce: valid ones of every codec, and ones whose content is wrong although their CRC fits."""

from __future__ import annotations

import struct
from random import Random
from typing import Final

from crc32c import crc32c

from pyclient.records import Compression, build_batch, stamp_producer
from tests.fuzz.state import State

_CRC_AT: Final = 17
_CHECKED_AT: Final = 21
_FIXED: Final[tuple[tuple[int, str], ...]] = (
    (0, ">q"),  # base offset
    (8, ">i"),  # length
    (12, ">i"),  # leader epoch
    (16, ">b"),  # magic
    (21, ">h"),  # attributes
    (23, ">i"),  # last offset delta
    (27, ">q"),  # base timestamp
    (35, ">q"),  # max timestamp
    (43, ">q"),  # producer id
    (51, ">h"),  # producer epoch
    (53, ">i"),  # base sequence
    (57, ">i"),  # record count
)
_TIMESTAMP: Final = 1_700_000_000_000
_BITS: Final = {"b": 8, "h": 16, "i": 32, "q": 64}


class RecordDataGenerator:
    """Makes the `records` field of Produce requests."""

    def __init__(self, state: State, rng: Random) -> None:
        self._state = state
        self._rng = rng
        self._plain = [self._valid(codec, count) for codec in Compression for count in (1, 3, 40)]
        self._idempotent = [self._valid(Compression.NONE, count) for count in (1, 2)]

    def _valid(self, codec: Compression, count: int) -> bytes:
        rows = [
            (None if n % 5 == 4 else b"key-%d" % (n % 7), None if n % 11 == 9 else b"value-%d" % n)
            for n in range(count)
        ]
        return build_batch(rows, timestamp_ms=_TIMESTAMP, compression=codec)

    def valid(self, topic: str, partition: int) -> bytes:
        """Return a batch that a client would send, some of them with a producer id that the broker gave out."""
        rng = self._rng
        producer = self._state.any_producer()
        if producer.producer_id < 0 or rng.random() < 0.5:
            return rng.choice(self._plain)
        which = rng.randrange(2)
        batch = bytearray(self._idempotent[which])
        sequence = self._state.next_sequence(producer, topic, partition, which + 1)
        stamp_producer(batch, producer.producer_id, producer.epoch, sequence & 0x7FFFFFFF)
        return bytes(batch)

    def hostile(self) -> bytes:
        """Return anything but a valid batch; the CRC fits in most of them."""
        rng = self._rng
        choice = rng.random()
        if choice < 0.05:
            return rng.randbytes(rng.choice((0, 1, 11, 12, 17, 60, 61, 90)))
        if choice < 0.12:
            return rng.choice(self._plain) + rng.choice(self._plain)
        if choice < 0.2:
            return legacy_message(rng)
        batch = bytearray(rng.choice(self._plain))
        if choice < 0.6:
            for _ in range(rng.choice((1, 1, 2))):
                at, code = rng.choice(_FIXED)
                struct.pack_into(code, batch, at, hostile_integer(rng, _BITS[code[1]]))
        elif choice < 0.9:
            for _ in range(rng.choice((1, 1, 2, 5))):
                batch[rng.randrange(61, len(batch))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        else:
            size = rng.randrange(len(batch))
            batch = batch[:size] if rng.random() < 0.5 else batch + rng.randbytes(rng.randrange(1, 40))
            if rng.random() < 0.7 and len(batch) >= 12:
                struct.pack_into(">i", batch, 8, len(batch) - 12)
        if len(batch) > _CHECKED_AT and rng.random() < 0.95:
            struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_CHECKED_AT:]))
        return bytes(batch)


def legacy_message(rng: Random) -> bytes:
    """Return a message of the formats 0 and 1, as no version of Produce that is served may carry."""
    magic = rng.randrange(2)
    body = struct.pack(">bb", magic, rng.choice((0, 1, 4)))
    if magic:
        body += struct.pack(">q", _TIMESTAMP)
    body += struct.pack(">i", -1) + struct.pack(">i", 5) + b"value"
    return struct.pack(">qiI", 0, len(body) + 4, rng.getrandbits(32)) + body


def hostile_integer(rng: Random, bits: int, *, unsigned: bool = False) -> int:
    """Return an end of the range, what is next to it, a power of two, or a number like those that mean something."""
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    choice = rng.random()
    if choice < 0.35:
        return rng.choice((low, low + 1, high, high - 1, 0, max(low, -1), max(low, -2)))
    if choice < 0.6:
        return min(high, max(low, rng.choice((-5, -4, -3, 1, 2, 3, 10, 100, 127, 128, 255, 999, 32_767, 32_768))))
    if choice < 0.8:
        return min(high, max(low, (1 << rng.randrange(bits)) - rng.randrange(2)))
    return rng.randint(low, high)
