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
def test_the_hash_is_javas(text, expected):
    assert java_hash(text) == expected


def test_the_partition_is_the_absolute_hash_modulo_the_count():
    assert partition_for_id("my-group", 50) == 12


def test_the_one_hash_without_an_absolute_value_goes_to_partition_zero():
    assert partition_for_id("polygenelubricants", 7) == 0
