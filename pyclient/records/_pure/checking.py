"""Whether batches are as they say: their CRCs, and records that can be read."""

from __future__ import annotations

from collections.abc import Sequence

from pyclient.errors import CorruptRecord
from pyclient.records._pure.placing import PlacedBatch
from pyclient.records._pure.reading import read_rows
from pyclient.records.batch import check_crc
from pyclient.records.compression import MAX_DECOMPRESSED, Compression
from pyclient.records.payload import MAX_OFFSET, Payload, open_batch


def count_intact(batches: Sequence[PlacedBatch], crcs: bool = True) -> int:
    """How many batches, from the first on, have the CRC that they say, and records that can be read.

    They are `checked` from then on, and `readable` unless they are compressed. It ends in front of the first that is
    wrong or cut, or of an old format: `check_crc` and `check_rows` say what is wrong with it, if anything is. With
    `crcs` False only the records are looked at.
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
    """Raise `CorruptRecord` unless every record of a payload can be read; makes no object for any."""
    for _ in read_rows(payload, MAX_OFFSET, MAX_OFFSET):
        pass
