"""One client's transactions, or its reading of what they wrote, in a process of its own.

Each line of the input starts a turn, which prints its figures as JSON: of writing `{"seconds", "cpu", "commits"}`, with
the milliseconds of each commit, and of reading `{"seconds", "cpu"}`. Clients stay connected from turn to turn.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.consume_work import NO_REST, NO_WAIT, PER_CALL, begin_confluent, confluent
from benchmarks.timed_work import BATCH_BYTES, LINGER_MS, arguments, values

Turn = Callable[[], Mapping[str, Any]]
Prepare = Callable[[str, str, int, int, int], Turn]
"""Takes servers, topic, size, records of a transaction (or of a turn's reading) and transactions of a turn."""


def write_pyclient(servers: str, topic: str, size: int, each: int, turns: int, *, many: bool = False) -> Turn:
    """Write with pyclient: a `send` for each record, or a `send_many` for each transaction."""
    from pyclient import Producer

    name = f"bench-{uuid.uuid4().hex[:8]}"
    producer = Producer(servers, transactional_id=name, linger_ms=LINGER_MS, batch_size=BATCH_BYTES)
    producer.init_transactions()
    payload = values(size)
    column = (payload * (each // len(payload) + 1))[:each]

    def transaction() -> float:
        producer.begin_transaction()
        if many:
            producer.send_many(topic, column)
        else:
            send = producer.send
            for value in column:
                send(topic, value)
        asked = time.perf_counter()
        producer.commit_transaction()
        return time.perf_counter() - asked

    return partial(_write, transaction, turns)


def write_confluent(servers: str, topic: str, size: int, each: int, turns: int) -> Turn:
    """Write with confluent-kafka, which says in the commit whether a record failed."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"bench-{uuid.uuid4().hex[:8]}",
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
        }
    )
    producer.init_transactions()
    payload = values(size)
    column = (payload * (each // len(payload) + 1))[:each]

    def transaction() -> float:
        producer.begin_transaction()
        produce = producer.produce
        for value in column:
            produce(topic, value)
        asked = time.perf_counter()
        producer.commit_transaction()
        return time.perf_counter() - asked

    return partial(_write, transaction, turns)


def _write(transaction: Callable[[], float], turns: int) -> Mapping[str, Any]:
    return _timed(lambda: {"commits": [transaction() * 1000 for _ in range(turns)]})


def read_pyclient(
    servers: str, topic: str, size: int, each: int, turns: int, *, isolation: str, columns: bool = False
) -> Turn:
    """Read the topic from its beginning with pyclient, as records or as Arrow tables."""
    from pyclient import Consumer, TopicPartition

    consumer = Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=isolation, max_poll_records=100_000
    )

    def read() -> Mapping[str, Any]:
        consumer.assign([])
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])
        seen = octets = 0
        while seen < each:
            if columns:
                table = consumer.poll(timeout=10).to_arrow()
                seen += table.num_rows
            else:
                for record in consumer.poll(timeout=10, max_records=PER_CALL):
                    octets += len(record.value)
                    seen += 1
        return {}

    return partial(_timed, read)


def read_confluent(servers: str, topic: str, size: int, each: int, turns: int, *, isolation: str) -> Turn:
    """Read the topic from its beginning with confluent-kafka."""
    consumer = confluent(servers, NO_REST | NO_WAIT | {"isolation.level": isolation})

    def read() -> Mapping[str, Any]:
        begin_confluent(consumer, topic)
        seen = octets = 0
        while seen < each:
            for message in consumer.consume(min(PER_CALL, each - seen), timeout=10):
                octets += len(message.value())
                seen += 1
        return {}

    return partial(_timed, read)


def _timed(work: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    found = work()
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return {"seconds": seconds, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, **found}


CLIENTS: Mapping[str, Prepare] = {
    "pyclient": write_pyclient,
    "pyclient, send_many": partial(write_pyclient, many=True),
    "confluent-kafka": write_confluent,
    "pyclient, read_committed": partial(read_pyclient, isolation="read_committed"),
    "pyclient, read_uncommitted": partial(read_pyclient, isolation="read_uncommitted"),
    "pyclient, to_arrow, read_committed": partial(read_pyclient, isolation="read_committed", columns=True),
    "pyclient, to_arrow, read_uncommitted": partial(read_pyclient, isolation="read_uncommitted", columns=True),
    "confluent-kafka, read_committed": partial(read_confluent, isolation="read_committed"),
    "confluent-kafka, read_uncommitted": partial(read_confluent, isolation="read_uncommitted"),
}


def main() -> None:
    """Do a turn for each line of the input."""
    parser = arguments(CLIENTS)
    parser.add_argument("--turns", type=int, default=1, help="transactions of a turn")
    given = parser.parse_args()
    turn = CLIENTS[given.client](given.servers, given.topic, given.size, given.count, given.turns)
    for _ in sys.stdin:
        print(json.dumps(turn()), flush=True)


if __name__ == "__main__":
    main()
