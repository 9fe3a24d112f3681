"""One member of the soak test, a process: logs each processed record, and only then commits it.

`soak_member.py EVENT_LOG OPTIONS TOPIC`: OPTIONS are the consumer's, as JSON. It leaves the group on SIGTERM.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from pyclient import Consumer, TopicPartition
from pyclient.consumer import RebalanceListener
from pyclient.errors import KafkaError, PollIntervalExceeded

PER_POLL = 100
SECONDS_PER_RECORD = 0.0005  # what processing takes

logger = logging.getLogger("soak")


class CommitsOnRevoke(RebalanceListener):
    """Commits processed records in on_revoked; after a loss there is nothing to commit."""

    def __init__(self, consumer: Consumer[Any, Any]) -> None:
        self.consumer = consumer

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        commit(self.consumer)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        return


def commit(consumer: Consumer[Any, Any]) -> None:
    """Commit; a paused member may find that others own its partitions meanwhile."""
    try:
        consumer.commit()
    except KafkaError as error:
        logger.warning("not committed: %s", error)


def main(event_log: str, options: dict[str, Any], topic: str) -> None:
    """Read and process until the signal to leave."""
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: leaving.append(1))
    by_hand = options.get("enable_auto_commit") is False
    file = os.open(event_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Consumer(**options) as consumer:
        consumer.subscribe(topic, listener=CommitsOnRevoke(consumer) if by_hand else None)
        while not leaving:
            try:
                records = consumer.poll(0.1, max_records=PER_POLL)
            except PollIntervalExceeded as error:
                logger.warning("was paused for too long: %s", error)
                continue
            if records:
                time.sleep(len(records) * SECONDS_PER_RECORD)  # work takes time
                os.write(file, b"".join(b"%d %d\n" % (record.partition, record.offset) for record in records))
                if by_hand:
                    commit(consumer)
    os.write(file, b"left\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])
