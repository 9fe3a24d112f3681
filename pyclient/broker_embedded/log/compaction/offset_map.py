"""The last offset of each key, for as many keys as fit into the memory that compaction may use. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_DIGEST_BYTES: Final = 16  # as many as Kafka keeps of a key; shorter keys are their own fingerprint

KEY_BYTES: Final = 210
"""What one key costs in memory at most (bytes; measured: 129 to 209, by how full the table is)."""


def fingerprint(key: bytes) -> bytes:
    """What stands for a key: itself if it is short, else 16 bytes of a cryptographic hash. No two are alike."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class OffsetMap:
    """Fingerprints and last offsets. `end` is behind the last offset that was taken in: what lies there is unknown."""

    __slots__ = ("_most", "end", "offsets")

    def __init__(self, most_keys: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.end = -1
        self._most = max(most_keys, 1)

    def put(self, key: bytes, offset: int) -> bool:
        """Takes in a record; False, and nothing is changed, if its key is new and there is no room for it."""
        offsets = self.offsets
        known = fingerprint(key)
        if len(offsets) >= self._most and known not in offsets:
            return False
        offsets[known] = offset
        self.end = offset + 1
        return True

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"<OffsetMap {len(self.offsets)} of {self._most} keys, up to {self.end}>"
