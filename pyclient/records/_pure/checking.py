"""The CRCs of many batches."""

from __future__ import annotations

from collections.abc import Sequence

from pyclient.errors import CorruptRecord
from pyclient.records.batch import BatchHeader, check_crc
from pyclient.records.columns import Buffer


def count_intact(pieces: Sequence[tuple[Buffer, int, BatchHeader]]) -> int:
    """How many batches, from the first on, have the CRC that their header says; the GIL is free meanwhile.

    A piece is (buffer, position, header). It ends in front of the first that is wrong or cut, or of an old format:
    `check_crc` says what is wrong with it, if anything is.
    """
    intact = 0
    for buffer, position, header in pieces:
        if header.magic != 2:
            break
        try:
            check_crc(buffer, position, header)
        except CorruptRecord:
            break
        intact += 1
    return intact
