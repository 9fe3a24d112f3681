"""A producer of confluent-kafka whose records are in requests of their own, several of which are on their way."""

from __future__ import annotations

import json
from typing import Any

import confluent_kafka

from tests.chaos.history import IDEMPOTENT, OK, Place, Send, Value, payload
from tests.chaos.their_log import ProducerLog
from tests.chaos.workload import Notes


class TheirPipelined:
    """A producer of confluent-kafka that sends each record in a request of its own, without waiting for answers."""

    def __init__(self, servers: str, notes: Notes, topic: str) -> None:
        self._notes, self._topic = notes, topic
        self._count = self._sent = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                **ProducerLog("theirs", notes.add).options(),
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "statistics.interval.ms": 20,
                "stats_cb": self._note_statistics,
            }
        )

    def _note_statistics(self, text: str) -> None:
        seen = json.loads(text)
        partitions = seen["topics"][self._topic]["partitions"].values() if seen["topics"] else ()
        in_requests = sum(each["msgs_inflight"] for each in partitions)
        self._sent = min(in_requests, sum(each["waitresp_cnt"] for each in seen["brokers"].values()))

    def unanswered(self) -> int:
        """Return how many records have been sent and not been answered."""
        self._producer.poll(0.01)
        return self._sent

    def send(self, partition: int) -> None:
        value, place = Value("theirs", self._count), Place(self._topic, partition)
        self._count += 1

        def done(error: Any, message: Any) -> None:
            assert error is None
            self._notes.add(Send(value, place, IDEMPOTENT, OK, message.offset()))

        self._producer.produce(self._topic, payload(value, place), partition=partition, on_delivery=done)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0
