"""Exactly once from topic to topic: records, results and offsets are one transaction, also when a worker is replaced.

Ctrl-C and SIGTERM would end a worker after its present transaction. Readers see committed results only.
"""

import threading
from collections.abc import Iterator

from pyclient import Consumer, Producer, ProducerRecord, Record, process_transactionally
from pyclient.broker_embedded import EmbeddedCluster

AMOUNTS = [b"3", b"4", b"five", b"6"]


def with_tax(record: Record[bytes, bytes]) -> Iterator[ProducerRecord]:
    """Yield the results for one record; what raises goes to the dead-letter topic, in the same transaction."""
    assert record.value is not None
    amount = int(record.value)
    yield ProducerRecord("invoices", b"%d" % (amount * 120), key=record.key)


def work(servers: str, name: str, stop: threading.Event) -> int:
    """Run one worker; each has a transactional id of its own, and all have the group."""
    consumer = Consumer[bytes, bytes](
        "amounts",
        bootstrap_servers=servers,
        group_id="tax",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    with consumer, Producer(servers, transactional_id=f"tax-{name}") as producer:
        return process_transactionally(
            consumer, producer, with_tax, dead_letter_topic="amounts.dead", poll_timeout=0.2, stop=stop
        )


def read(servers: str, topic: str, count: int) -> list[bytes | None]:
    """Return the values of so many committed records."""
    found: list[bytes | None] = []
    with Consumer[bytes, bytes](
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([(topic, 0)])
        while len(found) < count:
            found += [record.value for record in consumer.poll(1.0)]
    return found


with EmbeddedCluster() as cluster:
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send_many("amounts", AMOUNTS)

    stop = threading.Event()
    worker = threading.Thread(target=work, args=(cluster.bootstrap_servers, "0", stop))
    worker.start()
    invoices, dead = read(cluster.bootstrap_servers, "invoices", 3), read(cluster.bootstrap_servers, "amounts.dead", 1)
    stop.set()
    worker.join()
    print("invoices:", invoices, "not processed:", dead)
    assert (invoices, dead) == ([b"360", b"480", b"720"], [b"five"])
