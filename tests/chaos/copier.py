"""A process that copies a topic to another in transactions, as Kafka's TransactionalMessageCopier does, until SIGTERM.

`python -m tests.chaos.copier SERVERS TRANSACTIONAL_ID INPUT OUTPUT GROUP SIZE PAUSE` prints how it ended. PAUSE is in
seconds, once for SIZE records. Some transactions are aborted on purpose, and their records copied again.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from collections.abc import Iterator

from pyclient import Consumer, Producer, ProducerRecord, Record, process_transactionally
from pyclient.errors import KafkaError, TransactionAborted

ABORTED_SHARE = 0.002  # of all records: each aborts its transaction


def main() -> int:
    """Copy until SIGTERM; exit with 3 if the producer has to be replaced."""
    servers, transactional_id, source, target, group, size, pause = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)
    chosen = random.Random(os.getpid())
    each = int(size)

    def copy(record: Record[bytes, bytes]) -> Iterator[ProducerRecord]:
        if chosen.random() < ABORTED_SHARE:
            raise TransactionAborted("aborted on purpose")
        if record.offset % each == 0:
            time.sleep(float(pause))  # transactions are open for some time, so that faults meet them
        yield ProducerRecord(target, record.value, partition=record.partition)

    consumer = Consumer[bytes, bytes](
        source,
        bootstrap_servers=servers,
        client_id=transactional_id,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        request_timeout_ms=5_000,
        fetch_max_wait_ms=50,
        max_poll_records=each,
    )
    producer = Producer(
        servers,
        client_id=transactional_id,
        transactional_id=transactional_id,
        transaction_timeout_ms=10_000,
        delivery_timeout_ms=20_000,
        request_timeout_ms=5_000,
        max_block_ms=20_000,
        linger_ms=2,
        batch_size=2_000,
    )
    try:
        with consumer, producer:
            count = process_transactionally(consumer, producer, copy, poll_timeout=0.2, attempts=100)
    except KafkaError as error:
        sys.stdout.write(f"replaced: {error!r}\n")
        return 3
    sys.stdout.write(f"ended after {count} records\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
