"""Hash and sticky partitioner for records without a partition."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.producer.partitioner import StickyPartitioner, pick_by_queue
from pyclient.records import murmur2, partition_for_key

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"abc": 479470107,
}


def reference_murmur2(data):
    """Return the hash as its definition says it, word by word."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    words, tail = data[: len(data) // 4 * 4], data[len(data) // 4 * 4 :]
    for at in range(0, len(words), 4):
        k = int.from_bytes(words[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def test_known_keys_hash_as_in_java():
    assert {key: murmur2(key) for key in JAVA} == JAVA
    assert {key: reference_murmur2(key) for key in JAVA} == JAVA


def test_a_hundred_thousand_keys_get_the_partition_that_java_gives_them():
    rng = random.Random(4)
    for number in range(100_000):
        key = rng.randbytes(number % 23)
        assert partition_for_key(key, 12) == (reference_murmur2(key) & 0x7FFFFFFF) % 12


def test_the_sticky_partition_changes_when_about_a_batch_has_gone_there():
    sticky = StickyPartitioner(random.Random(1), 1000, adaptive=True)
    sticky.switch([0, 1, 2])
    assert [sticky.closed(400), sticky.closed(400), sticky.closed(400)] == [False, False, True]
    assert sticky.switch([5]) == sticky.partition == 5
    assert not sticky.closed(999)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers())
def test_a_choice_by_queues_is_one_of_them(queued, seed):
    assert 0 <= pick_by_queue(queued, random.Random(seed)) < len(queued)


def test_shorter_queues_are_chosen_in_proportion():
    rng = random.Random(1)
    counts = Counter(pick_by_queue([0, 3, 1], rng) for _ in range(70_000))
    assert [round(counts[index] / 70_000 * 8, 1) for index in range(3)] == pytest.approx([4, 1, 3], abs=0.2)


def test_equal_queues_or_no_adaptivity_choose_uniformly():
    for adaptive, queued in ((True, [2, 2, 2]), (False, [0, 9, 9]), (True, None)):
        sticky = StickyPartitioner(random.Random(1), 1000, adaptive=adaptive)
        counts = Counter(sticky.switch([10, 11, 12], queued) for _ in range(30_000))
        assert all(abs(count / 30_000 - 1 / 3) < 0.02 for count in counts.values())
