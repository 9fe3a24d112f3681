"""The record codec in Python, with the same names, arguments, errors and bytes as the compiled `_speedups`.

Type checkers use it for both. The names are those of `implementation.__all__`.
"""

from pyclient.records._pure.building import BatchBuilder as BatchBuilder
from pyclient.records._pure.column_reading import ColumnsBuilder as ColumnsBuilder
from pyclient.records._pure.column_reading import release_spare_memory as release_spare_memory
from pyclient.records._pure.encoding import record_size_bound as record_size_bound
from pyclient.records._pure.hashing import murmur2 as murmur2
from pyclient.records._pure.hashing import partition_for_key as partition_for_key
from pyclient.records._pure.hashing import rows_by_partition as rows_by_partition
from pyclient.records._pure.placing import PlacedBatch as PlacedBatch
from pyclient.records._pure.placing import find_batches as find_batches
from pyclient.records._pure.reading import RecordChain as RecordChain
from pyclient.records._pure.reading import decode_batch as decode_batch
from pyclient.records._pure.reading import decode_payload as decode_payload
from pyclient.records._pure.record import Record as Record
from pyclient.records._pure.record import RecordHandle as RecordHandle
from pyclient.records._pure.validating import check_rows as check_rows
from pyclient.records._pure.validating import count_intact as count_intact
from pyclient.records._pure.validating import validate_records as validate_records
from pyclient.records.varints import decode_varint as decode_varint
from pyclient.records.varints import encode_varint as encode_varint

IMPLEMENTATION = "pure"
