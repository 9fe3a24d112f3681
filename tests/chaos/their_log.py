"""Events of the history from the log lines of confluent-kafka's clients: new epochs, reset positions, stuck members.

An idempotent producer begins a new epoch, and numbers again all records that it has not seen acknowledged, also those
that a broker has written: https://github.com/confluentinc/librdkafka/issues/4953. A consumer whose partition is paused
and resumed while it asks for its first offset can ask a second time when it already reads, and goes back then. One
whose OffsetFetch request is refused for the whole group (NOT_COORDINATOR: the coordinator has moved) does not send it
again, reads nothing, and finishes no rebalance: https://github.com/confluentinc/librdkafka/issues/5586.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any, Final

from tests.chaos.history import EpochBump, Place, PositionReset, Refusal, StuckMember

_BEGINS: Final = re.compile(r"Beginning partition drain .*? epoch bump for \d+ partition\(s\) .*?: (.*)", re.DOTALL)
_BUMPED: Final = re.compile(r"bumped epoch to PID\{Id:(-?\d+),Epoch:(-?\d+)\}")
_REFUSED: Final = re.compile(
    r"ProduceRequest for (\S+) \[(\d+)\] with \d+ message\(s\) failed due to skipped sequence numbers "
    r"\(PID\{Id:(-?\d+),Epoch:(-?\d+)\}, base seq (-?\d+) "
)
_RESET: Final = re.compile(r"Topic (\S+) \[(\d+)\]: timed offset query for offset BEGINNING .*in state active")
_STUCK: Final = "Offset fetch error for 0 partition(s): "


def _logged_to(handler: logging.Handler, name: str, debug: str) -> dict[str, Any]:
    """Return the options of a client whose log goes to `handler` alone. The lines come in calls of its `poll`."""
    logger = logging.Logger(f"chaos-{name}", logging.DEBUG)
    logger.addHandler(handler)
    return {"logger": logger, "debug": debug, "log_level": 7}


class ProducerLog(logging.Handler):
    """Turns the log lines of one producer into events, which it gives to `add`; other lines are dropped."""

    def __init__(self, producer: str, add: Callable[[EpochBump | Refusal], object]) -> None:
        super().__init__()
        self.producer = producer
        self._add = add
        self._reasons: list[str] = []  # of the epoch that has not begun yet

    def options(self) -> dict[str, Any]:
        """Return the options of the producer."""
        return _logged_to(self, self.producer, "eos")

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


class ConsumerLog(logging.Handler):
    """Turns the log lines of one consumer into events, which it gives to `add`; other lines are dropped."""

    def __init__(self, consumer: str, add: Callable[[PositionReset | StuckMember], object]) -> None:
        super().__init__()
        self.consumer = consumer
        self.is_stuck = False
        self._add = add

    def options(self) -> dict[str, Any]:
        """Return the options of the consumer."""
        return _logged_to(self, self.consumer, "topic,cgrp")

    def emit(self, record: logging.LogRecord) -> None:
        line, at = record.getMessage(), time.monotonic()
        if (found := _RESET.search(line)) is not None:
            self._add(PositionReset(self.consumer, Place(found[1], int(found[2])), at))
        elif _STUCK in line and not self.is_stuck:
            self.is_stuck = True
            self._add(StuckMember(self.consumer, at))
