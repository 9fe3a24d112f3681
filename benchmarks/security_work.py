"""One client produces or consumes over TLS, in a process of its own so that its CPU time is its own.

`python -m benchmarks.security_work "produce pyclient" --ca ca.pem --servers ... --topic ... --size 100 --codec none
--count 300000` prints JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.consume_work import NO_REST, NO_WAIT, begin_confluent, confluent
from benchmarks.produce_work import produce_confluent, produce_pyclient
from benchmarks.timed_work import arguments, report, timed

PER_CALL = 500
Work = Callable[[int], Any]


def consume_pyclient(servers: str, topic: str, ca: str) -> Work:
    from pyclient import Consumer, TopicPartition

    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", security_protocol="SSL", ssl_cafile=ca)

    def read(count: int) -> None:
        consumer.assign([])
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])
        seen = octets = 0
        while seen < count:
            for record in consumer.poll(timeout=10, max_records=PER_CALL):
                octets += len(record.value)
                seen += 1

    return read


def consume_confluent(servers: str, topic: str, ca: str) -> Work:
    consumer = confluent(servers, {**NO_REST, **NO_WAIT, "security.protocol": "SSL", "ssl.ca.location": ca})

    def read(count: int) -> None:
        begin_confluent(consumer, topic)
        seen = octets = 0
        while seen < count:
            for message in consumer.consume(PER_CALL, 10):
                octets += len(message.value())
                seen += 1

    return read


CLIENTS = {
    "produce pyclient": lambda servers, topic, size, ca: produce_pyclient(
        servers, topic, size, "none", security_protocol="SSL", ssl_cafile=ca
    ),
    "produce confluent-kafka": lambda servers, topic, size, ca: produce_confluent(
        servers, topic, size, "none", **{"security.protocol": "SSL", "ssl.ca.location": ca}
    ),
    "consume pyclient": lambda servers, topic, size, ca: consume_pyclient(servers, topic, ca),
    "consume confluent-kafka": lambda servers, topic, size, ca: consume_confluent(servers, topic, ca),
}


def main() -> None:
    """Do the work that the command line names: a third of it to warm up, and all of it on the clock."""
    parser = arguments(CLIENTS)
    parser.add_argument("--ca", required=True, help="the certificate of the broker's authority, a PEM file")
    given = parser.parse_args()
    work = CLIENTS[given.client](given.servers, given.topic, given.size, given.ca)
    work(given.count // 3)
    report(timed(lambda: work(given.count)))


if __name__ == "__main__":
    main()
