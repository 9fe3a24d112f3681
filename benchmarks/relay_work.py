"""A producer and a consumer at the same time, each in its own process: time until the last record was consumed.

`python -m benchmarks.relay_work confluent-kafka --servers ... --topic ... --size 100 --codec none --count 300000`
prints JSON; the clock runs from before the first record is produced until the last one is in the consumer's hands.
"""

from __future__ import annotations

import subprocess
import sys
import time
from argparse import Namespace

from benchmarks.consume_work import NO_REST, PER_CALL, begin_confluent, confluent
from benchmarks.produce_work import produce_confluent
from benchmarks.timed_work import arguments, report

PRODUCING = "confluent-kafka, producing"
CLIENTS = {"confluent-kafka": None, PRODUCING: None}
WARM_UP = 4  # as much less goes through before the clock runs
WAIT_SECONDS = 30.0


def produce(given: Namespace) -> None:
    """Produce (in a process of its own): the warm-up records, and the others on a signal. Print when those started."""
    send = produce_confluent(given.servers, given.topic, given.size, given.codec)
    send(given.count // WARM_UP)
    sys.stdin.readline()
    print(time.monotonic(), flush=True)
    send(given.count)


def relay(given: Namespace) -> None:
    """Start the producing process, read its records, and report the seconds: the consuming process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.relay_work", PRODUCING, "--servers", given.servers]
    command += ["--topic", given.topic, "--size", str(given.size), "--codec", given.codec, "--count", str(given.count)]
    consumer = confluent(given.servers, NO_REST)
    begin_confluent(consumer, given.topic)

    def read(count: int) -> None:
        seen = octets = 0
        while seen < count:
            messages = consumer.consume(min(PER_CALL, count - seen), timeout=0.05)
            for message in messages:
                octets += len(message.value())
            seen += len(messages)
            if not messages and time.monotonic() > end:
                raise RuntimeError(f"{seen} of {count} records came")

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdin is not None
        assert producer.stdout is not None
        end = time.monotonic() + WAIT_SECONDS
        read(1 + given.count // WARM_UP)  # one more is sent when the producer connects
        producer.stdin.write("go\n")
        producer.stdin.flush()
        end = time.monotonic() + WAIT_SECONDS
        read(given.count)
        ended = time.monotonic()
        began = float(producer.stdout.readline())
    report({"seconds": ended - began})


if __name__ == "__main__":
    given = arguments(CLIENTS).parse_args()
    if given.client == PRODUCING:
        produce(given)
    else:
        relay(given)
