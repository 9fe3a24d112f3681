"""Check the CRCs and the records of batches."""

from __future__ import annotations

from collections.abc import Sequence

from pyclient.errors import CorruptRecord
from pyclient.records._pure.placing import PlacedBatch
from pyclient.records._pure.reading import read_rows
from pyclient.records.batch import check_crc
from pyclient.records.compression import MAX_DECOMPRESSED, Compression
from pyclient.records.payload import MAX_OFFSET, Payload, open_batch


def count_intact(batches: Sequence[PlacedBatch], crcs: bool = True) -> int:
    """Return how many batches, counted from the first, have a correct CRC and readable records.

    Mark them as `checked`, and as `readable` unless they are compressed. Stop before the first that is corrupt,
    incomplete or of an old format; `check_crc` and `check_rows` raise the error for it. With `crcs` False check only
    the records.
    """
    for number, batch in enumerate(batches):
        header = batch.header
        if header.magic != 2:
            return number
        plain = header.codec == Compression.NONE
        try:
            if crcs and not batch.checked:
                check_crc(batch.buffer, batch.position, header)
            if plain and not batch.readable:
                place = (batch.topic, batch.partition, MAX_DECOMPRESSED)
                check_rows(open_batch(batch.buffer, batch.position, header, *place))
        except CorruptRecord:
            return number
        batch.checked = batch.checked or crcs
        batch.readable = batch.readable or plain
    return len(batches)


def check_rows(payload: Payload) -> None:
    """Raise `CorruptRecord` unless every record of a payload is readable; create no `Record` objects."""
    for _ in read_rows(payload, MAX_OFFSET, MAX_OFFSET):
        pass
