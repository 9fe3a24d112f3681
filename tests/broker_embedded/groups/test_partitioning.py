"""The partition of an id, as Java computes it."""

from __future__ import annotations

import pytest

from pyclient.broker_embedded.groups.partitioning import java_hash, partition_for_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("𝄞", 31 * 0xD834 + 0xDD1E),
    ],
)
def test_hash_equals_java_string_hash(text, expected):
    assert java_hash(text) == expected


def test_partition_is_absolute_hash_modulo_count():
    assert partition_for_id("my-group", 50) == 12


def test_minimum_hash_maps_to_partition_zero():
    assert partition_for_id("polygenelubricants", 7) == 0
