"""What an idempotent producer of confluent-kafka logs about its epochs, as events of the history.

librdkafka begins a new epoch by itself, and numbers again all records that it has not seen acknowledged, also those
that a broker has written: https://github.com/confluentinc/librdkafka/issues/4953.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any, Final

from tests.chaos.history import EpochBump, Place, Refusal

_BEGINS: Final = re.compile(r"Beginning partition drain .*? epoch bump for \d+ partition\(s\) .*?: (.*)", re.DOTALL)
_BUMPED: Final = re.compile(r"bumped epoch to PID\{Id:(-?\d+),Epoch:(-?\d+)\}")
_REFUSED: Final = re.compile(
    r"ProduceRequest for (\S+) \[(\d+)\] with \d+ message\(s\) failed due to skipped sequence numbers "
    r"\(PID\{Id:(-?\d+),Epoch:(-?\d+)\}, base seq (-?\d+) "
)


class ProducerLog(logging.Handler):
    """Turns the log lines of one producer into events, which it gives to `add`; other lines are dropped."""

    def __init__(self, producer: str, add: Callable[[EpochBump | Refusal], object]) -> None:
        super().__init__()
        self.producer = producer
        self._add = add
        self._reasons: list[str] = []  # of the epoch that has not begun yet

    def options(self) -> dict[str, Any]:
        """Return the options of the producer. Its lines come in calls of `poll`."""
        logger = logging.Logger(f"chaos-{self.producer}", logging.DEBUG)  # by itself: none of its lines go elsewhere
        logger.addHandler(self)
        return {"logger": logger, "debug": "eos", "log_level": 7}

    def emit(self, record: logging.LogRecord) -> None:
        line, at = record.getMessage(), time.monotonic()
        if (found := _BEGINS.search(line)) is not None:
            if found[1] not in self._reasons:
                self._reasons.append(found[1])
        elif (found := _BUMPED.search(line)) is not None:
            self._add(EpochBump(self.producer, int(found[1]), int(found[2]), "; ".join(self._reasons), at))
            self._reasons.clear()
        elif (found := _REFUSED.search(line)) is not None:
            place = Place(found[1], int(found[2]))
            self._add(Refusal(self.producer, place, int(found[3]), int(found[4]), int(found[5]), found.string, at))
