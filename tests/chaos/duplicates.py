"""The checkers of records that were written twice: they show the batches of all copies, as the logs have them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tests.chaos.history import IDEMPOTENT, ONE, PLAIN, TRANSACTIONAL, Batch, History, Place, Value
from tests.chaos.logs import Logs

EXACTLY_ONCE: Final = frozenset({IDEMPOTENT, TRANSACTIONAL})
NOT_IDEMPOTENT: Final = frozenset({PLAIN, ONE})
_BY_ITSELF: Final = ("skipped sequence numbers", "timed out")
"""The reasons for which librdkafka begins an epoch, other than an error that a broker may not give it."""
_SEQUENCES: Final = 1 << 31


class Copies:
    """The places of a value, by their offsets, with the batches that hold it there; None for one in no log."""

    def __init__(self, value: Value, places: Iterable[tuple[Place, int]], logs: Logs) -> None:
        self.value = value
        self.places = sorted(places)
        self.batches = [logs.batch_at(place, offset) for place, offset in self.places]

    def __str__(self) -> str:
        copies = zip(self.places, self.batches, strict=True)
        shown = (f"{place}@{offset} ({_described(batch)})" for (place, offset), batch in copies)
        return f"{self.value} is at {', '.join(shown)}"

    def are_of_new_epochs(self, reasons: Mapping[tuple[str, int, int], str]) -> bool:
        """Return True if each copy is of a later epoch than the one before, which its producer has begun by itself.

        `reasons` are those of new epochs, by producer, producer id and epoch.
        """
        batches = [batch for batch in self.batches if batch is not None and batch.producer_id >= 0]
        if len(batches) != len(self.places) or len({place for place, _ in self.places}) != 1:
            return False
        epochs = [batch.producer_epoch for batch in batches]
        producer_id = batches[0].producer_id
        if {batch.producer_id for batch in batches} != {producer_id} or epochs != sorted(set(epochs)):
            return False
        begun = (
            reasons.get((self.value.producer, producer_id, epoch), "") for epoch in range(epochs[0] + 1, epochs[-1] + 1)
        )
        return all(reason and all(_is_its_own(each) for each in reason.split("; ")) for reason in begun)


def duplicates(history: History, kinds: frozenset[str] = EXACTLY_ONCE) -> Iterator[str]:
    """Find values with several offsets, although their producer is idempotent and was never asked to send them twice.

    Those that `duplicates_by_new_epochs` finds are left out: no broker can know that they are the same.
    """
    reasons = _reasons(history)
    for copies in _copies(history, kinds):
        if not copies.are_of_new_epochs(reasons):
            yield str(copies)


def duplicates_by_new_epochs(history: History) -> Iterator[str]:
    """Yield values that a producer of librdkafka sent again in a new epoch, which it had begun by itself.

    This is proven by the epochs in the logs, and by what the producer has logged.
    """
    reasons = _reasons(history)
    for copies in _copies(history, EXACTLY_ONCE):
        if copies.are_of_new_epochs(reasons):
            yield str(copies)


def wrong_refusals(history: History) -> Iterator[str]:
    """Find batches refused as out of order, although the log has the batch, or the one before it, in its epoch."""
    logs = Logs(history)
    for refusal in history.refusals:
        for batch in logs.of_producer(refusal.place, refusal.producer_id, refusal.epoch):
            following = (batch.base_sequence + batch.last_offset - batch.offset + 1) % _SEQUENCES
            if refusal.base_sequence in (batch.base_sequence, following):
                where = f"{refusal.place}: sequence {refusal.base_sequence} of {refusal.producer} was refused"
                yield f"{where}, and the log has {_described(batch)}: {refusal.text}"


def _copies(history: History, kinds: frozenset[str]) -> Iterator[Copies]:
    kind_of = {send.value: send.kind for send in history.sends}
    places: dict[Value, set[tuple[Place, int]]] = defaultdict(set)
    for read in history.reads:
        if read.value is not None and kind_of.get(read.value) in kinds:
            places[read.value].add((read.place, read.offset))
    several = {value: found for value, found in places.items() if len(found) > 1}
    logs = Logs(history) if several else None
    for value, found in several.items():
        assert logs is not None
        yield Copies(value, found, logs)


def _reasons(history: History) -> dict[tuple[str, int, int], str]:
    return {(each.producer, each.producer_id, each.epoch): each.reason for each in history.epoch_bumps}


def _is_its_own(reason: str) -> bool:
    return any(each in reason for each in _BY_ITSELF)


def _described(batch: Batch | None) -> str:
    if batch is None:
        return "in no log"
    return (
        f"batch {batch.offset}..{batch.last_offset}, producer {batch.producer_id}, epoch {batch.producer_epoch}, "
        f"sequence {batch.base_sequence}, leader epoch {batch.leader_epoch}"
    )
