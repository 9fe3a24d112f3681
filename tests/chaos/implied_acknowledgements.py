"""Records that librdkafka reports as written without an answer that says so, and that no broker has.

When a batch gets no answer or a retriable error, and a later batch of the partition is acknowledged, an idempotent
producer of librdkafka takes the earlier batch for written, since a broker refuses sequence numbers out of order. But
one that does not know the producer takes any first sequence number, as in Kafka, and the first batch was not written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.chaos.history import IDEMPOTENT, OK, Batch, History, Place, Send, Value
from tests.chaos.logs import Logs


def lost_by_implied_acknowledgements(history: History, lost: Iterable[Send]) -> Iterator[Send]:
    """Yield those of the lost sends that were acknowledged without an offset, before all that their producer has in the
    log of the partition, if its first batch there has a sequence number that leaves room for all of them."""
    missing: dict[tuple[str, Place], list[Send]] = defaultdict(list)
    for send in lost:
        if send.outcome == OK and send.offset is None and send.kind == IDEMPOTENT:
            missing[send.value.producer, send.place].append(send)
    if not missing:
        return
    logs, offsets = Logs(history), _first_offsets(history)
    for (producer, place), sends in missing.items():
        first = offsets.get((producer, place))
        batch = None if first is None else logs.batch_at(place, first[1])
        if first is not None and batch is not None and _has_room(batch, logs, len(sends)):
            yield from (send for send in sends if send.value.number < first[0].number)


def _first_offsets(history: History) -> Mapping[tuple[str, Place], tuple[Value, int]]:
    """Return the value with the lowest offset, of each producer and partition."""
    found: dict[tuple[str, Place], tuple[Value, int]] = {}
    for read in history.reads:
        if read.value is not None:
            key = read.value.producer, read.place
            if key not in found or read.offset < found[key][1]:
                found[key] = read.value, read.offset
    return found


def _has_room(batch: Batch, logs: Logs, count: int) -> bool:
    """Return True if the batch is the first one of its producer's first epoch, and that many came before it."""
    if batch.producer_id < 0 or batch.producer_epoch:
        return False
    earlier = min(each.offset for each in logs.of_producer(batch.place, batch.producer_id, 0))
    return earlier == batch.offset and count <= batch.base_sequence
