"""read_committed returns exactly the committed records of interleaved transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pyclient.consumer.completed_fetch import parse_records
from tests.consumer.consumer_samples import ABORT, COMMIT, batch_of, marker

PRODUCERS = st.integers(1, 5)
STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "plain", "commit", "abort"]), PRODUCERS, st.integers(1, 3)),
    min_size=1,
    max_size=30,
)


@dataclass
class Log:
    """A partition's batches as brokers write them, and the records that read_committed must return."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    visible: set[int] = field(default_factory=set)
    pending: dict[int, list[int]] = field(default_factory=dict)
    end: int = 0

    def write(self, producer: int, count: int) -> None:
        offsets = list(range(self.end, self.end + count))
        self.pending.setdefault(producer, []).extend(offsets)
        self._add(batch_of(self.end, count, producer_id=producer, producer_epoch=0, transactional=True), count)

    def plain(self, count: int) -> None:
        self.visible.update(range(self.end, self.end + count))
        self._add(batch_of(self.end, count), count)

    def finish(self, producer: int, *, commit: bool) -> None:
        offsets = self.pending.pop(producer, [])
        if not offsets:
            return
        if commit:
            self.visible.update(offsets)
        else:
            self.aborted.append((producer, offsets[0]))
        self._add(marker(self.end, producer, COMMIT if commit else ABORT), 1)

    def _add(self, batch: bytes, count: int) -> None:
        self.batches.append((self.end, batch))
        self.end += count

    @property
    def stable(self) -> int:
        """The last stable offset: the first one of a transaction that is open, or the end."""
        return min((offsets[0] for offsets in self.pending.values()), default=self.end)


def log_of(steps: list[tuple[str, int, int]]) -> Log:
    log = Log()
    for kind, producer, count in steps:
        if kind == "write":
            log.write(producer, count)
        elif kind == "plain":
            log.plain(count)
        else:
            log.finish(producer, commit=kind == "commit")
    return log


@given(steps=STEPS, start=st.integers(0, 60), order=st.randoms(use_true_random=False))
def test_read_committed_gives_exactly_committed_records_from_any_offset(
    steps: list[tuple[str, int, int]], start: int, order: object
) -> None:
    log = log_of(steps)
    starts = [offset for offset, _ in log.batches if offset < log.stable]
    first = max((offset for offset in starts if offset <= start), default=0)
    data = b"".join(batch for offset, batch in log.batches if first <= offset < log.stable)
    aborted = list(log.aborted)
    order.shuffle(aborted)  # type: ignore[attr-defined]
    seen: list[int] = []
    parsed = parse_records(memoryview(data), "t", 0, first, _of_an_answer(log, first, aborted))
    assert parsed.error is None
    for batch in parsed.batches:
        seen += [record.offset for record in batch.records()]
    assert seen == sorted(offset for offset in log.visible if first <= offset < log.stable)
    assert parsed.next_offset == max(log.stable if data else first, first)


def _of_an_answer(log: Log, first: int, aborted: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the aborted transactions whose markers are after the fetch offset, as a broker lists them."""
    ends: dict[tuple[int, int], int] = {}
    for producer, begun in aborted:
        for offset, batch in log.batches:
            if offset > begun and batch == marker(offset, producer, ABORT):
                ends[producer, begun] = offset
                break
    return [each for each in aborted if ends[each] >= first]
