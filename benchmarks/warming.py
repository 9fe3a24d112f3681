"""Brings machine and broker to where a client's rate is measured and not theirs.

Memory of a virtual machine that has been free for some seconds may be its host's: a file was written there with
250 MB/s, and with 3,400 MB/s where memory had just been used. A JVM spent 23 ms of CPU on a MB at first, and 4 after
14 s of load, when it had compiled what a broker does; until then it wrote 100 MB/s to one partition, then 200 to 300.
"""

from __future__ import annotations

import mmap
import os
import time

from benchmarks.bare_produce import produce_bare
from benchmarks.clusters import fresh_topic
from benchmarks.timed_work import BATCH_BYTES, values
from pyclient import Producer

_AT_HAND = 1 << 30  # bytes: what the files, the broker and the client of one run take, and more
_UNTIL_COMPILED = 15.0  # seconds of load
_A_TURN = 1_000_000  # records of 100 bytes
_SINGLY = 20_000  # records, each confirmed before the next one is sent


def memory_at_hand(most: int = _AT_HAND) -> None:
    """Use up to `most` bytes of memory and leave them, so that what comes next does not wait for them (1 GB: 0.7 s)."""
    populate = getattr(mmap, "MAP_POPULATE", 0)  # Linux
    if populate:
        size = min(most, os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE // 4)
        mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | populate).close()


def warm_up(servers: str) -> None:
    """Run the measured load on a Kafka until its JVM has compiled the code.

    The load is on one partition and on 12, also from an idempotent producer: a JVM recompiles code that is used in a
    new way. Single records come last.
    """
    loaded = 0.0
    while loaded < _UNTIL_COMPILED:
        for partitions, load in ((1, _bare), (12, _bare), (1, _idempotent)):
            memory_at_hand()
            with fresh_topic(servers, partitions) as topic:
                started = time.perf_counter()
                load(servers, topic)
                loaded += time.perf_counter() - started
    with fresh_topic(servers, 1) as topic, Producer(servers, linger_ms=0) as producer:
        for _ in range(_SINGLY):
            producer.send(topic, b"").result()


def _bare(servers: str, topic: str) -> None:
    produce_bare(servers, topic, 100, "none")(_A_TURN)


def _idempotent(servers: str, topic: str) -> None:
    column = values(100) * 10
    with Producer(servers, batch_size=BATCH_BYTES) as producer:
        for _ in range(_A_TURN // len(column)):
            producer.send_many(topic, column)
