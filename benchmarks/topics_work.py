"""The first record to each of many topics, by a producer that has not heard of them, in a process of its own."""

from __future__ import annotations

from typing import Any

from benchmarks import producers
from benchmarks.timed_work import arguments, report, timed, values

PER_REQUEST = 500
TIMEOUT = 240  # seconds


def make_topics(servers: str, count: int) -> list[str]:
    """Return the names of topics that every run uses; the first run creates them."""
    from pyclient import Admin, NewTopic

    names = [f"bench-of-many-{number}" for number in range(count)]
    with Admin(servers) as admin:
        missing = sorted(set(names) - set(admin.list_topics()))
        for first in range(0, len(missing), PER_REQUEST):
            topics = [NewTopic(name, 1, 1) for name in missing[first : first + PER_REQUEST]]
            admin.create_topics(topics, timeout=TIMEOUT)
    return names


def send_ours(servers: str, topic: str, names: list[str], payload: list[bytes]) -> Any:
    producer = producers.ours(servers, topic, "none")

    def run() -> None:
        futures = [producer.send(name, payload[number % 1000]) for number, name in enumerate(names)]
        producer.flush(TIMEOUT)
        for future in futures:
            future.result(0)

    return run


def send_confluent(servers: str, topic: str, names: list[str], payload: list[bytes]) -> Any:
    delivered, confirmed = producers.confirmations()
    producer = producers.confluent(servers, topic, "none", on_delivery=delivered)

    def run() -> None:
        before = confirmed()
        for number, name in enumerate(names):
            while True:
                try:
                    producer.produce(name, payload[number % 1000], on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        producer.flush(TIMEOUT)
        if confirmed() - before != len(names):
            raise RuntimeError("a record was not delivered")

    return run


CLIENTS = {"pyclient": send_ours, "confluent-kafka": send_confluent}


def main() -> None:
    """Do what the command line names, and print what it took as JSON."""
    parser = arguments(CLIENTS)
    parser.add_argument("--warm", type=int, default=0)
    given = parser.parse_args()
    names = make_topics(given.servers, given.count)
    report(timed(CLIENTS[given.client](given.servers, given.topic, names, values(given.size))))


if __name__ == "__main__":
    main()
