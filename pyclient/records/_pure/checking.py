"""The CRCs of many batches."""

from __future__ import annotations

from collections.abc import Sequence

from pyclient.errors import CorruptRecord
from pyclient.records._pure.placing import PlacedBatch
from pyclient.records.batch import check_crc


def count_intact(batches: Sequence[PlacedBatch]) -> int:
    """How many batches, from the first on, have the CRC that they say; the GIL is free meanwhile.

    They are `checked` from then on. It ends in front of the first that is wrong or cut, or of an old format:
    `check_crc` says what is wrong with it, if anything is.
    """
    for number, batch in enumerate(batches):
        if batch.header.magic != 2:
            return number
        try:
            check_crc(batch.buffer, batch.position, batch.header)
        except CorruptRecord:
            return number
        batch.checked = True
    return len(batches)
